"""The page of a series of drills: what was expected beside what was found, and who answers for it."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.base.figures import Figure, FigureKind
from lastgood.evidence.report import (
    Check,
    Column,
    FigureRow,
    Headline,
    Note,
    Report,
    Reproduction,
    Section,
    Table,
)
from lastgood.ledger.tree_head import TreeHead
from lastgood.training.drills.verdict import Verdict

_SOURCE = "the ledger of the drills"


def build_page(
    verdicts: Sequence[Verdict],
    *,
    not_played: Sequence[str],
    subject: str,
    head: TreeHead,
    version: str,
    as_of_us: int,
) -> Report:
    """The report over the newest verdict of each drill. Pure: the same verdicts give the same page."""
    return Report(
        title="Lastgood drills, training",
        subject=subject,
        as_of_us=as_of_us,
        sections=(_section(verdicts, not_played),),
        reproduction=Reproduction(
            ledger="ledger.db",
            root=head.root_hex,
            size=head.size,
            origin=head.origin,
            version=version,
            command=f"lastgood drill training -o {subject}",
        ),
    )


def _section(verdicts: Sequence[Verdict], not_played: Sequence[str]) -> Section:
    held = sum(verdict.has_held for verdict in verdicts)
    broken = [verdict for verdict in verdicts if not verdict.has_held]
    if broken:
        state, sentence = "not_held", f"{len(broken)} of {len(verdicts)} drills did not hold."
    elif not_played or not verdicts:
        state, sentence = "unknown", f"{held} drills held, {len(not_played)} were not played."
    else:
        state, sentence = "held", f"All {held} drills held."
    checks = tuple(
        Check(
            question=f"{v.drill}: {v.title} (owner: {v.owner})",
            state="held" if v.has_held else "not_held",
            detail="; ".join(
                f"{line.what}: expected {line.expected}, found {line.found}" for line in v.broken
            ),
        )
        for v in verdicts
    )
    notes = [
        Note(text="Faults were injected: how often they occurred says nothing about a fleet."),
        *(Note(text=f"Not played: {name}.", level="missing") for name in not_played),
    ]
    return Section(
        name="drills",
        title="Drills",
        lead="Each drill breaks a small job on purpose; each line is held against the records of that job.",
        headline=Headline(state=state, sentence=sentence, checks=checks),
        is_injected=True,
        figures=(_count("drills held", held, len(verdicts)),),
        tables=(_overview(verdicts), *(_lines(verdict) for verdict in verdicts)),
        notes=tuple(notes),
    )


def _count(name: str, value: int, n: int) -> FigureRow:
    figure = Figure(
        name=name.replace(" ", "_"), value=value, unit="drills", kind=FigureKind.MEASURED, n=n, source=_SOURCE
    )  # fmt: skip
    return FigureRow(label=name, figure=figure, is_key=True)


def _overview(verdicts: Sequence[Verdict]) -> Table:
    return Table(
        name="overview",
        title="All drills",
        columns=(
            Column(title="drill", is_number=False),
            Column(title="owner", is_number=False),
            Column(title="answer", is_number=False),
            Column(title="detected", unit="s"),
            Column(title="recovered", unit="s"),
            Column(title="lost steps"),
        ),
        rows=tuple(
            (
                v.drill,
                v.owner,
                "held" if v.has_held else "NOT HELD",
                _seconds("detected", v.detected_us),
                _seconds("recovered", v.recovered_us),
                _steps(v.lost_steps),
            )
            for v in verdicts
        ),
        note="Times from the injection, n=1 each, on this machine.",
    )


def _seconds(name: str, value_us: int | None) -> Figure | None:
    if value_us is None:
        return None
    return Figure(
        name=name, value=value_us / 1e6, unit="s", kind=FigureKind.MEASURED, n=1, source=_SOURCE
    )


def _steps(value: int | None) -> Figure | None:
    if value is None:
        return None
    return Figure(
        name="lost_steps", value=value, unit="steps", kind=FigureKind.MEASURED, n=1, source=_SOURCE
    )


def _lines(verdict: Verdict) -> Table:
    return Table(
        name=verdict.drill,
        title=f"{verdict.drill}: {verdict.title}",
        columns=tuple(
            Column(title=title, is_number=False)
            for title in ("what", "expected", "found", "answer", "shown by")
        ),
        rows=tuple(
            (
                line.what,
                line.expected,
                line.found,
                "held" if line.has_held else "NOT HELD",
                line.event,
            )
            for line in verdict.lines
        ),
        note=f"Owner: {verdict.owner}. Run {verdict.run}; its files lie in {verdict.folder}; load {verdict.load or 'unknown'}.",
        is_folded=verdict.has_held,
    )
