"""What-if as a section: the plan as it is, each change beside it, and how sure the order is."""

from __future__ import annotations

from lastgood.budget.whatif import Effect, WhatIf
from lastgood.evidence.report import Column, FigureRow, Note, Section, Table

SURE = 0.95
COIN = 0.75


def what_if_section(answer: WhatIf) -> Section:
    """A table of changes, best first, all of them together last."""
    effects = [*answer.effects, *([answer.all_together] if answer.all_together else [])]
    table = Table(
        name="changes",
        title="What changes, each at its own best interval",
        columns=(
            Column(title="change", is_number=False),
            Column(title="interval τ"),
            Column(title="useful fraction E"),
            Column(title="change of E", unit="points"),
            Column(title="low", unit="points"),
            Column(title="high", unit="points"),
            Column(title="sign holds in"),
        ),
        rows=tuple(_row(effect) for effect in effects),
        note="Plan and change are computed from the same draws of the inputs. A point is a hundredth of wall time.",
    )
    rows = [
        FigureRow(label="Interval τ as it is", figure=answer.base_work),
        FigureRow(label="Useful fraction E as it is", figure=answer.base_useful),
    ]
    if answer.ranking_share is not None:
        rows.append(FigureRow(label="All changes rank as shown in", figure=answer.ranking_share))
    return Section(
        name="what_if",
        title="What if",
        figures=tuple(rows),
        tables=(table,),
        notes=tuple(_notes(answer)),
    )


def _row(effect: Effect) -> tuple:
    interval = effect.delta.interval
    share = effect.sign_share if effect.sign_share.value is not None else None
    low = f"{interval.lo:+.3f}" if interval else None
    high = f"{interval.hi:+.3f}" if interval else None
    return (effect.change, effect.work, effect.useful, effect.delta, low, high, share)


def _notes(answer: WhatIf) -> list[Note]:
    notes = []
    if not answer.samples.varied:
        notes.append(
            Note(
                text="No input has an interval: nothing can be said about how sure a sign or the order is.",
                level="missing",
            )
        )
    unsure = [
        e.change
        for e in answer.effects
        if e.sign_share.value is not None and e.sign_share.value < SURE
    ]
    if unsure:
        notes.append(Note(text=f"The sign is not sure for: {', '.join(unsure)}.", level="warning"))
    ranking = answer.ranking_share
    if ranking is not None and ranking.value is not None and ranking.value < COIN:
        notes.append(
            Note(
                text="The order of the changes is not sure: the inputs do not decide it.",
                level="warning",
            )
        )
    return notes
