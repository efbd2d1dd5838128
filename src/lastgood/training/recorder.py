"""From what happened in a run to events in its ledger: the only writer of a training run.

Every event carries the run, the attempt, the versions and the topology. Accepted steps are recorded in chunks with
one time each, so that later the wall time can be split to the microsecond; a chunk is always written before the
event that ends it. What the loop records is monotonic time, which is turned into wall time here.

All times of a run are on one time base (`base.clock.RunClock`): the wall clock of its start, carried on by the
monotonic clock. A wall clock that jumps is an event of the ledger and changes no duration in it.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import RunClock
from lastgood.ledger.event import Event, new_event

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from lastgood.base.clock import Clock
    from lastgood.ledger.writer import LedgerWriter, Outage
    from lastgood.training.metrics.page import RunMetrics
    from lastgood.training.resuming.life import LifePage

STEPS_PER_CHUNK = 64
CLOCK_JUMP_US = 1_000_000
"""The wall clock has jumped when it moved this far against the monotonic clock since the last word about it."""
_CLOCK_LOOK_US = 1_000_000
_CHUNK_AGE_US = 5_000_000
"""A chunk is written after this time even when it is short, so that a reader of a live run sees it move."""


class Recorder:
    """Writes the events of one run."""

    def __init__(
        self,
        writer: LedgerWriter,
        *,
        clock: Clock,
        run_id: str,
        versions: Mapping[str, str],
        topology: str,
        listener: Callable[[Event], None] | None = None,
        metrics: RunMetrics | None = None,
    ) -> None:
        self._writer = writer
        self.clock = clock if isinstance(clock, RunClock) else RunClock(clock)
        self._noted_jump_us = 0
        self._looked_us = self.clock.monotonic_us()
        self._run_id = run_id
        self._listener = listener
        self._metrics = metrics
        self.attempt = 1
        self.versions = dict(versions)
        self._topology = topology
        self._chunk_first = 0
        self._chunk_began_us = 0
        self._chunk_ended_us: list[int] = []
        self._chunk_losses: list[float | None] = []
        self._life: LifePage | None = None
        self._held: list[Callable[[], None]] | None = None
        """What is written later; None while everything is written at once."""

    def follow(self, life: LifePage) -> None:
        """Keep the open chunk on this page too, where it outlives this process."""
        self._life = life

    @property
    def outage(self) -> Outage | None:
        """Set while the ledger cannot be written."""
        return self._writer.outage

    def wall_us(self, monotonic_us: int) -> int:
        """The wall time of a monotonic instant of this host."""
        return self.clock.wall_of_us(monotonic_us)

    @property
    def step_began_us(self) -> int:
        """Monotonic time at which the next step to record began: where the one before it ended."""
        began_us = self._chunk_ended_us[-1] if self._chunk_ended_us else self._chunk_began_us
        return began_us - self.clock.wall_of_us(0)

    def watch_clock(self) -> None:
        """Record it when the wall clock jumped; asked once a turn, looks once a second."""
        now_us = self.clock.monotonic_us()
        if now_us - self._looked_us < _CLOCK_LOOK_US:
            return
        self._looked_us = now_us
        moved_us = self.clock.moved_us()
        jump_us = moved_us - self._noted_jump_us
        if abs(jump_us) < CLOCK_JUMP_US:
            return
        self._noted_jump_us = moved_us
        self.record(
            "annotation",
            body={
                "what": "clock.jump",
                "jump_us": jump_us,
                "moved_us": moved_us,
                "text": "the wall clock jumped, or the host was suspended; all times of this run stay on the "
                "time base of its start, and no limit rests on the wall clock",
            },
        )

    def record(self, kind: str, **fields: Any) -> None:
        """Append one event; returns without waiting for the disk."""
        if kind != "step":
            self.close_chunk()
        fields.setdefault("attempt", self.attempt)
        if self._held is not None:
            fields.setdefault("t_observed_us", self.clock.wall_us())
        self._in_turn(partial(self._write, kind, fields))

    @contextmanager
    def held(self) -> Generator[None]:
        """Write what is recorded meanwhile at the end, each event with the time at which it was recorded."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for write in held:
                write()

    def write_held(self) -> None:
        """Write what is held so far: somebody is about to be told of it, or this takes long."""
        if self._held:
            held, self._held = self._held, []
            for write in held:
                write()

    def _in_turn(self, write: Callable[[], None]) -> None:
        """Now, or behind what is held: the metrics count a step with the sections that ended before it."""
        if self._held is None:
            write()
        else:
            self._held.append(write)

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        event = new_event(
            kind,
            clock=self.clock,
            run=self._run_id,
            versions=self.versions,
            topology=self._topology,
            **fields,
        )
        self._writer.submit(event)
        if self._metrics is not None:
            self._metrics.hear(event)
        if self._listener is not None:
            self._listener(event)

    def record_from_loop(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append what the recovery loop asks for; its instants are monotonic."""
        converted = dict(fields)
        for name in ("t_occurred_us", "t_observed_us"):
            value = converted.get(name)
            if isinstance(value, int):
                converted[name] = self.wall_us(value)
        self.record(kind, **converted)

    def begin_steps(self, *, first: int, began_us: int | None = None) -> None:
        """The next accepted step is `first` and begins now, or began at that wall time, for who came late."""
        self.close_chunk()
        self._chunk_first = first
        self._chunk_began_us = self.clock.wall_us() if began_us is None else began_us
        if self._metrics is not None:
            self._in_turn(partial(self._metrics.steps_begin, first))

    def step_done(self, step: int, *, done_wall_us: int, loss: float | None = None) -> None:
        """One more accepted step, published by all ranks; `loss` is the mean over the ranks where they report one."""
        if not self._chunk_ended_us:
            self._chunk_first = step
            if self._life is not None:
                self._life.begin_tail(first=step, began_us=self._chunk_began_us)
        before_us = self._chunk_ended_us[-1] if self._chunk_ended_us else self._chunk_began_us
        self._chunk_ended_us.append(max(done_wall_us, self._chunk_began_us))
        if self._life is not None:
            self._life.add_to_tail(ended_us=self._chunk_ended_us[-1], loss=loss)
        if self._metrics is not None:
            took_us = max(0, self._chunk_ended_us[-1] - before_us)
            self._in_turn(partial(self._metrics.step_done, step, took_us=took_us))
        self._chunk_losses.append(loss)
        is_old = done_wall_us - self._chunk_began_us > _CHUNK_AGE_US
        if len(self._chunk_ended_us) >= STEPS_PER_CHUNK or is_old:
            self.close_chunk()

    def close_chunk(self) -> None:
        """Write the open chunk of steps, if any; the next chunk begins where it ends."""
        ended = self._chunk_ended_us
        if not ended:
            return
        losses = self._chunk_losses
        self._chunk_ended_us, self._chunk_losses = [], []
        body: dict[str, Any] = {
            "first": self._chunk_first,
            "last": self._chunk_first + len(ended) - 1,
            "began_us": self._chunk_began_us,
            "ended_us": ended,
        }
        if all(loss is not None and math.isfinite(loss) for loss in losses):
            body["loss"] = losses
        began_us, self._chunk_began_us = self._chunk_began_us, ended[-1]
        self.record("step", t_occurred_us=began_us, body=body)
