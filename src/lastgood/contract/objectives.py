"""Objectives: what the work must achieve, one kind of indicator each.

An objective names an indicator and a bound. Which indicators fit which workload stands in
`INDICATORS_BY_WORKLOAD`; the ones about incidents fit every workload.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lastgood.contract.values import DurationUs, Name, Percentile, Ratio, Record, Text

NoData = Literal["bad", "exclude", "unknown"]
"""How a stretch without data is taken. None of the three counts it as good."""


class _Objective(Record):
    name: Name = Field(description="a name for this objective, unique in the contract")
    display_name: Text | None = Field(None, alias="displayName", description="a title for reports")
    no_data: NoData | None = Field(
        None, alias="noData", description="overrides spec.noData for this objective"
    )


class EttrObjective(_Objective):
    """Productive time over wall time in the window of the contract."""

    indicator: Literal["ettr"] = Field(description="the indicator")
    target: Ratio = Field(
        description="the smallest ratio of productive time to wall time that holds"
    )


class IncidentTimeObjective(_Objective):
    """A percentile of one of the five times of an incident stays within a limit."""

    indicator: Literal[
        "detection_time", "diagnosis_time", "isolation_time", "recovery_time", "verification_time"
    ] = Field(description="the indicator")
    percentile: Percentile = Field(description="the percentile of all incidents in the window")
    limit_us: DurationUs = Field(
        alias="limit", description="the longest time that holds at this percentile"
    )
    count_min: int = Field(
        1,
        alias="minCount",
        ge=1,
        description="below this number of incidents the answer is unknown",
    )


class LostStepsObjective(_Objective):
    """Training steps that had to be done again, per incident."""

    indicator: Literal["lost_steps"] = Field(description="the indicator")
    limit: int = Field(ge=0, description="the most steps one incident may lose", examples=["1"])


class LostDeviceTimeObjective(_Objective):
    """Device time lost per incident."""

    indicator: Literal["lost_device_time"] = Field(description="the indicator")
    limit_us: DurationUs = Field(
        alias="limit", description="the most device time one incident may lose"
    )


class EscapedCorruptionObjective(_Objective):
    """No corrupt state is built on or handed out. There is no other bound than zero."""

    indicator: Literal["escaped_corruption"] = Field(description="the indicator")
    limit: Literal[0] = Field(
        0, description="always 0: a contract cannot allow corruption to escape", examples=["0"]
    )


class LatencyObjective(_Objective):
    """A percentile of time to first token or time per output token stays within a limit."""

    indicator: Literal["ttft", "tpot"] = Field(description="the indicator")
    percentile: Percentile = Field(description="the percentile of all requests in the window")
    limit_us: DurationUs = Field(
        alias="limit", description="the longest latency that holds at this percentile"
    )


class SloGoodputObjective(_Objective):
    """Requests per second whose TTFT and TPOT both stay within their limits."""

    indicator: Literal["slo_goodput"] = Field(description="the indicator")
    ttft_us: DurationUs = Field(
        alias="ttft", description="longest time to first token of a counted request"
    )
    tpot_us: DurationUs = Field(
        alias="tpot", description="longest time per output token of a counted request"
    )
    rate_min: float = Field(
        alias="minRate",
        gt=0,
        description="the smallest rate, in requests per second",
        examples=["20"],
    )


class AcceptedOutputRateObjective(_Objective):
    """Accepted outputs over all outputs."""

    indicator: Literal["accepted_output_rate"] = Field(description="the indicator")
    target: Ratio = Field(description="the smallest share of outputs that are accepted")


class VerifiedCompletionObjective(_Objective):
    """Tasks whose verified goal state was reached over all tasks."""

    indicator: Literal["verified_completion"] = Field(description="the indicator")
    target: Ratio = Field(
        description="the smallest share of tasks that reach their verified goal state"
    )


class PassHatKObjective(_Objective):
    """The probability that all of k trials of one task pass (pass^k)."""

    indicator: Literal["pass_hat_k"] = Field(description="the indicator")
    k: int = Field(ge=1, le=1000, description="number of trials of one task", examples=["4"])
    target: Ratio = Field(description="the smallest pass^k")


Objective = Annotated[
    EttrObjective
    | IncidentTimeObjective
    | LostStepsObjective
    | LostDeviceTimeObjective
    | EscapedCorruptionObjective
    | LatencyObjective
    | SloGoodputObjective
    | AcceptedOutputRateObjective
    | VerifiedCompletionObjective
    | PassHatKObjective,
    Field(discriminator="indicator"),
]

_EVERY = frozenset(
    {
        "detection_time",
        "diagnosis_time",
        "isolation_time",
        "recovery_time",
        "verification_time",
        "lost_device_time",
        "escaped_corruption",
    }
)
INDICATORS_BY_WORKLOAD: dict[str, frozenset[str]] = {
    "training": _EVERY | {"ettr", "lost_steps"},
    "serving": _EVERY | {"ttft", "tpot", "slo_goodput", "accepted_output_rate"},
    "agents": _EVERY | {"verified_completion", "pass_hat_k"},
}
"""Which indicators a workload can be held to."""
RATIO_INDICATORS = frozenset({"ettr", "accepted_output_rate", "verified_completion"})
"""Indicators whose target leaves a share that a ratio budget can burn."""
