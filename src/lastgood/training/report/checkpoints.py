"""Checkpoints in the training section: what they cost the run, how long a write takes, and which ones failed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from lastgood.base.figures import FigureKind, measured
from lastgood.base.units import US_PER_S, format_duration
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence.quantiles import quantile_of
from lastgood.evidence.report import Cell, Chart, Column, Data, FigureRow, Note, Section, Table
from lastgood.evidence.time_part import POINT_COUNT_MAX, thinned, time_unit
from lastgood.evidence.wording import instant_text
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.walltime import WallState

KINDS: Final = (
    EventKind.CHECKPOINT_BEGIN,
    EventKind.CHECKPOINT_COMMIT,
    EventKind.CHECKPOINT_FAIL,
)
SOURCE: Final = "checkpoint events"
LATE: Final = "a checkpoint is due and is not begun"
"""What the supervisor notes when an interval is not kept."""
ROWS_MAX: Final = 20


class Write(NamedTuple):
    """One checkpoint from its begin to its end."""

    step: int | None
    begin_us: int
    end_us: int | None
    """None while no record ends it."""
    has_failed: bool
    bytes: int | None
    reason: str


def checkpoints_section(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """Overhead, durations and failures of checkpoints."""
    own = [e for e in in_effect(events) if e.run == run]
    writes, wall = checkpoint_writes(own), times.wall
    blocked_us = wall.totals_us[WallState.CHECKPOINT_BLOCKING]
    waits_us = blocking_waits_us(own)
    sections = len(waits_us)
    late = _late(own)
    if not writes and not sections:
        note = Note(level="missing", text="Checkpoints were not observed: neither a write nor a section that blocks for one is on record.")  # fmt: skip
        return Section(name="checkpoints", title="Checkpoints", notes=(note, *late))
    done = [w for w in writes if w.end_us is not None and not w.has_failed]
    failed = [w for w in writes if w.has_failed]
    still = [w for w in writes if w.end_us is None]
    took_us = [w.end_us - w.begin_us for w in done if w.end_us is not None]
    sizes = [w.bytes for w in done if w.bytes is not None]
    share = 100 * blocked_us / wall.window_us if wall.window_us else None

    def row(label: str, name: str, value: float | None, unit: str, n: int | None, source: str = SOURCE) -> FigureRow:  # fmt: skip
        figure = measured(name, value, unit, source=source, n=n, as_of_us=wall.as_of_us)
        return FigureRow(label=label, figure=figure)

    def quantile(label: str, name: str, at: float, values_us: Sequence[int]) -> FigureRow:
        figure = quantile_of(name, values_us, at, source=SOURCE, as_of_us=wall.as_of_us)
        return FigureRow(label=label, figure=figure)

    by_state = "ledger, wall time by state"
    return Section(
        name="checkpoints",
        title="Checkpoints",
        lead="What the job waited for is overhead; a write beside the training costs none of its time. "
        "Checkpoints that were begun without an end are neither committed nor failed.",
        figures=(
            row("Wall time blocked by checkpoints", "checkpoint overhead share", share, "%", sections or None, by_state),
            row("Time blocked by checkpoints", "checkpoint overhead", blocked_us, "us", sections or None, by_state),
            *((quantile("Time of a blocking checkpoint (median)", "blocking time p50", 0.5, waits_us),) if waits_us else ()),
            row("Checkpoints committed", "checkpoints", len(done), "", len(writes)),
            row("Checkpoints failed", "checkpoints failed", len(failed), "", len(writes)),
            row("Begun without an end on record", "checkpoints unfinished", len(still), "", len(writes)),
            quantile("Time of a write (median)", "checkpoint time p50", 0.5, took_us),
            quantile("Time of a write (p90)", "checkpoint time p90", 0.9, took_us),
            quantile("Time between commits (median)", "checkpoint spacing", 0.5, _spacing_us(done)),
            row("Size of the last one", "checkpoint bytes", sizes[-1] if sizes else None, "bytes", len(sizes)),
        ),
        charts=_chart(writes, times),
        notes=late,
        tables=(_failures(failed),) if failed else (),
    )  # fmt: skip


def _late(own: Sequence[Event]) -> tuple[Note, ...]:
    """That the interval was not kept, why, and by how much."""
    told = [e.body for e in own if e.body.get("text") == LATE]
    if not told:
        return ()
    reasons = "; ".join(sorted({str(body.get("reason")) for body in told}))
    every_us = told[-1].get("every_us")
    asked = f" of {format_duration(every_us)}" if isinstance(every_us, int) else ""
    begun = [us for e in own if isinstance(us := e.body.get("late_us"), int)]
    longest = f", {format_duration(max(begun))} at most" if begun else ", and was not begun"
    text = f"The interval{asked} was not kept: a checkpoint that was due had to wait for more than half of it ({reasons}){longest}."
    return (Note(level="warning", text=text),)


def blocking_waits_us(own: Sequence[Event]) -> list[int]:
    """How long the job stood in each section that it declared as a blocking checkpoint, in the order of their ends."""
    began: dict[tuple[object, tuple[int, ...]], int] = {}
    found: list[int] = []
    for event in own:
        if event.body.get("state") != WallState.CHECKPOINT_BLOCKING:
            continue
        key = (event.body.get("name"), event.ranks)
        if event.kind == EventKind.SECTION_BEGIN:
            began[key] = time_of(event)
        elif event.kind == EventKind.SECTION_END and key in began:
            found.append(time_of(event) - began.pop(key))
    return found


def checkpoint_writes(own: Sequence[Event]) -> list[Write]:
    """Every write in the order of its begin; an end belongs to the last open begin of its step.

    A begin that is still open when its step begins again was cut off, and a write without a begin took unknown time.
    """
    found: list[Write] = []
    open_at: dict[object, int] = {}
    for event in own:
        if event.kind not in KINDS:
            continue
        step = event.body.get("step")
        step = step if isinstance(step, int) else None
        if event.kind == EventKind.CHECKPOINT_BEGIN:
            open_at[step] = len(found)
            found.append(Write(step, time_of(event), None, False, None, ""))
            continue
        size, reason = event.body.get("bytes"), event.body.get("reason")
        at = open_at.pop(step, None)
        begin_us = time_of(event) if at is None else found[at].begin_us
        write = Write(
            step=step,
            begin_us=begin_us,
            end_us=time_of(event),
            has_failed=event.kind == EventKind.CHECKPOINT_FAIL,
            bytes=size if isinstance(size, int) else None,
            reason=str(reason) if reason else "",
        )
        if at is None:
            found.append(write)
        else:
            found[at] = write
    return found


def _spacing_us(done: Sequence[Write]) -> list[int]:
    ends = sorted(w.end_us for w in done if w.end_us is not None)
    return [b - a for a, b in itertools.pairwise(ends)]


def _chart(writes: Sequence[Write], times: RunTimes) -> tuple[Chart, ...]:
    """How long each write took; a picture of one point says nothing."""
    wall, unit = times.wall, time_unit(times.wall.window_us)
    ended = [w for w in writes if w.end_us is not None]
    if len(ended) < 2:
        return ()
    good = thinned([w for w in ended if not w.has_failed], POINT_COUNT_MAX)
    bad = [w for w in ended if w.has_failed][:POINT_COUNT_MAX]
    rows = tuple(
        (
            (w.begin_us - wall.start_us) / unit.us,
            ((w.end_us or w.begin_us) - w.begin_us) / US_PER_S,
            "failed" if w.has_failed else "committed",
        )
        for w in (*good, *bad)
    )
    drawn = len(good) + len(bad)
    return (
        Chart(
            name="checkpoint-time",
            title="Time of each checkpoint",
            form="line",
            alt=f"{len(ended)} checkpoints over the run, {sum(w.has_failed for w in ended)} of them failed.",
            caption="From its begin to its commit or failure, at the time of its begin."
            + ("" if drawn == len(ended) else f" {drawn} of {len(ended)}, evenly picked."),
            data=Data(
                kind=FigureKind.MEASURED,
                rows=rows,
                columns=(
                    Column(title="time since start", unit=unit.name),
                    Column(title="write", unit="s"),
                    Column(title="End", is_number=False),
                ),
            ),
        ),
    )


def _failures(failed: Sequence[Write]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            "unknown" if w.step is None else str(w.step),
            instant_text(w.end_us),
            w.reason or "not recorded",
        )
        for w in failed[-ROWS_MAX:]
    ]
    return Table(
        name="checkpoint-failures",
        title="Checkpoints that failed",
        columns=tuple(Column(title=t, is_number=False) for t in ("Step", "When", "Why")),
        rows=tuple(rows),
        note="" if len(failed) <= ROWS_MAX else f"The last {ROWS_MAX} of {len(failed)}.",
    )
