"""Mean cumulative function: events per node up to each time, with bounds that hold when nodes differ.

Pooling all nodes into one Poisson count understates the uncertainty by about a factor of 1.6 in half-width on fleets
with lemon nodes. Here the node is the unit: each contributes its own deviation from the mean (a sandwich), so
neither equal nodes nor independent events are assumed, only independent nodes.

Source: Nelson (2003), Recurrent Events Data Analysis; robust variance, Lawless and Nadeau (1995) equation 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.budget.share import Band

if TYPE_CHECKING:
    import numpy as np

POINTS_MIN, POINTS_MAX, CELLS_MAX = 20, 200, 4_000_000
"""A curve is computed at this many times; at the times of the events when there are fewer. Nodes times times are kept
in memory, so very many nodes get fewer of them."""
NODES_MIN, NODES_MANY = 6, 100
"""With fewer nodes the bounds rest on too few deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCumulative:
    """Events per node up to each time."""

    times_h: np.ndarray
    value: np.ndarray
    lo: np.ndarray
    """Lower bound; NaN where there is none (fewer than six nodes, or no event yet)."""
    hi: np.ndarray
    se: np.ndarray
    nodes: int
    events: int
    level: float
    method: str
    sentence: str
    limit: str

    @property
    def end(self) -> float:
        """Events per node over the whole window."""
        return float(self.value[-1]) if len(self.value) else 0.0


class _Curve(NamedTuple):
    """Events per node with their standard error."""

    value: np.ndarray
    se: np.ndarray


def mean_cumulative(
    times_h: np.ndarray,
    node: np.ndarray,
    *,
    nodes: int,
    window_h: float,
    enter_h: np.ndarray | None = None,
    leave_h: np.ndarray | None = None,
    level: float = 0.95,
) -> MeanCumulative:
    """The curve with its bounds.

    `node` holds the 0-based node of every event; `nodes` counts all nodes at risk, those without an event included.
    `enter_h` and `leave_h` (one per node) say when each was at risk; the whole window when left out, and for the nodes
    beyond their length.

    Assumes: nodes independent of each other; being at risk does not depend on the events to come.
    Source: Lawless and Nadeau (1995); bounds on the logarithm, so that they stay above zero, with the normal quantile,
    and Student's below a hundred nodes, where the difference shows.
    """
    import numpy as np

    times, node = np.asarray(times_h, dtype=np.float64), np.asarray(node, dtype=np.int64)
    if nodes < 1 or (len(node) and (node.min() < 0 or node.max() >= nodes)):
        raise BadInput(
            "every event needs a node at risk",
            found=f"{nodes} nodes",
            needs="all nodes, also those without events",
        )
    order = np.argsort(times, kind="stable")
    times, node = times[order], node[order]
    known = enter_h if enter_h is not None else leave_h
    listed = len(np.unique(node)) if known is None else len(known)
    at = _moments(times, window_h, listed)
    if known is None:
        value, se = _equal_risk(times, node, nodes, at)
    else:
        enter = np.zeros(listed) if enter_h is None else np.asarray(enter_h, dtype=np.float64)
        leave = (
            np.full(listed, window_h) if leave_h is None else np.asarray(leave_h, dtype=np.float64)
        )
        value, se = _changing_risk(times, node, at, enter, leave, rest=nodes - listed)
    lo, hi = _bounds(value, se, nodes, level)
    end = float(value[-1])
    shown = f" ({lo[-1]:.3g} to {hi[-1]:.3g})" if np.isfinite(lo[-1]) else ""
    return MeanCumulative(
        times_h=at,
        value=value,
        lo=lo,
        hi=hi,
        se=se,
        nodes=nodes,
        events=len(times),
        level=level,
        method="mean cumulative function, robust bounds between nodes",
        sentence=f"{end:.3g} events per node by the end of the window{shown}, {nodes} nodes.",
        limit="The bounds take nodes as independent: a switch that takes down eight nodes counts as eight.",
    )


def _moments(times: np.ndarray, window_h: float, listed: int) -> np.ndarray:
    """When the curve is computed: at the events, or evenly where these are too many for so many nodes."""
    import numpy as np

    at = np.unique(times)
    points = min(POINTS_MAX, max(POINTS_MIN, CELLS_MAX // max(listed, 1)))
    if len(at) > points or not len(at) or at[-1] < window_h:
        at = np.concatenate((at, [window_h]))
    if len(at) > points:
        at = np.linspace(window_h / points, window_h, points)
    return at


def _equal_risk(times: np.ndarray, node: np.ndarray, nodes: int, at: np.ndarray) -> _Curve:
    """All nodes at risk all the time: the variance is that of the nodes' own counts."""
    import numpy as np

    # Nodes without an event all deviate alike: they are counted, not listed.
    failed, node = np.unique(node, return_inverse=True)
    counts = _per_node(times, node, len(failed), at)
    value = counts.sum(axis=0) / nodes
    squares = ((counts - value) ** 2).sum(axis=0) + (nodes - len(failed)) * value**2
    return _Curve(value, np.sqrt(squares) / nodes)


def _per_node(
    times: np.ndarray,
    node: np.ndarray,
    nodes: int,
    at: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Events (or their weights) of each node up to each of the times: (node, time)."""
    import numpy as np

    # An event counts at the first of the times that is not before it.
    cell = np.minimum(np.searchsorted(at, times, side="left"), len(at) - 1)
    size = nodes * len(at)
    flat = np.bincount(node * len(at) + cell, weights=weights, minlength=size)
    return np.cumsum(flat.reshape(nodes, len(at)), axis=1, dtype=np.float64)


def _changing_risk(
    times: np.ndarray,
    node: np.ndarray,
    at: np.ndarray,
    enter: np.ndarray,
    leave: np.ndarray,
    rest: int,
) -> _Curve:
    """Nodes that come and go: each event weighs one over the nodes at risk at its time.

    `rest` more nodes are at risk all the time and have no event.
    """
    import numpy as np

    at_risk = (
        rest
        + np.searchsorted(np.sort(enter), times, side="right")
        - np.searchsorted(np.sort(leave), times, side="left")
    )
    at_risk = np.maximum(at_risk, 1)
    value = np.concatenate(([0.0], np.cumsum(1 / at_risk)))[
        np.searchsorted(times, at, side="right")
    ]
    own = _per_node(times, node, len(enter), at, weights=1 / at_risk)
    # What the mean expects of a node: its share of every event while it was at risk.
    shares = np.concatenate(([0.0], np.cumsum(1 / at_risk.astype(np.float64) ** 2)))
    until = lambda when: shares[np.searchsorted(times, when, side="right")]  # noqa: E731
    expected = until(np.minimum(at[None, :], leave[:, None])) - until(
        np.minimum(at[None, :], enter[:, None])
    )
    squares = ((own - expected) ** 2).sum(axis=0) + rest * until(at) ** 2
    return _Curve(value, np.sqrt(squares))


def _bounds(value: np.ndarray, se: np.ndarray, nodes: int, level: float) -> Band:
    import numpy as np
    from scipy.special import ndtri, stdtrit

    lo, hi = np.full(len(value), np.nan), np.full(len(value), np.nan)
    if nodes >= NODES_MIN:
        seen = value > 0
        tail = (1 - level) / 2
        quantile = float(ndtri(tail)) if nodes >= NODES_MANY else float(stdtrit(nodes - 1, tail))
        reach = -quantile * se[seen] / value[seen]
        lo[seen], hi[seen] = value[seen] * np.exp(-reach), value[seen] * np.exp(reach)
    return Band(lo, hi)
