"""Which repairs did not hold: the share of repaired nodes that fault again soon, against chance.

A repair is an end of a fault with a whole observed horizon after it (before the window's end, and before any break in
observation), so that each had its whole chance to be seen to fail again. A bounce is a new fault of the same node strictly later and within the horizon. The baseline is what a
node with its average rate would do: mixing up *often repaired* with *badly repaired* is thereby seen.

Source: definition of this project; baseline 1 - exp(-rate x horizon) of a Poisson process per node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.budget.finding import ALPHA, EVENTS_MIN, Finding, format_p, too_few
from lastgood.budget.share import binomial_tail, clopper_pearson

if TYPE_CHECKING:
    import numpy as np

DAY_H, WEEK_H = 24.0, 168.0
US_PER_H = 3_600_000_000


class Held(NamedTuple):
    """One row per ended fault, by node and time."""

    hours: np.ndarray
    """Until the node's next fault; infinity where none follows."""
    end_h: np.ndarray
    node: np.ndarray
    tick_h: float
    """What times were rounded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounces:
    """Repairs and how many of them did not hold for the horizon."""

    horizon_h: float
    repairs: int
    bounces: int
    lo: float | None
    """Exact binomial interval of the share."""
    hi: float | None
    baseline: float
    """Share expected when faults do not know of repairs."""
    nodes: np.ndarray
    """0-based nodes with at least one bounce, most bounces first."""
    bounces_of_node: np.ndarray
    level: float
    finding: Finding

    @property
    def share(self) -> float | None:
        """Bounces over repairs; None without repairs."""
        return self.bounces / self.repairs if self.repairs else None


def bounces(
    begin_h: np.ndarray,
    end_h: np.ndarray,
    node: np.ndarray,
    *,
    nodes: int,
    window_h: float,
    breaks_h: tuple[float, ...] = (),
    horizons_h: tuple[float, ...] = (DAY_H, WEEK_H),
    level: float = 0.95,
) -> tuple[Bounces, ...]:
    """The bounce rate within each horizon. `end_h` is NaN for a fault that is still open.

    `breaks_h` are the hours at which the clock jumps over unobserved time: a repair whose horizon reaches into it
    neither held nor bounced, for nobody looked.

    Assumes: the end of a fault is the end of its repair; nodes at risk all the time for the baseline.
    Source: definition of this project; binomial interval of Clopper and Pearson (1934).
    """
    import numpy as np

    begin, end = np.asarray(begin_h, dtype=np.float64), np.asarray(end_h, dtype=np.float64)
    node = np.asarray(node, dtype=np.int64)
    held = time_held(begin, end, node)
    per_hour = len(begin) / max(nodes, 1) / window_h
    return tuple(
        _within(h, held, per_hour, stretch_ends_h=(*breaks_h, window_h), level=level)
        for h in horizons_h
    )


def _within(
    horizon_h: float,
    held: Held,
    per_hour: float,
    *,
    stretch_ends_h: tuple[float, ...],
    level: float,
) -> Bounces:
    import numpy as np

    # Half a tick of slack: times were rounded to whole ones.
    ends = np.asarray(stretch_ends_h)
    stretch = np.minimum(np.searchsorted(ends, held.end_h - held.tick_h / 2), len(ends) - 1)
    is_repair = held.end_h <= ends[stretch] - horizon_h + held.tick_h / 2
    is_bounce = is_repair & (held.hours <= horizon_h + held.tick_h / 2)
    repairs, count = int(is_repair.sum()), int(is_bounce.sum())
    baseline = -math.expm1(-per_hour * horizon_h)
    of_node = np.bincount(held.node[is_bounce])
    worst = np.argsort(-of_node, kind="stable")[: int((of_node > 0).sum())]
    within = clopper_pearson(count, repairs, level=level) if repairs else None
    return Bounces(
        horizon_h=horizon_h,
        repairs=repairs,
        bounces=count,
        lo=within.lo if within else None,
        hi=within.hi if within else None,
        baseline=baseline,
        nodes=worst,
        bounces_of_node=of_node[worst],
        level=level,
        finding=_judge(count, repairs, baseline, horizon_h),
    )


def time_held(begin_h: np.ndarray, end_h: np.ndarray, node: np.ndarray) -> Held:
    """For every ended fault the time until the same node faults again strictly later.

    Times become whole microseconds, as in the ledger, so that node and time make one exact integer and one sorted
    search answers for all nodes at once.
    """
    import numpy as np

    ended = np.isfinite(end_h)
    done_h = end_h[ended]
    last_us = int(max(begin_h.max(initial=0.0), done_h.max(initial=0.0)) * US_PER_H) + 1
    # Very many nodes over very many years do not fit one integer in microseconds: the tick grows.
    tick_us = 1 + last_us * (int(node.max(initial=0)) + 1) // 2**61
    ticks_per_h, width = US_PER_H / tick_us, last_us // tick_us + 2
    faults = node * width + np.rint(begin_h * ticks_per_h).astype(np.int64)
    faults.sort()
    repairs = node[ended] * width + np.rint(done_h * ticks_per_h).astype(np.int64)
    # In order, one search after the other stays in the cache: ten times faster on ten million repairs.
    repairs.sort()
    following = np.searchsorted(faults, repairs, side="right")
    after = np.append(faults, np.iinfo(np.int64).max)[following]
    repaired, at = np.divmod(repairs, width)
    is_same = (following < len(faults)) & (after // width == repaired)
    return Held(
        hours=np.where(is_same, (after - repairs) / ticks_per_h, np.inf),
        end_h=at / ticks_per_h,
        node=repaired,
        tick_h=1 / ticks_per_h,
    )


def _judge(count: int, repairs: int, baseline: float, horizon_h: float) -> Finding:
    span = "day" if horizon_h == DAY_H else "week" if horizon_h == WEEK_H else f"{horizon_h:g} h"
    null = f"a repaired node faults within one {span} no more often than any node"
    source, assumes = (
        "binomial test against a Poisson baseline",
        "repairs independent of each other",
    )
    test = f"bounce within one {span}"
    if repairs < EVENTS_MIN:
        return too_few(test, null=null, n=repairs, source=source, assumes=assumes)
    p = binomial_tail(count, repairs, baseline)
    is_rejected = p < ALPHA
    share = count / repairs
    times = f", {share / baseline:.0f} times as many" if share > 2 * baseline else ""
    return Finding(
        test=test,
        null=null,
        statistic=share,
        statistic_name="share",
        p=p,
        n=repairs,
        is_rejected=is_rejected,
        sentence=(
            f"{count} of {repairs} repairs ({share:.1%}) did not hold for one {span}; chance alone gives "
            f"{baseline:.1%}{times} ({format_p(p)})."
        ),
        limit="A new fault soon after a repair may be another fault; it does not prove that the repair was bad.",
        source=source,
        assumes=assumes,
    )
