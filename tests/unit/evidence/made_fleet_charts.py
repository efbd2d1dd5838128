"""One small chart of each form that a fleet's report draws; numbers made up, shapes as in real logs."""

from __future__ import annotations

from lastgood.base.figures import FigureKind
from lastgood.evidence.report import Chart, Column, Data, Mark


def _chart(name, form, columns, rows, *, marks=(), kind=FigureKind.MEASURED):
    return Chart(
        name=name, title=f"Title of {name}", form=form, alt=f"What {name} shows.",
        data=Data(columns=tuple(columns), rows=tuple(rows), kind=kind), marks=tuple(marks),
    )  # fmt: skip


def cumulative() -> Chart:
    rows = [
        (100.0 * i, i, 100 * i / 125, max(0.0, 0.8 * i - 4), 0.8 * i + 4)
        for i in [0, 1, 2, 4, 8, 9, 12, 16, 20]
    ]
    columns = [
        Column(title="Exposure", unit="device-h"),
        Column(title="Incidents"),
        Column(title="Constant rate"),
        Column(title="Low"),
        Column(title="High"),
    ]
    return _chart("cumulative", "cumulative", columns, rows)


def mean_cumulative() -> Chart:
    rows = [
        (10.0 * i, s * i / 10, s * i / 14, s * i / 8, name)
        for name, s in (("hardware", 1.0), ("software", 0.3), ("unknown", 0.6))
        for i in range(12)
    ]
    columns = [
        Column(title="Time", unit="d"),
        Column(title="Incidents per node"),
        Column(title="Low"),
        Column(title="High"),
        Column(title="Class", is_number=False),
    ]
    return _chart("mcf", "mean_cumulative", columns, rows)


def weekly() -> Chart:
    counts = [3, 4, 2, 5, 3, 12, 15, 11, 4, 3, 2, 4]
    levels = [3.4] * 5 + [12.7] * 3 + [3.2] * 4
    rows = [(7.0 * i, 7.0 * (i + 1), c, v) for i, (c, v) in enumerate(zip(counts, levels, strict=True))]  # fmt: skip
    columns = [
        Column(title="Time", unit="d"),
        Column(title="End", unit="d"),
        Column(title="Incidents per week"),
        Column(title="Level"),
    ]
    return _chart(
        "weekly", "weekly", columns, rows, marks=[Mark(at=35, label="1"), Mark(at=56, label="2")]
    )


def quantiles() -> Chart:
    rows = [(0.1 * 1.4**i, 0.02 * 1.7**i, "exponential") for i in range(14)]
    rows += [(0.022 * 1.69**i, 0.02 * 1.7**i, "Weibull, shape 0.62") for i in range(14)]
    columns = [
        Column(title="Gap of the model", unit="h"),
        Column(title="Observed gap", unit="h"),
        Column(title="Model", is_number=False),
    ]
    return _chart("gaps", "quantiles", columns, rows)


def raster() -> Chart:
    rows = [
        (f"gpu-{n:04d}", float(t), t + 1.0, 1 + (n * t) % 4)
        for n in range(18)
        for t in range(0, 60, 3 + n % 7)
    ]
    rows += [(f"gpu-{n:04d}", 41.0, 42.0, 1) for n in range(18)]
    columns = [
        Column(title="Node", is_number=False),
        Column(title="Time", unit="d"),
        Column(title="End", unit="d"),
        Column(title="Incidents"),
    ]
    return _chart("raster", "raster", columns, rows, marks=[Mark(at=41.5, label="1")])


def node_ranks() -> Chart:
    rows = [(f"gpu-{n:04d}", 9.0 - n / 2, 3 + 3 / (n + 1), 1.5 + 1 / (n + 1), 5 + 6 / (n + 1)) for n in range(12)]  # fmt: skip
    columns = [
        Column(title="Node", is_number=False),
        Column(title="Counted", unit="per node-year"),
        Column(title="Shrunken", unit="per node-year"),
        Column(title="Low", unit="per node-year"),
        Column(title="High", unit="per node-year"),
    ]
    return _chart("node-ranks", "node_ranks", columns, rows, marks=[Mark(at=2.6, label="mean")])


ALL = {
    make.__name__: make for make in (cumulative, mean_cumulative, weekly, quantiles, raster, node_ranks)
}  # fmt: skip
