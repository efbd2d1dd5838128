"""What is remembered about the pace of one rank, and whether it changed.

A pace is a logarithm: how many times slower than its peers the rank was in one step, 0 when equal. Ranks
differ by the nature of their work (rank 0 logs, one has the longer pipeline stage), so what counts is not
whether a rank is slower than its peers but whether it became slower than it used to be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAD_TO_SIGMA = 1.4826
"""Turns a median absolute deviation into a standard deviation for a normal distribution."""
_USUAL_QUANTILE = 0.9
_SPREAD_MIN = 0.02
"""Paces that differ by less than two per cent are equal: a spread of zero would call anything a change."""
_GAIN_FACTOR = 3.0
"""How many spreads per unit of log(n) a split has to save before it counts as a change."""


class Mark(NamedTuple):
    """One rank in one step."""

    step: int
    level: float
    """Logarithm of its time over the median of its peers', without what it waited for a processor."""
    is_slow: bool
    excess_us: int
    """How much longer the whole job took because of it."""
    seen_us: int
    waited_ratio: float | None = 0.0
    """Share of its own time in which it was ready to run without a processor; None where nobody counts it."""
    is_starved: bool = False
    """True where nothing but that wait makes it slow."""


class Usual(NamedTuple):
    """The level that is usual for a rank, and its robust standard deviation."""

    level: float
    spread: float
    high: float
    """Nine of ten of its usual steps were not slower than this."""


class Change(NamedTuple):
    """Where a row of levels moved, and from what to what."""

    index: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """The memory of one rank: what is usual, the last steps, and what its slowness has cost."""

    usual: tuple[float, ...] = ()
    recent: tuple[Mark, ...] = ()
    began: Mark | None = None
    """The first slow step since which it has been slow; None when it is not."""
    lost_us: int = 0
    """Time that the job lost by it since then; 0 when it is not slow."""

    def usual_level(self, *, count_min: int) -> Usual | None:
        """The usual level, or None while too few steps were seen."""
        if len(self.usual) < count_min:
            return None
        ordered = sorted(self.usual)
        level = statistics.median(ordered)
        spread = MAD_TO_SIGMA * statistics.median([abs(value - level) for value in ordered])
        return Usual(level, spread, ordered[math.ceil(_USUAL_QUANTILE * len(ordered)) - 1])

    def is_persistent(self, slow_count_min: int) -> bool:
        """Whether enough of the last steps were slow."""
        return sum(mark.is_slow for mark in self.recent) >= slow_count_min

    def is_persistently_starved(self, slow_count_min: int) -> bool:
        """Whether as many were slow counting those that only the wait for a processor made slow, and most are such."""
        starved_count = sum(mark.is_starved for mark in self.recent)
        slow_count = sum(mark.is_slow for mark in self.recent)
        return starved_count + slow_count >= slow_count_min and starved_count > slow_count

    @property
    def is_wait_known(self) -> bool:
        """Whether of every slow step is known how long the rank waited for a processor."""
        return all(mark.waited_ratio is not None for mark in self.recent if mark.is_slow)

    def after(
        self, mark: Mark, *, window_count: int, slow_count_min: int, usual_count: tuple[int, int]
    ) -> RankPace:
        """The memory after one more step.

        A step that leaves the window becomes usual, unless the rank is slow at the time, or half of its window
        and that step are: a fault must not teach the detector to expect it. Before enough is known, everything
        teaches.
        """
        was_slow = self.is_persistent(slow_count_min)
        recent = (*self.recent, mark)
        left, kept = recent[:-window_count], recent[-window_count:]
        is_slow = sum(mark.is_slow for mark in kept) >= slow_count_min
        least, most = usual_count
        usual = self.usual
        if len(usual) < least:
            usual = (*usual, *(old.level for old in left))
        elif not is_slow:
            # Half of a window slow is more than noise: a fault that comes and goes must not become usual either.
            is_doubtful = 2 * sum(old.is_slow for old in recent) >= window_count
            usual = (*usual, *(old.level for old in left if not (old.is_slow and is_doubtful)))
        usual = usual[-most:]
        began, lost_us = None, 0
        if is_slow and was_slow:
            began, lost_us = self.began, self.lost_us + mark.excess_us
        elif is_slow:
            began = next(m for m in kept if m.is_slow)
            lost_us = sum(m.excess_us for m in kept)
        return RankPace(usual=usual, recent=kept, began=began, lost_us=lost_us)


def find_change(levels: Sequence[float], *, least_count: int) -> Change | None:
    """The one place where the level moved, if splitting there describes the row better by far.

    Each part is described by its median, the misfit is the sum of absolute deviations, and a split has to
    save more than `3 x spread x log(n)`. Medians instead of means: one long step is no change of level.
    """
    count = len(levels)
    best: Change | None = None
    best_cost = math.inf
    for index in range(least_count, count - least_count + 1):
        before, after = statistics.median(levels[:index]), statistics.median(levels[index:])
        cost = _misfit(levels[:index], before) + _misfit(levels[index:], after)
        if cost < best_cost:
            best_cost, best = cost, Change(index, before, after)
    if best is None:
        return None
    rest = [abs(v - (best.before if i < best.index else best.after)) for i, v in enumerate(levels)]
    spread = max(_SPREAD_MIN, MAD_TO_SIGMA * statistics.median(rest))
    saved = _misfit(levels, statistics.median(levels)) - best_cost
    return best if saved > _GAIN_FACTOR * spread * math.log(count) else None


def _misfit(levels: Sequence[float], centre: float) -> float:
    return math.fsum(abs(value - centre) for value in levels)
