"""The charts of a fleet: from arrays to a bounded number of points, each with its data in a table.

However many incidents a ledger holds, a chart gets at most a few hundred rows: thinned where a curve is monotone, counted
in cells elsewhere. What was left out is said in the caption.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lastgood.base.figures import FigureKind
from lastgood.base.units import format_number
from lastgood.budget.change_points import ChangePoints
from lastgood.budget.lemons import Lemons
from lastgood.budget.mcf import MeanCumulative
from lastgood.budget.renewal import GapShape
from lastgood.evidence.report import Chart, Column, Data, Mark

if TYPE_CHECKING:
    import numpy as np

    from lastgood.evidence.rates_records import FleetRecords

CURVE_POINTS_MAX: Final = 160
SERIES_POINTS_MAX: Final = 60
SERIES_MAX: Final = 4
GAP_POINTS: Final = 60
NODES_MAX: Final = 40
RANKS_MAX: Final = 25
CELLS: Final = 120
MARK_SHARE_MIN: Final = 0.03
WEEK_H: Final = 168.0
DAY_H: Final = 24.0
LEVEL: Final = 0.95


def cumulative_chart(at: np.ndarray, total: float, *, unit: str) -> Chart:
    """Incidents over exposure with the band of a constant rate. `at` is sorted, in the unit of `total`.

    Assumes: for the band only, independent incidents at a constant rate, given how many there were.
    Source: given the count of a Poisson process, the events before a moment are binomial; pointwise 95 % limits.
    """
    import numpy as np

    n = len(at)
    kept = _thinned(n, CURVE_POINTS_MAX)
    x = np.concatenate(([0.0], at[kept], [total]))
    count = np.concatenate(([0], kept + 1, [n]))
    lo, hi = _binomial_limits(n, x / total)
    rows = tuple(
        (float(a), int(c), float(n * a / total), int(low), int(high))
        for a, c, low, high in zip(x, count, lo, hi, strict=True)
    )
    outside = int(np.count_nonzero((count < lo) | (count > hi)))
    columns = (
        Column(title="Exposure" if unit != "h" else "Observed time", unit=unit),
        Column(title="Incidents"),
        Column(title="Constant rate"),
        Column(title="Band from"),
        Column(title="Band to"),
    )
    thinned = f"; {len(kept)} of {n:,} incidents are drawn" if len(kept) < n else ""
    return Chart(
        name="cumulative",
        title="Incidents over exposure",
        form="cumulative",
        alt=f"The count of incidents rises from 0 to {n:,}; {outside} of {len(x)} points lie outside the Poisson band.",
        data=Data(columns=columns, rows=rows if n else (), kind=FigureKind.MODELLED),
        caption="Blue: counted. Dashed: a constant rate. Grey: where 95 of 100 such counts would lie at each moment, "
        f"were the incidents independent. A curve that bends upwards is a rate that rises{thinned}.",
    )


def _binomial_limits(n: int, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pointwise limits of a binomial count: the smallest k with at least 2.5 % (97.5 %) at or below it."""
    import numpy as np
    from scipy.special import bdtrik

    inside = np.clip(share, 1e-12, 1 - 1e-12)
    limits = [np.ceil(bdtrik(q, max(n, 1), inside) - 1e-9) for q in (0.025, 0.975)]
    lo, hi = (np.clip(np.nan_to_num(k, nan=0.0), 0, n) for k in limits)
    return np.where(share <= 0, 0, np.where(share >= 1, n, lo)), np.where(
        share <= 0, 0, np.where(share >= 1, n, hi)
    )


def mean_cumulative_chart(
    curves: Sequence[tuple[str, MeanCumulative]], *, has_holes: bool = False
) -> Chart:
    """Incidents per node over time for some groups, with bounds that hold when nodes differ.

    Where the records have holes the axis is observed time, as in every study.
    """
    rows: list[tuple] = []
    for name, curve in curves[:SERIES_MAX]:
        kept = _thinned(len(curve.times_h), SERIES_POINTS_MAX)
        rows.append((0.0, 0.0, 0.0, 0.0, name))
        rows += [
            (
                float(curve.times_h[i] / DAY_H),
                float(curve.value[i]),
                _finite(curve.lo[i]),
                _finite(curve.hi[i]),
                name,
            )
            for i in kept.tolist()
        ]
    nodes = curves[0][1].nodes if curves else 0
    columns = (
        Column(title="Observed time" if has_holes else "Time", unit="d"),
        Column(title="Incidents per node"),
        Column(title="95 % from"),
        Column(title="95 % to"),
        Column(title="Group", is_number=False),
    )
    ends = ", ".join(f"{name} {format_number(float(c.end))}" for name, c in curves[:SERIES_MAX])
    return Chart(
        name="mean-cumulative",
        title="Incidents per node",
        form="mean_cumulative",
        alt=f"Mean number of incidents of a node up to each day; at the end: {ends}.",
        data=Data(columns=columns, rows=tuple(rows), kind=FigureKind.MODELLED),
        caption=f"Mean cumulative function over {nodes:,} nodes, those without an incident included. The bounds let nodes "
        "differ and incidents cluster; they take nodes as independent of each other.",
    )


def weekly_chart(
    changes: ChangePoints, *, is_operational: bool = False, has_holes: bool = False
) -> Chart:
    """Counts per bin with the level between change points, and the cuts numbered.

    Where devices come and go the bins have equal exposure, and the axis is operational time, not the calendar; where
    the records have holes it is observed time.
    """
    plain = "Observed time" if has_holes else "Time"
    unit = {WEEK_H: "week", DAY_H: "day"}.get(changes.bin_h, f"{changes.bin_h:.4g} h")
    level = [s.per_bin for s in changes.segments for _ in range(s.first, s.end)]
    width_d = changes.bin_h / DAY_H
    rows = tuple(
        (i * width_d, (i + 1) * width_d, int(count), level[i])
        for i, count in enumerate(changes.counts.tolist())
    )
    marks = tuple(
        Mark(at=s.first * width_d, label=str(i))
        for i, s in enumerate(changes.segments[1:], start=1)
    )
    columns = (
        Column(title="Operational time" if is_operational else plain, unit="d"),
        Column(title="Until", unit="d"),
        Column(title=f"Incidents per {unit}"),
        Column(title="Level"),
    )
    return Chart(
        name="weekly",
        title=f"Incidents per {unit}",
        form="weekly",
        alt=changes.sentence,
        data=Data(columns=columns, rows=rows, kind=FigureKind.MEASURED),
        caption=f"Bars: counted. Line: the level between change points, numbered. A cut has to explain more than bursts "
        f"do (price scaled by a dispersion of {format_number(changes.dispersion)}); independent incidents would have "
        f"been cut {changes.naive_changes} times.",
        marks=marks,
    )


def gap_chart(gaps_h: np.ndarray, shape: GapShape) -> Chart | None:
    """Observed gaps against those of an exponential and of the fitted Weibull law; None without a fit."""
    import numpy as np

    gaps = np.sort(gaps_h[gaps_h > 0])
    if shape.shape is None or shape.scale_h is None or len(gaps) < 2:
        return None
    kept = _thinned(len(gaps), GAP_POINTS)
    share = (kept + 0.5) / len(gaps)
    exponential = -np.log1p(-share) * gaps.mean()
    weibull = shape.scale_h * (-np.log1p(-share)) ** (1 / shape.shape)
    name = f"Weibull, shape {shape.shape:.2f}"
    rows = [
        (float(model), float(seen), series)
        for series, models in (("exponential", exponential), (name, weibull))
        for model, seen in zip(models, gaps[kept], strict=True)
    ]
    columns = (
        Column(title="Gap of the model", unit="h"),
        Column(title="Observed gap", unit="h"),
        Column(title="Model", is_number=False),
    )
    zeros = (
        f" {shape.zero_gaps:,} incidents at the instant of the one before have no gap and are left out."
        if shape.zero_gaps
        else ""
    )
    return Chart(
        name="gaps",
        title="Gaps between incidents",
        form="quantiles",
        alt=f"Quantiles of {len(gaps):,} gaps against an exponential and a Weibull law of shape {shape.shape:.2f}.",
        data=Data(columns=columns, rows=tuple(rows), kind=FigureKind.MODELLED),
        caption="A model whose points lie on the dashed diagonal gives the gaps that were seen; independent incidents "
        f"follow the exponential.{zeros}",
    )


def raster_chart(records: FleetRecords, bursts: Sequence[tuple[float, str]]) -> Chart | None:
    """When the most troubled nodes failed; `bursts` (hours on the calendar, label) are ruled through. None when no node is named."""
    import numpy as np

    host = records.incidents.host
    named = host.codes >= 0
    if not named.any():
        return None
    counts = np.bincount(host.codes[named], minlength=len(host.names))
    order = sorted(range(len(counts)), key=lambda i: (-counts[i], host.names[i]))
    shown = [i for i in order if counts[i]][:NODES_MAX]
    place = np.full(len(host.names), -1)
    place[shown] = np.arange(len(shown))
    lane = place[host.codes]
    lane[~named] = -1
    width_d = records.window_d / CELLS
    cell = np.minimum((records.hours / DAY_H / width_d).astype(np.int64), CELLS - 1)
    flat = np.bincount((lane * CELLS + cell)[lane >= 0], minlength=len(shown) * CELLS)
    rows = tuple(
        (
            host.names[shown[i // CELLS]],
            float(i % CELLS * width_d),
            float((i % CELLS + 1) * width_d),
            int(flat[i]),
        )
        for i in np.flatnonzero(flat).tolist()
    )
    columns = (
        Column(title="Node", is_number=False),
        Column(title="Time", unit="d"),
        Column(title="Until", unit="d"),
        Column(title="Incidents"),
    )
    total = int(np.count_nonzero(counts))
    of = f"the {len(shown)} nodes with most incidents of {total:,} that had any" if total > len(shown) else f"all {total:,} nodes that had any"  # fmt: skip
    return Chart(
        name="raster",
        title="When which node failed",
        form="raster",
        alt=f"A lane for each of {len(shown)} nodes with a mark in each of {CELLS} cells of time in which it failed.",
        data=Data(columns=columns, rows=rows, kind=FigureKind.MEASURED),
        caption=f"Shown: {of}. A lane that fills up after one mark is a repair that did not hold; a column is a burst. "
        "Numbered: the largest bursts.",
        marks=_apart(bursts, records.window_d),
    )


def node_rank_chart(study: Lemons, names: Sequence[str], *, unit_h: float) -> Chart | None:
    """The nodes with the highest shrunken rates, with the raw ones beside; None where nothing was fitted.

    Assumes: rates of nodes drawn from one gamma law; the interval is that of each node's posterior.
    Source: gamma-Poisson, Gelman and others (2013) section 2.7.
    """
    import numpy as np
    from scipy.special import gammaincinv

    if study.shape is None or not study.top:
        return None
    rows = []
    for node in study.top[:RANKS_MAX]:
        own = study.shape + node.count
        scale = node.shrunken_rate / own
        lo, hi = (float(gammaincinv(own, q)) * scale for q in (0.025, 0.975))
        values = np.array((node.rate, node.shrunken_rate, lo, hi)) * unit_h
        rows.append((names[node.node], *(float(v) for v in values)))
    columns = (
        Column(title="Node", is_number=False),
        Column(title="As counted", unit="per 1,000 d"),
        Column(title="Rate", unit="per 1,000 d"),
        Column(title="95 % from", unit="per 1,000 d"),
        Column(title="95 % to", unit="per 1,000 d"),
    )
    fleet = study.events / study.nodes
    ratio = study.top[0].count / study.top[0].rate if study.top[0].rate else 1.0
    return Chart(
        name="node-ranks",
        title="Nodes by their shrunken rate",
        form="node_ranks",
        alt=f"{len(rows)} nodes with the highest rates after shrinkage towards the fleet's mean.",
        data=Data(columns=columns, rows=tuple(rows), kind=FigureKind.MODELLED),
        caption="Diamond: as counted. Dot and line: shrunken towards the fleet, with 95 % limits. Dashed: the fleet's "
        f"mean. {study.sentence}",
        marks=(Mark(at=fleet / ratio * unit_h, label="fleet"),),
    )


def _apart(bursts: Sequence[tuple[float, str]], window_d: float) -> tuple[Mark, ...]:
    """The marks whose labels do not print over each other; of two that would, the first one stays."""
    kept: list[Mark] = []
    for hours, label in bursts:
        at = hours / DAY_H
        if all(abs(at - mark.at) >= MARK_SHARE_MIN * window_d for mark in kept):
            kept.append(Mark(at=at, label=label))
    return tuple(kept)


def _thinned(n: int, most: int) -> np.ndarray:
    """Indexes of at most so many of n ordered points, evenly, the last one among them."""
    import numpy as np

    if n <= most:
        return np.arange(n)
    return np.unique(np.round(np.linspace(0, n - 1, most)).astype(np.int64))


def _finite(value: float) -> float | None:
    """Nothing where there is no bound."""
    return None if value != value else float(value)  # noqa: PLR0124 - NaN alone differs from itself
