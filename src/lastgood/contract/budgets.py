"""Budgets: how much failure is allowed before someone is told.

Two questions, two kinds. A *ratio* budget is for frequent events: a target of 0.97 leaves 0.03, and the
burn windows say how fast that share may be spent. A *count* budget is for rare ones, where a burn rate of
zero or one event means nothing: it asks how probable it is to see this many events or more if the budget
were kept, which has an exact answer from the first event on.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lastgood.contract.taxonomy import CountedClass
from lastgood.contract.values import DurationUs, Name, Ratio, Record, Text

Exposure = Literal["window", "run_hours", "device_hours"]
"""What the count is set against: wall time of the window, time that runs were up, or device time at risk."""


class Burn(Record):
    """One alert rule: this share of the budget spent within this time."""

    consumed: Ratio = Field(description="the share of the budget that is spent", examples=["2%"])
    within_us: DurationUs = Field(
        alias="within", description="the time in which it is spent", examples=["1h"]
    )
    confirm_us: DurationUs | None = Field(
        None,
        alias="confirm",
        description="a shorter time over which it must still be burning",
        examples=["5min"],
    )

    def burn_rate(self, window_us: int) -> float:
        """How many times faster than evenly the budget of a window is being spent when this rule fires."""
        return self.consumed * window_us / self.within_us


class RatioBudget(Record):
    """The share that an objective's target leaves, and how fast it may be spent."""

    name: Name = Field(description="a name for this budget, unique in the contract")
    display_name: Text | None = Field(None, alias="displayName", description="a title for reports")
    kind: Literal["ratio"] = Field(description="the kind of budget")
    objective: Name = Field(
        description="the objective whose remaining share is the budget", examples=["useful-time"]
    )
    burn: tuple[Burn, ...] = Field(
        min_length=1,
        description="the alert rules",
        examples=["[{consumed: 2%, within: 1h, confirm: 5min}]"],
    )


class CountBudget(Record):
    """A number of rare events, judged by its exact Poisson tail."""

    name: Name = Field(description="a name for this budget, unique in the contract")
    display_name: Text | None = Field(None, alias="displayName", description="a title for reports")
    kind: Literal["count"] = Field(description="the kind of budget")
    counts: tuple[CountedClass, ...] = Field(
        min_length=1, description="the classes that are counted", examples=["[fail_stop]"]
    )
    count_max: int = Field(
        alias="max",
        ge=0,
        le=1_000_000_000,
        description="the budgeted number of events",
        examples=["3"],
    )
    per_us: DurationUs = Field(
        alias="per", description="the time for which that number is budgeted", examples=["28d"]
    )
    exposure: Exposure = Field(description="what the count is set against", examples=["run_hours"])
    alpha: Annotated[Ratio, Field(gt=0, lt=1)] = Field(
        description="tell someone when the tail probability falls below this", examples=["0.05"]
    )


Budget = Annotated[RatioBudget | CountBudget, Field(discriminator="kind")]
