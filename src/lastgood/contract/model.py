"""The failure contract as a person writes it, after reading: `FailureContract` and what hangs below it.

    apiVersion: lastgood.dev/v1
    kind: FailureContract
    metadata: {name: pretrain}
    spec:
      workload: {kind: training, boundary: "a step that all ranks published", devices: 4}
      failure:  {taxonomy: lastgood-taxonomy/1, counts: [fail_stop, fail_slow, sdc], excludes: [planned]}
      window:   {duration: 28d, isRolling: true, timeZone: UTC}
      objectives: [{name: useful-time, indicator: ettr, target: 0.97}]
      budgets:  [{name: stops, kind: count, counts: [fail_stop], max: 3, per: 28d, exposure: run_hours, alpha: 0.05}]
      noData: unknown
      recovery: {detect: {timeout: 60s, owner: controller, accept: "...", onTimeout: escalate}, ...}
      duties:   {training: {replayTest: "...", injection: "...", accept: "...", owner: "..."}}

Names in a file are camel case; attributes here are snake case with the unit last, all durations in
microseconds. Rules that look at two places at once are in `crosscheck.py`.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lastgood.base.canonical import canonical_bytes, sha256_hex, with_hex_floats
from lastgood.contract.budgets import Budget
from lastgood.contract.objectives import NoData, Objective
from lastgood.contract.recovery_table import Duties, Layer, RecoveryTable
from lastgood.contract.taxonomy import TAXONOMY_ID, TAXONOMY_NAME, Cause, CountedClass
from lastgood.contract.values import (
    DurationUs,
    Name,
    Record,
    StartTime,
    Text,
    TimeZone,
    nearest,
    wrong_value,
)

API_VERSION = "lastgood.dev/v1"
ASSUMED_ANNOTATION = "lastgood.dev/values"
"""Set to `assumed` on a contract that nobody declared."""


class Metadata(Record):
    """What the contract is called."""

    name: Name = Field(description="the name of the contract")
    display_name: Text | None = Field(None, alias="displayName", description="a title for reports")
    labels: dict[str, str] = Field(default_factory=dict, description="labels, text to text")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="free notes, text to text"
    )


class Workload(Record):
    """What is held to the contract, and where it begins and ends."""

    kind: Layer = Field(description="the kind of workload", examples=["training"])
    boundary: Text = Field(
        description="where accepted work begins and ends",
        examples=['"a step that all ranks published .. a committed checkpoint"'],
    )
    devices: int = Field(
        ge=1, le=10_000_000, description="the number of devices at risk", examples=["8"]
    )


def _taxonomy(value: str) -> str:
    if value not in (TAXONOMY_NAME, TAXONOMY_ID):
        raise wrong_value("the taxonomy of this version", TAXONOMY_NAME)
    return value


def _excluded(value: str) -> str:
    words = {*CountedClass, *Cause, *(cause.branch for cause in Cause)}
    if value not in words:
        raise wrong_value("a class or a cause of the taxonomy", nearest(value, words))
    return value


class Failure(Record):
    """What counts as a failure of this workload."""

    taxonomy: Annotated[str, AfterValidator(_taxonomy)] = Field(
        TAXONOMY_NAME,
        description="the taxonomy, by name or with its hash",
        examples=[TAXONOMY_NAME],
    )
    counts: tuple[CountedClass, ...] = Field(
        min_length=1,
        description="the classes that count as failures",
        examples=["[fail_stop, fail_slow, sdc]"],
    )
    excludes: tuple[Annotated[str, AfterValidator(_excluded)], ...] = Field(
        (), description="classes or causes that do not count", examples=["[planned]"]
    )


class Calendar(Record):
    """A window that begins at fixed times."""

    start_time: StartTime = Field(
        alias="startTime", description="local time at which the first window begins"
    )


class Window(Record):
    """Over which stretch of time the contract is judged."""

    duration_us: DurationUs = Field(
        alias="duration", description="the length of the window", examples=["28d"]
    )
    is_rolling: bool = Field(
        False, alias="isRolling", description="true for a window that ends now", examples=["true"]
    )
    calendar: Calendar | None = Field(None, description="where a fixed window begins")
    time_zone: TimeZone = Field("UTC", alias="timeZone", description="the zone in which days begin")


class Spec(Record):
    """All that the contract declares."""

    description: Text | None = Field(None, description="what this contract is for")
    workload: Workload = Field(
        description="what is held to the contract",
        examples=["{kind: training, boundary: a published step, devices: 4}"],
    )
    failure: Failure = Field(
        description="what counts as a failure",
        examples=["{counts: [fail_stop, fail_slow, sdc], excludes: [planned]}"],
    )
    window: Window = Field(
        description="over which time the contract is judged",
        examples=["{duration: 28d, isRolling: true}"],
    )
    objectives: tuple[Objective, ...] = Field((), description="what the work must achieve")
    budgets: tuple[Budget, ...] = Field(
        (), description="how much failure is allowed before someone is told"
    )
    no_data: NoData = Field(
        "unknown",
        alias="noData",
        description="how a stretch without data is taken",
        examples=["unknown"],
    )
    recovery: RecoveryTable = Field(description="who does what by when after a failure")
    duties: Duties = Field(default_factory=Duties, description="the proof that each layer owes")


class FailureContract(Record):
    """A whole contract."""

    api_version: Literal["lastgood.dev/v1"] = Field(
        alias="apiVersion", description="the version of this format", examples=[API_VERSION]
    )
    kind: Literal["FailureContract"] = Field(
        description="the kind of document", examples=["FailureContract"]
    )
    metadata: Metadata = Field(
        description="what the contract is called", examples=["{name: my-contract}"]
    )
    spec: Spec = Field(description="all that the contract declares")

    @property
    def is_assumed(self) -> bool:
        """True when nobody declared this contract and every value is a default."""
        return self.metadata.annotations.get(ASSUMED_ANNOTATION) == "assumed"


def contract_digest(contract: FailureContract) -> str:
    """SHA-256 of what the contract says, in hex: equal for two files that mean the same."""
    return sha256_hex(
        canonical_bytes(with_hex_floats(contract.model_dump(mode="json", by_alias=False)))
    )


def contract_text(contract: FailureContract) -> str:
    """The contract as text that `load_contract` reads back to an equal contract (JSON, which is YAML)."""
    plain = contract.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
