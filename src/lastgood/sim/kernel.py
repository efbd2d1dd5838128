"""The discrete-event kernel: what happens next, in one total order, from one seed.

Time jumps from event to event. Events at the same microsecond happen in the order in which they were
scheduled, so a seed gives the same run on every machine. Randomness comes from named streams only: a model
that draws more often for one purpose does not change what another purpose draws.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from lastgood.base.rng import stream


@dataclass(slots=True)
class Scheduled:
    """An event that is due; `cancel` makes it nothing."""

    due_us: int
    name: str
    action: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Takes the event out; cancelling twice, or after it happened, changes nothing."""
        self.is_cancelled = True


class EventBudgetExceededError(RuntimeError):
    """A simulated world did not come to rest within its bound of events."""


class Kernel:
    """A clock and a queue. It reads like `base.clock.Clock`, but time passes only by events."""

    __slots__ = ("_now_us", "_order", "_queue", "_streams", "event_count", "seed")

    def __init__(self, seed: int, *, start_us: int = 0) -> None:
        """Begin at `start_us` with nothing scheduled."""
        self.seed = seed
        self.event_count = 0
        self._now_us = start_us
        self._order = 0
        self._queue: list[tuple[int, int, Scheduled]] = []
        self._streams: dict[str, random.Random] = {}  # noqa: TID251  a type

    @property
    def now_us(self) -> int:
        """The present simulated time."""
        return self._now_us

    def stream(self, name: str) -> random.Random:  # noqa: TID251  a type
        """The named random stream of this seed; the same object every time."""
        if name not in self._streams:
            self._streams[name] = stream(self.seed, "sim", name)
        return self._streams[name]

    def after(self, delay_us: int, name: str, action: Callable[[], None]) -> Scheduled:
        """Schedule an action; a delay of zero comes after everything already due now."""
        if delay_us < 0:
            raise ValueError(f"kernel: {name}: found a delay of {delay_us} us, needs 0 or more")
        event = Scheduled(self._now_us + delay_us, name, action)
        self._order += 1
        heapq.heappush(self._queue, (event.due_us, self._order, event))
        return event

    def run(
        self,
        *,
        until_us: int,
        event_count_max: int,
        after_each: Callable[[str], None] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> int:
        """Let events happen until the time, an empty queue, or `is_over`; returns the time reached.

        Raises:
            EventBudgetExceededError: More than `event_count_max` events happened: a livelock.
        """
        while self._queue and self._queue[0][0] <= until_us:
            if is_over is not None and is_over():
                return self._now_us
            due_us, _, event = heapq.heappop(self._queue)
            if event.is_cancelled:
                continue
            if self.event_count >= event_count_max:
                raise EventBudgetExceededError(
                    f"seed {self.seed}: {event_count_max} events by {self._now_us} us"
                )
            self._now_us = due_us
            self.event_count += 1
            event.action()
            if after_each is not None:
                after_each(event.name)
        if is_over is None or not is_over():
            self._now_us = max(self._now_us, until_us)
        return self._now_us
