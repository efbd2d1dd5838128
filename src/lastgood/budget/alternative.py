"""One other way to checkpoint, as a record, and what its builders share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lastgood.base.errors import Refused
from lastgood.base.figures import Figure, combine
from lastgood.budget.scenario import Scenario

FIRST_ORDER = "first order: small waste, Poisson failures"
"""What all of them assume."""
TOO_WASTEFUL = "its first-order waste exceeds all time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One other way."""

    name: str
    how: str
    """What to do, in words."""
    work: Figure | None = None
    useful: Figure | None = None
    extra: tuple[Figure, ...] = ()
    note: str = ""
    missing: tuple[str, ...] = ()
    """Inputs that have to be given before it can be computed."""
    refused: str = ""


def figure_from(
    scenario: Scenario,
    names: Sequence[str],
    name: str,
    value: float,
    unit: str,
    source: str,
    *assumes: str,
) -> Figure:
    """Return a number that keeps what its inputs bring along: kinds, assumptions, the oldest record."""
    return combine(
        [scenario.figure(one) for one in names],
        lambda *_: value,
        name=name,
        unit=unit,
        source=source,
        assumptions=assumes,
    )


def missing_inputs(scenario: Scenario, name: str, how: str, *names: str) -> Alternative | None:
    """Return the row that names what is missing; None when all is there."""
    absent = tuple(one for one in names if not scenario.has(one))
    return Alternative(name=name, how=how, missing=absent) if absent else None


def or_refused(name: str, how: str, make: Callable[[], Alternative]) -> Alternative:
    """Return what `make` makes, or the row that says why it refused."""
    try:
        return make()
    except Refused as refused:
        return Alternative(name=name, how=how, refused=f"{refused.what}: {refused.found}")
