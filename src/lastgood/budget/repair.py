"""Which repairs did not hold: the share of repaired nodes that fault again soon, against chance.

A repair is an end of a fault at least one horizon before the window's end, so that each had its whole chance to
fail again. A bounce is a new fault of the same node strictly later and within the horizon. The baseline is what a
node with its average rate would do: mixing up *often repaired* with *badly repaired* is thereby seen.

Source: definition of this project; baseline 1 - exp(-rate x horizon) of a Poisson process per node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.finding import ALPHA, EVENTS_MIN, Finding, format_p, too_few

if TYPE_CHECKING:
    import numpy as np

DAY_H, WEEK_H = 24.0, 168.0


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
    horizon_h: float = DAY_H,
    level: float = 0.95,
) -> Bounces:
    """The bounce rate within a horizon. `end_h` is NaN for a fault that is still open.

    Assumes: the end of a fault is the end of its repair; nodes at risk all the time for the baseline.
    Source: definition of this project; binomial interval of Clopper and Pearson (1934).
    """
    import numpy as np

    begin, end = np.asarray(begin_h, dtype=np.float64), np.asarray(end_h, dtype=np.float64)
    node = np.asarray(node, dtype=np.int64)
    order = np.lexsort((begin, node))
    is_repair = np.isfinite(end) & (end <= window_h - horizon_h)
    following = _next_begin(begin[order], node[order], end[is_repair], node[is_repair])
    is_bounce = following <= end[is_repair] + horizon_h
    repairs, count = int(is_repair.sum()), int(is_bounce.sum())
    baseline = -math.expm1(-len(begin) / max(nodes, 1) / window_h * horizon_h)
    of_node = np.bincount(node[is_repair][is_bounce], minlength=nodes)
    worst = np.argsort(-of_node, kind="stable")
    worst = worst[: int((of_node > 0).sum())]
    lo, hi = clopper_pearson(count, repairs, level=level) if repairs else (None, None)
    return Bounces(
        horizon_h=horizon_h,
        repairs=repairs,
        bounces=count,
        lo=lo,
        hi=hi,
        baseline=baseline,
        nodes=worst,
        bounces_of_node=of_node[worst],
        level=level,
        finding=_judge(count, repairs, baseline, horizon_h),
    )


def _next_begin(
    begin_sorted: np.ndarray, node_sorted: np.ndarray, end: np.ndarray, node: np.ndarray
) -> np.ndarray:
    """For every repair the first begin of the same node strictly after it, or infinity.

    One search over pairs (node, time), made one number by ranks: faults and repairs are sorted together.
    """
    import numpy as np

    n = len(begin_sorted)
    # Repairs come after faults of the same instant, so that what follows is strictly later.
    together = np.lexsort(
        (
            np.concatenate((np.zeros(n), np.ones(len(end)))),
            np.concatenate((begin_sorted, end)),
            np.concatenate((node_sorted, node)),
        )
    )
    faults_before = np.cumsum(together < n)
    is_repair = together >= n
    following = np.empty(len(end), dtype=np.int64)
    following[together[is_repair] - n] = faults_before[is_repair]
    inside = np.minimum(following, n - 1) if n else following
    found = (following < n) & (node_sorted[inside] == node) if n else np.zeros(len(end), dtype=bool)
    return np.where(found, begin_sorted[inside] if n else np.inf, np.inf)


def clopper_pearson(count: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share.

    Assumes: independent trials with one chance.
    Source: Clopper and Pearson (1934).
    """
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    lo = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    hi = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return lo, hi


def _judge(count: int, repairs: int, baseline: float, horizon_h: float) -> Finding:
    from scipy.special import betainc

    span = "day" if horizon_h == DAY_H else "week" if horizon_h == WEEK_H else f"{horizon_h:g} h"
    null = f"a repaired node faults within one {span} no more often than any node"
    source, assumes = (
        "binomial test against a Poisson baseline",
        "repairs independent of each other",
    )
    test = f"bounce within one {span}"
    if repairs < EVENTS_MIN:
        return too_few(test, null=null, n=repairs, source=source, assumes=assumes)
    p = float(betainc(count, repairs - count + 1, baseline)) if count else 1.0
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
