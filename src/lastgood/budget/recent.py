"""Which nodes look bad in the recent part of the window only: leads, for a node that became bad cannot be a lemon yet.

The hold-out of `lemons.py` names a node only when it was bad in both halves, so one that broke after half time is never
named, however often it fails since. Here three recent parts, fixed before anything is looked at (the last half, third
and quarter), are searched for nodes that are far above the fleet in both halves of that part, and the p values of all
nodes in all parts are adjusted together. What is found is said beside the verdict and never as one: a bad month looks
the same until the records go on.

Source: one-sided Poisson tail with false-discovery control over nodes times parts, Benjamini and Hochberg (1995).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.multiplicity import benjamini_hochberg

if TYPE_CHECKING:
    import numpy as np

PARTS = (1 / 2, 1 / 3, 1 / 4)
"""The recent parts, as shares of the window before its end."""
TIMES_FLEET = 3.0
"""At least this many times the fleet's rate over the part,"""
HALF_MIN = 2
"""with at least this many spells in each half of it,"""
RECENT_ALPHA = 0.01
"""at this level after the adjustment."""
SPELL_H = 24.0
"""Faults of a node that follow each other within a day are one spell: a burst counts once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentlyBad:
    """A node that looks bad since one of the fixed dates."""

    node: int
    """0-based."""
    since_h: float
    """Where the part begins, in hours of the window."""
    count: int
    """Its faults since then,"""
    total: int
    """and in the whole window."""
    times_fleet: float
    """Its rate since then over that of the fleet."""
    p_adjusted: float


def recently_bad(
    times_h: np.ndarray, node: np.ndarray, *, nodes: int, window_h: float
) -> tuple[RecentlyBad, ...]:
    """The nodes that look bad since one of the fixed dates, the surest first; each with its surest date.

    Assumes: nodes at risk to the window's end; spells of one node independent of each other under the null.
    Source: see the module.
    """
    import numpy as np
    from scipy.special import gammainc

    order = np.lexsort((times_h, node))
    times, node = times_h[order], node[order]
    # A new spell: another node, or a day and more since the fault before.
    is_new = (np.diff(times, prepend=-np.inf) > SPELL_H) | (np.diff(node, prepend=-1) != 0)
    listed, place = np.unique(node, return_inverse=True)

    def counted(begin_h: float, end_h: float, *, only: np.ndarray) -> np.ndarray:
        inside = only & (times > begin_h) & (times <= end_h)
        return np.bincount(place[inside], minlength=len(listed))

    whole = np.bincount(place, minlength=len(listed))
    every = np.ones(len(times), dtype=bool)
    p, rows = [], []
    for share in PARTS:
        since = window_h * (1 - share)
        middle = (since + window_h) / 2
        first = counted(since, middle, only=is_new)
        second = counted(middle, window_h, only=is_new)
        spells = first + second
        fleet = spells.sum() / nodes
        p.append(np.where(spells > 0, gammainc(np.maximum(spells, 1), max(fleet, 1e-300)), 1.0))
        holds = np.minimum(first, second) >= np.maximum(HALF_MIN, TIMES_FLEET * fleet / 2)
        holds &= spells >= TIMES_FLEET * fleet
        rows.append(
            (since, holds, counted(since, window_h, only=every), spells / max(fleet, 1e-300))
        )
    adjusted = benjamini_hochberg(np.concatenate(p), tests=nodes * len(PARTS)).reshape(
        len(PARTS), -1
    )
    chance = np.array([np.where(row[1], q, 1.0) for row, q in zip(rows, adjusted, strict=True)])
    best = chance.argmin(axis=0)
    found = [
        RecentlyBad(
            node=int(listed[i]),
            since_h=float(rows[best[i]][0]),
            count=int(rows[best[i]][2][i]),
            total=int(whole[i]),
            times_fleet=float(rows[best[i]][3][i]),
            p_adjusted=float(chance[best[i], i]),
        )
        for i in np.flatnonzero(chance.min(axis=0) < RECENT_ALPHA)
    ]
    return tuple(sorted(found, key=lambda f: (f.p_adjusted, f.node)))
