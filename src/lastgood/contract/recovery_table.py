"""The recovery table (detect, isolate, restore, verify) and the evidence duties.

Every row has a time-out, an owner, an acceptance criterion and a way on when the time is up. None has a
default in a file: a row that nobody owns is the row that nobody carries out.

A duty says how a layer (training, serving or agents) proves that its recovery works: a replay test, the
injection that exercises the path, the acceptance criterion, and who owns evidence that failed. A contract
loads without duties, because a run never stops for paper; `contract check` refuses it and reports print
*missing*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import Field

from lastgood.contract.values import DurationUs, OnTimeoutValue, Record, Text

Transition = Literal["detect", "isolate", "restore", "verify"]
TRANSITIONS: tuple[Transition, ...] = ("detect", "isolate", "restore", "verify")
Layer = Literal["training", "serving", "agents"]
LAYERS: tuple[Layer, ...] = ("training", "serving", "agents")


class Notify(Record):
    """How an owner hears of an escalation: one command, or one Alertmanager."""

    command: tuple[Text, ...] | None = Field(
        None,
        min_length=1,
        description="program and arguments; the incident comes as JSON on standard input",
        examples=['["/usr/local/bin/page", "oncall"]'],
    )
    alertmanager: Text | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="the base URL of an Alertmanager",
        examples=["http://alertmanager:9093"],
    )


class Row(Record):
    """One transition of the loop."""

    timeout_us: DurationUs = Field(
        alias="timeout", description="the longest that this transition may take"
    )
    owner: Text = Field(description="who answers when it fails", examples=["oncall-training"])
    accept: Text = Field(
        description="the test that ends the transition",
        examples=['"every survivor has left the group"'],
    )
    on_timeout: OnTimeoutValue = Field(
        alias="onTimeout", description="what happens when the time is up"
    )
    notify: Notify | None = Field(None, description="overrides recovery.notify for this row")


class Recurrence(Record):
    """When the same failure signature counts as having come back."""

    window_us: DurationUs = Field(
        alias="window", description="how soon after a recovery a return counts"
    )
    limit: int = Field(
        ge=1,
        description="returns within the window that a wider domain answers; one more escalates",
        examples=["2"],
    )
    every_rank_limit: int = Field(
        default=1,
        alias="everyRankLimit",
        ge=0,
        description="recoveries tried when every rank raised the same error in the same step; one more escalates",
        examples=["1"],
    )


class SlowRank(Record):
    """What is done about a rank that became slower than its peers."""

    act: Literal["replace", "record"] = Field(
        default="replace",
        description="replace it once it has cost as much as replacing it, or only record it",
        examples=["replace"],
    )
    cost_us: DurationUs = Field(
        default=30_000_000,
        alias="cost",
        description="how long a replacement is taken to stop the job, until the run has measured its own recoveries",
    )


class RecoveryTable(Record):
    """The four rows, and what holds for all of them."""

    detect: Row = Field(description="the row for noticing that progress or correctness is lost")
    isolate: Row = Field(description="the row for taking the smallest credible fault domain out")
    restore: Row = Field(
        description="the row for bringing the last good state back on known-good resources"
    )
    verify: Row = Field(description="the row for proving that the restored state is good")
    recurrence: Recurrence = Field(
        default_factory=lambda: Recurrence(window_us=1_800_000_000, limit=2),
        description="when the same failure coming back widens the domain",
    )
    soft_deadline_us: DurationUs = Field(
        default=30_000_000,
        alias="softDeadline",
        description="how long the path that keeps survivors alive may take before all ranks restart",
    )
    slow: SlowRank = Field(
        default_factory=SlowRank, description="what is done about a rank that became slow"
    )
    notify: Notify | None = Field(None, description="how an owner hears of an escalation")

    def row(self, transition: Transition) -> Row:
        """The row of one transition."""
        return getattr(self, transition)

    def notify_for(self, transition: Transition) -> Notify | None:
        """How the owner of this row hears of an escalation; None when nobody declared a way."""
        return self.row(transition).notify or self.notify


class Duty(Record):
    """What one layer owes as proof. A missing part is None and is printed as *missing*."""

    replay_test: Text | None = Field(
        None,
        alias="replayTest",
        description="the test that re-runs a step and compares",
        examples=['"replay the last step on every rank, digests equal"'],
    )
    injection: Text | None = Field(
        None,
        description="the fault injection that exercises the recovery path",
        examples=['"lastgood demo"'],
    )
    accept: Text | None = Field(
        None,
        description="the criterion that the evidence has to meet",
        examples=['"final weights equal the undisturbed run"'],
    )
    owner: Text | None = Field(
        None, description="who owns evidence that failed", examples=["training-platform"]
    )


class Duties(Record):
    """Duties of each layer that the contract covers; the layer of the workload is the one that must be there."""

    training: Duty | None = Field(None, description="duties of the training layer")
    serving: Duty | None = Field(None, description="duties of the serving layer")
    agents: Duty | None = Field(None, description="duties of the agents layer")

    def of(self, layer: Layer) -> Duty:
        """The duty of a layer; all parts missing when nothing was declared."""
        return getattr(self, layer) or Duty()


class MissingDuty(NamedTuple):
    """One part of a duty that a contract owes and does not hold."""

    path: str
    needs: str
    write: str


def missing_duties(duties: Duties, layer: Layer) -> tuple[MissingDuty, ...]:
    """Every part that the layer of the workload, or another layer that was begun, still owes."""
    owed = [name for name in LAYERS if name == layer or getattr(duties, name) is not None]
    return tuple(item for name in owed for item in _missing_of(duties.of(name), name))


def _missing_of(duty: Duty, layer: Layer) -> Iterator[MissingDuty]:
    for name, field in Duty.model_fields.items():
        if getattr(duty, name) is None:
            key = field.alias or name
            example = (field.examples or ["..."])[0]
            yield MissingDuty(
                f"spec.duties.{layer}.{key}", field.description or "", f"{key}: {example}"
            )
