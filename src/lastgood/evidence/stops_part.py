"""The tables of stops in a report: by class, and planned ones apart from unexpected ones.

Medians stand here because a mean of three durations says nothing; each incident's own times are on its card.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lastgood.base.figures import DEVICE_TIME, Figure, measured
from lastgood.contract.taxonomy import CountedClass
from lastgood.evidence.incident_part import CLASS_TITLES, known
from lastgood.evidence.incident_times import Durations, durations, durations_of, to_next_step_us
from lastgood.evidence.late_verdicts import FOUND_AFTERWARDS
from lastgood.evidence.report import Cell, Column, Table
from lastgood.ledger.incident import Incident
from lastgood.ledger.walltime import WallTime

_PHASES: Final = ("detection", "diagnosis", "isolation", "recovery", "verification")


def class_table(
    incidents: Sequence[Incident],
    *,
    exposure: Figure,
    as_of_us: int,
    rule: str,
    wall: WallTime | None = None,
    has_many_hosts: bool = True,
) -> Table:
    """Count, exposure, ranks and medians for each class; correlated incidents again as a view of their own.

    On a single host every two ranks share it, so there the view says nothing and is left out.
    """
    columns = (
        Column(title="Class", is_number=False),
        Column(title="Count"),
        Column(title="At risk", unit="device-h"),
        Column(title="Ranks hit"),
        Column(title="Detect", unit="s"),
        Column(title="Diagnose", unit="s"),
        Column(title="Isolate", unit="s"),
        Column(title="Recover", unit="s"),
        Column(title="Verify", unit="s"),
        Column(title="To next step", unit="s"),
        Column(title="Blast radius", unit="ranks"),
        Column(title="Lost steps"),
        Column(title="Lost time", unit="device-s"),
    )
    rows = tuple(
        _class_row(title, _of_class(incidents, name), wall, exposure=exposure, as_of_us=as_of_us)
        for name, title in CLASS_TITLES.items()
        if has_many_hosts or name != CountedClass.CORRELATED
    )
    also = "Correlated incidents also stand in their class. " if has_many_hosts else ""
    note = (
        "Times are medians by nearest rank, each of its own, as the objectives count them: an escalated incident stands "
        "behind every recovered one. Recover ends with the restored state; to next step is the whole, from the fault "
        "to the end of the first accepted step behind it. Blast radius is the largest, lost steps and lost time are sums. "
        f"{also}Counted by the rule {rule}."
    )
    return Table(name="classes", title="Stops by class", columns=columns, rows=rows, note=note)


def _of_class(incidents: Sequence[Incident], name: str) -> list[Incident]:
    if name == CountedClass.CORRELATED:
        return [i for i in incidents if i.correlated]
    return [i for i in incidents if i.class_ == name]


def _class_row(
    title: str,
    members: Sequence[Incident],
    wall: WallTime | None,
    *,
    exposure: Figure,
    as_of_us: int,
) -> tuple[Cell, ...]:
    count = len(members)
    whole = durations_of(members, lambda i: to_next_step_us(i, wall), is_of_recovery=True)

    def number(name: str, value: float | None, unit: str, *, n: int | None = None) -> Figure:
        return measured(name, value, unit, source="incidents of the ledger", n=n, as_of_us=as_of_us)

    def median(name: str, times: Durations) -> Cell:
        value_us, n = times.percentile_us(0.5), len(times.values_us)
        return number(f"{name} median", value_us, "us", n=n) if count else None

    def total(name: str, take: Callable[[Incident], int | None], unit: str) -> Cell:
        values = known(members, take)
        return number(name, sum(values) if values else None, unit, n=len(values)) if count else None

    ranks = {rank for i in members for rank in i.ranks}
    radii = known(members, lambda i: i.blast_radius)
    return (
        title,
        number("count", count, "", n=count),
        exposure,
        number("ranks hit", len(ranks), "") if count else None,
        *(median(name, durations(members, f"{name}_time")) for name in _PHASES),
        median("fault to next accepted step", whole),
        number("blast radius", max(radii, default=None), "ranks", n=len(radii)) if count else None,
        total("lost steps", lambda i: i.lost_steps, ""),
        total("lost device time", lambda i: i.lost_device_us, DEVICE_TIME),
    )


def stops_table(
    incidents: Sequence[Incident],
    *,
    stopped_us: tuple[int, int],
    mtti: Figure | str,
    as_of_us: int,
) -> Table:
    """Planned and unexpected stops apart: neither may hide in the other's average."""
    rows = []
    for title, is_planned, down_us in (
        ("planned", True, stopped_us[0]),
        ("unexpected", False, stopped_us[1]),
    ):
        # What was found afterwards stopped nothing.
        members = [
            i for i in incidents if i.is_planned is is_planned and i.outcome != FOUND_AFTERWARDS
        ]
        lost = known(members, lambda i: i.lost_device_us)

        def number(name: str, value: int | None, unit: str, n: int | None = None) -> Figure:
            return measured(
                name,
                value,
                unit,
                source="incidents and wall time of the ledger",
                n=n,
                as_of_us=as_of_us,
            )

        rows.append(
            (
                title,
                number(f"{title} stops", len(members), "", len(members)),
                number(f"{title} still open", sum(i.is_open for i in members), ""),
                number(f"{title} time stopped", down_us, "us"),
                number(
                    f"{title} lost device time",
                    sum(lost) if lost else (0 if not members else None),
                    DEVICE_TIME,
                    len(lost),
                ),
                None if is_planned else mtti,
            )
        )
    columns = (
        Column(title="Stops", is_number=False),
        Column(title="Count"),
        Column(title="Still open"),
        Column(title="Time stopped", unit="s"),
        Column(title="Lost time", unit="device-s"),
        Column(title="Mean time between"),
    )
    return Table(
        name="planned-unexpected",
        title="Planned and unexpected stops",
        columns=columns,
        rows=tuple(rows),
    )
