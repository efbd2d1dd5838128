"""The objectives and budgets of a contract against what a run's records say.

Each has three possible answers. *Unknown* is an answer: too few incidents, an open one that could still break the
limit, an indicator that this workload does not record. It never counts as held. The numbers are this run's own; the
contract's window may be longer, and the section says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lastgood.base.figures import DEVICE_TIME, Figure, assumed, measured
from lastgood.base.units import format_duration
from lastgood.contract.model import FailureContract
from lastgood.contract.objectives import (
    EscapedCorruptionObjective,
    EttrObjective,
    IncidentTimeObjective,
    LostDeviceTimeObjective,
    LostStepsObjective,
    Objective,
)
from lastgood.contract.taxonomy import FailureClass
from lastgood.evidence.budget_part import budget_tables
from lastgood.evidence.incident_part import INJECTED, counted_incidents, known
from lastgood.evidence.incident_times import durations
from lastgood.evidence.report import Cell, Column, Note, Section, Table
from lastgood.evidence.wording import answer_text, short_detail
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.incident import Incident, is_accepted
from lastgood.ledger.walltime import WallState


class Judged(NamedTuple):
    """What was seen, the bound, whether it held, and why it could not be told."""

    seen: Figure
    bound: Figure
    state: str
    why: str = ""


def objectives_section(
    contract: FailureContract, times: RunTimes, *, is_injected: bool = False
) -> Section:
    """Each objective and each budget with what was seen beside what was promised."""
    spec = contract.spec
    lead = (
        f"Judged over this run's {format_duration(times.wall.window_us)} alone; "
        f"the contract's window is {format_duration(spec.window.duration_us)}."
    )
    if not spec.objectives and not spec.budgets:
        note = Note(
            level="missing", text="Objectives are not declared, so nothing here was held or broken."
        )
        return Section(name="objectives", title="Objectives", notes=(note,))
    tables = []
    if spec.objectives:
        rows = tuple(
            _row(o, judge(o, contract, times, is_injected=is_injected)) for o in spec.objectives
        )
        tables.append(
            Table(
                name="objectives",
                title="Objectives",
                columns=_columns("Objective", "Bound"),
                rows=rows,
            )
        )
    tables.extend(budget_tables(contract, times, is_injected=is_injected))
    notes = ()
    if not spec.budgets:
        notes = (Note(level="missing", text="No budget is declared, so none is used up or left."),)
    return Section(
        name="objectives", title="Objectives", lead=lead, tables=tuple(tables), notes=notes
    )


def _columns(first: str, bound: str) -> tuple[Column, ...]:
    return (
        Column(title=first, is_number=False),
        Column(title="Seen"),
        Column(title=bound),
        Column(title="Answer", is_number=False),
        Column(title="Why", is_number=False),
    )


def _row(objective: Objective, judged: Judged) -> tuple[Cell, ...]:
    title = objective.display_name or objective.name
    return (
        title,
        judged.seen,
        judged.bound,
        answer_text(judged.state),
        judged.why or short_detail(judged.seen) or None,
    )


def judge(
    objective: Objective, contract: FailureContract, times: RunTimes, *, is_injected: bool = False
) -> Judged:
    """Whether one objective held in this run."""
    counted = counted_incidents(times.incidents, contract.spec.failure.counts)
    match objective:
        case EttrObjective():
            judged = _judge_ettr(objective, contract, times)
            return judged._replace(state="not_judged", why=INJECTED) if is_injected else judged
        case IncidentTimeObjective():
            return _judge_percentile(objective, counted, times.wall.as_of_us)
        case LostStepsObjective():
            return _judge_largest(
                objective.name,
                counted,
                lambda i: i.lost_steps,
                objective.limit,
                "steps",
                times.wall.as_of_us,
            )
        case LostDeviceTimeObjective():
            return _judge_largest(
                objective.name,
                counted,
                lambda i: i.lost_device_us,
                objective.limit_us,
                DEVICE_TIME,
                times.wall.as_of_us,
            )
        case EscapedCorruptionObjective():
            return _judge_corruption(objective.name, times)
        case _:
            nothing = measured(
                objective.name,
                None,
                "",
                source=f"no record of {objective.indicator} in a training run",
            )
            return Judged(
                nothing,
                assumed(objective.name, None, "", source="contract"),
                "unknown",
                f"{objective.indicator} is not recorded here",
            )


def _judge_ettr(objective: EttrObjective, contract: FailureContract, times: RunTimes) -> Judged:
    """Unknown time could have been either; it decides nothing in favour, and against only where the contract says bad."""
    bound = assumed("ETTR target", objective.target, "ratio", source="contract")
    excludes_planned = FailureClass.PLANNED in contract.spec.failure.excludes
    seen = times.ettr_counted if excludes_planned else times.ettr
    wall = times.wall
    if seen.value is None:
        why = "whether steps before a restart were done again is not known" if wall.unsure_executions else "nothing was observed"  # fmt: skip
        return Judged(seen, bound, "unknown", why)
    if seen.value >= objective.target:
        return Judged(seen, bound, "held")
    total_us = wall.counted_us if excludes_planned else wall.window_us
    unknown_us = wall.totals_us[WallState.UNKNOWN]
    no_data = objective.no_data or contract.spec.no_data
    if (
        no_data == "exclude"
        and total_us > unknown_us
        and wall.productive_us / (total_us - unknown_us) >= objective.target
    ):
        return Judged(
            seen,
            bound,
            "held",
            f"with {format_duration(unknown_us)} of unknown time left out, as declared",
        )
    if no_data == "unknown" and (wall.productive_us + unknown_us) / total_us >= objective.target:
        return Judged(
            seen, bound, "unknown", f"{format_duration(unknown_us)} without records could decide it"
        )
    return Judged(seen, bound, "not_held")


def _judge_percentile(
    objective: IncidentTimeObjective, counted: Sequence[Incident], as_of_us: int
) -> Judged:
    bound = assumed(f"{objective.indicator} limit", objective.limit_us, "us", source="contract")
    times = durations(counted, objective.indicator)
    name = f"{objective.indicator} p{objective.percentile * 100:g}"
    seen = measured(
        name,
        times.percentile_us(objective.percentile),
        "us",
        source="incidents of the ledger, nearest rank",
        n=len(times.values_us),
        as_of_us=as_of_us,
    )
    if len(counted) < objective.count_min:
        return Judged(
            seen, bound, "unknown", f"{len(counted)} incidents, needs {objective.count_min}"
        )
    # The rank among all incidents: those without a value could be short or long.
    over = sum(v > objective.limit_us for v in times.values_us) + times.never_count
    allowed = len(counted) - math.ceil(objective.percentile * len(counted) - 1e-9)
    if over > allowed:
        never = f", {times.never_count} of them never recovered" if times.never_count else ""
        return Judged(seen, bound, "not_held", f"{over} of {len(counted)} above the limit{never}")
    if over + times.unknown_count > allowed:
        why = f"{times.unknown_count} of {len(counted)} without this time"
        return Judged(seen, bound, "unknown", why)
    return Judged(seen, bound, "held")


def _judge_largest(
    name: str,
    counted: Sequence[Incident],
    take: Callable[[Incident], int | None],
    limit: int,
    unit: str,
    as_of_us: int,
) -> Judged:
    bound = assumed(f"{name} limit", limit, unit, source="contract")
    values = known(counted, take)
    seen = measured(
        f"{name} largest",
        max(values, default=None),
        unit,
        source="incidents of the ledger",
        n=len(values),
        as_of_us=as_of_us,
    )
    if any(value > limit for value in values):
        return Judged(
            seen,
            bound,
            "not_held",
            f"{sum(v > limit for v in values)} of {len(counted)} above the limit",
        )
    if len(values) < len(counted):
        return Judged(
            seen,
            bound,
            "unknown",
            f"{len(counted) - len(values)} of {len(counted)} without this record",
        )
    if not counted:
        return Judged(seen, bound, "unknown", "no incident to judge")
    return Judged(seen, bound, "held")


def _judge_corruption(name: str, times: RunTimes) -> Judged:
    """Corruption that a check saw and that no accepted verification closed. What no check saw is in no record."""
    bound = assumed(f"{name} limit", 0, "incidents", source="contract")
    corrupt = [i for i in times.incidents if i.class_ == FailureClass.SDC]
    escaped = [
        i for i in corrupt if not i.is_open and not (i.verification and is_accepted(i.verification))
    ]
    open_count = sum(i.is_open for i in corrupt)
    seen = measured(
        name, len(escaped), "incidents", source="SDC incidents closed without an accepted verification",
        n=len(corrupt), as_of_us=times.wall.as_of_us,
    )  # fmt: skip
    if escaped:
        return Judged(seen, bound, "not_held", "a corrupt state was not replaced by a verified one")
    if open_count:
        return Judged(seen, bound, "unknown", f"{open_count} still open")
    return Judged(seen, bound, "held", "as far as the checks of this run can see")
