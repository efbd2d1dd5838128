"""Budget use in a report: what was seen beside what the contract allows, with the exact Poisson tail.

A count budget answers from the first event on: how probable are this many or more, if the budget were kept? The
interval is that of the mean number for this much exposure, so that a single run shows how little it can say. Faults on
purpose use up no budget, and without a budget there is no table: none used is not nothing allowed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from lastgood.base.figures import Figure, Interval, measured
from lastgood.base.units import format_duration, format_number
from lastgood.contract.budgets import CountBudget, RatioBudget
from lastgood.contract.model import FailureContract
from lastgood.contract.objectives import EttrObjective
from lastgood.contract.tail import POISSON_ASSUMPTION, BudgetUse, budget_use
from lastgood.evidence.incident_part import INJECTED, counted_incidents
from lastgood.evidence.report import Cell, Column, Table
from lastgood.evidence.wording import answer_text
from lastgood.ledger.ettr import RunTimes, poisson_interval_us

LEVEL: Final = 0.95
EXPOSURE_WORDS: Final = {
    "window": "of wall time",
    "run_hours": "of run time",
    "device_hours": "of device time at risk",
}


class _Counted(NamedTuple):
    seen: Figure
    use: BudgetUse
    exposure_us: int


def budget_tables(
    contract: FailureContract, times: RunTimes, *, is_injected: bool = False
) -> tuple[Table, ...]:
    """The use of the declared budgets: rare events by count, frequent ones by share; a table only where one is declared."""
    counts = [b for b in contract.spec.budgets if isinstance(b, CountBudget)]
    ratios = [b for b in contract.spec.budgets if isinstance(b, RatioBudget)]
    tables: list[Table] = []
    if counts:
        rows = tuple(_count_row(b, contract, times, is_injected=is_injected) for b in counts)
        tables.append(_count_table(rows))
    if ratios:
        rows = tuple(_ratio_row(b, contract, times, is_injected=is_injected) for b in ratios)
        tables.append(_ratio_table(rows))
    return tuple(tables)


def _count_table(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    return Table(
        name="budgets",
        title="Budget use",
        columns=(
            Column(title="Budget", is_number=False),
            Column(title="Allows", is_number=False),
            Column(title="Seen"),
            Column(title=f"Mean, {LEVEL * 100:g} % interval", is_number=False),
            Column(title="Expected under it"),
            Column(title="P(this many or more)"),
            Column(title="Answer", is_number=False),
            Column(title="Why", is_number=False),
        ),
        rows=rows,
        note="P is the exact Poisson tail: how probable this many or more are if the budget is kept and "
        f"{POISSON_ASSUMPTION}. Bursts make a kept budget look broken.",
    )


def _ratio_table(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    return Table(
        name="ratio-budgets",
        title="Use of what targets leave",
        columns=(
            Column(title="Budget", is_number=False),
            Column(title="Objective", is_number=False),
            Column(title="Used", unit="%"),
            Column(title="Answer", is_number=False),
            Column(title="Why", is_number=False),
        ),
        rows=rows,
    )


def _count_row(
    budget: CountBudget, contract: FailureContract, times: RunTimes, *, is_injected: bool
) -> tuple[Cell, ...]:
    found = _counted(budget, contract, times)
    use = found.use
    title = budget.display_name or budget.name
    allows = (
        f"{budget.count_max} in {format_duration(budget.per_us)} {EXPOSURE_WORDS[budget.exposure]}"
    )
    if is_injected:
        # Neither a tail nor an interval: a rate of faults on purpose is no rate of anything.
        seen = msgspec.structs.replace(found.seen, interval=None)
        return (title, allows, seen, None, use.expected, None, answer_text("not_judged"), INJECTED)
    state = {True: "held", False: "not_held", None: "unknown"}[use.is_within]
    over = f"over {format_duration(found.exposure_us)} {EXPOSURE_WORDS[budget.exposure]}"
    why = f"{over}; speaks up below {budget.alpha:g}"
    return (
        title, allows, found.seen, _interval_words(found.seen), use.expected, use.tail, answer_text(state), why,
    )  # fmt: skip


def _counted(budget: CountBudget, contract: FailureContract, times: RunTimes) -> _Counted:
    counted = counted_incidents(times.incidents, budget.counts)
    source, as_of_us = "incidents of the ledger", times.wall.as_of_us
    exposure_us = (
        times.exposure.device_us if budget.exposure == "device_hours" else times.wall.window_us
    )
    use = budget_use(
        budget,
        count=len(counted),
        exposure_us=exposure_us,
        source=source,
        devices=contract.spec.workload.devices,
    )
    seen = measured(
        f"{budget.name} count", len(counted), "incidents",
        source=source, n=len(counted), as_of_us=as_of_us, interval=_mean_interval(len(counted), exposure_us),
    )  # fmt: skip
    return _Counted(seen, use, exposure_us)


def _mean_interval(count: int, exposure_us: int) -> Interval | None:
    """The means that the count does not contradict, for the exposure that there was; None without any."""
    if exposure_us <= 0:
        return None
    shortest_us, longest_us = poisson_interval_us(count, exposure_us, level=LEVEL)
    return Interval(
        lo=exposure_us / longest_us if longest_us else 0.0,
        hi=exposure_us / shortest_us,
        level=LEVEL,
        method="exact Poisson (Garwood)",
    )


def _interval_words(seen: Figure) -> str | None:
    if seen.interval is None:
        return None
    return f"{format_number(seen.interval.lo)} to {format_number(seen.interval.hi)}"


def _ratio_row(
    budget: RatioBudget, contract: FailureContract, times: RunTimes, *, is_injected: bool
) -> tuple[Cell, ...]:
    why = "its burn rules are judged while the window runs, not from one run"
    title = budget.display_name or budget.name
    used = _ratio_spent(budget, contract, times)
    return (
        title,
        budget.objective,
        used,
        answer_text("not_judged"),
        INJECTED if is_injected else why,
    )


def _ratio_spent(budget: RatioBudget, contract: FailureContract, times: RunTimes) -> Figure:
    """How much of what the target leaves this run has used."""
    targets = [
        o.target
        for o in contract.spec.objectives
        if o.name == budget.objective and isinstance(o, EttrObjective)
    ]
    left = 1 - targets[0] if targets else 0
    value = (
        100 * (1 - times.ettr.value) / left if left > 0 and times.ettr.value is not None else None
    )
    return measured(
        f"{budget.name} spent", value, "%",
        source="what ETTR leaves over what the target leaves", as_of_us=times.wall.as_of_us,
    )  # fmt: skip
