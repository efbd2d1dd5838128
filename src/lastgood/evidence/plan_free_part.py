"""The answer for checkpoints that blocked nothing: no interval is best, and what writing all the time would lose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lastgood.base.figures import Figure, combine
from lastgood.base.units import US_PER_S, format_duration
from lastgood.evidence.report import FigureRow, Headline, Note, Section

if TYPE_CHECKING:
    from lastgood.budget.scenario import FreeCheckpoints, Scenario

LOST_WRITES = 1.5
"""Writes behind the newest whole checkpoint, on average: one that is under way, and the one before it was as old."""
WASTE_MAX = 0.15
"""Above this share a first-order budget is too far off to be printed."""
_ASSUMES = (
    "one checkpoint is begun as soon as the one before is written",
    "interruptions come at any moment of a write alike",
)


def free_section(scenario: Scenario, free: FreeCheckpoints) -> Section:
    """What was measured, which interval that implies, and what to type where checkpoints do block."""
    every = f"{max(1, math.ceil(float(free.write.value or 0) / US_PER_S))}s"
    took = format_duration(round(float(free.write.value or 0)))
    return Section(
        name="plan",
        title="Checkpoint plan",
        headline=Headline(
            state="unknown",
            sentence=(
                f"{free.cost.n} checkpoints blocked the job for 0 s: what costs nothing has no best interval. "
                f"Write them as often as the writer can, one every {took}."
            ),
        ),
        figures=tuple(_rows(scenario, free)),
        notes=(
            Note(
                text="Young's and Daly's intervals trade the time for which a checkpoint blocks against work that is lost; "
                "at a cost of 0 s they are 0 s."
            ),
            Note(text=f"To write that often: lastgood run --checkpoint-every {every}"),
            Note(
                text="For checkpoints that do block, type what one costs: --checkpoint-cost 30s makes the usual plan."
            ),
            Note(
                text="What a write takes of disk, network and processors beside the job is no part of this: it would "
                "show in longer steps.",
                level="warning",
            ),
            *(Note(text=f"{note[0].upper()}{note[1:]}.") for note in scenario.notes),
        ),
    )


def _rows(scenario: Scenario, free: FreeCheckpoints) -> list[FigureRow]:
    lost = combine(
        [free.write],
        lambda write: LOST_WRITES * write,
        name="work_lost",
        unit="us",
        source="1.5 writes",
        assumptions=_ASSUMES,
    )
    interval = combine(
        [free.write],
        lambda write: write,
        name="interval",
        unit="us",
        source="the time of one write",
        assumptions=_ASSUMES[:1],
    )
    rows = [
        FigureRow(
            label="Time for which a checkpoint blocks the job (C)", figure=free.cost, is_key=True
        ),
        FigureRow(label="Time until one is written (W)", figure=free.write, is_key=True),
        FigureRow(label="Interval τ that this implies", figure=interval, is_key=True),
        FigureRow(label="Work lost at an interruption then, on average", figure=lost, is_key=True),
    ]
    useful = _useful(scenario, lost)
    if useful is not None:
        rows.append(
            FigureRow(label="Useful fraction E then, first order", figure=useful, is_key=True)
        )
    return rows


def _useful(scenario: Scenario, lost: Figure) -> Figure | None:
    """One less the share that interruptions take; None without a rate, or where the first order means nothing."""
    if not scenario.has("mtti"):
        return None
    useful = combine(
        [scenario.figure("mtti"), lost, scenario.figure("detection"), scenario.figure("recovery")],
        lambda mean, *parts: 1 - sum(parts) / mean,
        name="useful",
        unit="ratio",
        source="1 - (1.5 W + D + R)/M",
        assumptions=("losses are small against M",),
    )
    return useful if float(useful.value or 0) >= 1 - WASTE_MAX else None
