"""How a number, a cell and a time read, in the terminal and on the page alike.

Every way from a figure to a reader's eye passes `check_renderable` here, so that a projection without its
condition or a rate without its companions is refused by each renderer, not only by `base.figures.render`.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from lastgood.base.figures import (
    DEVICE_TIME,
    Figure,
    check_renderable,
    format_interval,
    format_value,
)
from lastgood.base.units import (
    US_PER_H,
    US_PER_MIN,
    US_PER_MS,
    US_PER_S,
    format_duration,
    format_number,
)
from lastgood.evidence.report import Cell, Table

NOT_OBSERVED: Final = "not observed"
NOTHING: Final = "–"
SCALES_US: Final = {"us": 1, "ms": US_PER_MS, "s": US_PER_S, "min": US_PER_MIN, "h": US_PER_H}
"""Units that a column of durations may declare."""

WIDE_RATIO: Final = 100
"""Largest over smallest number of a column from which on each keeps three digits of its own."""

TINY: Final = 1e-4
"""A probability below this reads as a power of ten: nobody counts seven zeros."""

STATES: Final = {
    "held": "held",
    "not_held": "not held",
    "unknown": "unknown",
    "nothing": "nothing to judge",
}
SIGNS: Final = {"held": "✓", "not_held": "✗", "unknown": "?", "nothing": "·"}
"""Drawn beside the word, never in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellText:
    """A cell as text; `kind` is printed beside it unless its column already says so."""

    text: str
    kind: str | None = None
    detail: str = ""
    is_number: bool = False
    is_missing: bool = False


def value_text(figure: Figure) -> str:
    """Value and unit, such as `3.09 h` or `not observed`, after the check that it may be shown."""
    check_renderable(figure)
    if figure.value == 0 and figure.unit == "us":
        return "0 s"
    if (
        isinstance(figure.value, int)
        and abs(figure.value) >= 10_000
        and figure.unit not in {"us", DEVICE_TIME, "bytes"}
    ):
        return f"{figure.value:,} {figure.unit}".rstrip()
    if isinstance(figure.value, float) and not figure.unit and 0 < abs(figure.value) < TINY:
        return f"{figure.value:.1e}"
    return format_value(figure)


def kind_text(figure: Figure) -> str:
    """The kind to print beside the value; nothing beside `not observed`, which is no number."""
    return "" if figure.value is None else str(figure.kind)


def detail_text(figure: Figure) -> str:
    """What a reader must know to use the number: interval, n, what was at risk, assumptions, source."""
    return "; ".join(part for part in (short_detail(figure), figure.source) if part)


def short_detail(figure: Figure) -> str:
    """The same without the source: for a place that names the source once for all its numbers."""
    check_renderable(figure)
    parts = [
        format_interval(figure),
        f"n = {figure.n:,}" if figure.n is not None else None,
        f"at risk: {figure.exposure}" if figure.exposure else None,
        f"from {', '.join(figure.kinds)}" if len(figure.kinds) > 1 else None,
        f"assumes {'; '.join(figure.assumptions)}" if figure.assumptions else None,
        _condition(figure),
        *(f"{c.name} {value_text(c)} {c.kind}" for c in figure.companions),
    ]
    return "; ".join(part for part in parts if part)


def interval_text(figure: Figure) -> str:
    """Only the interval, where there is one: for a place with little room."""
    return format_interval(figure) or ""


def _condition(figure: Figure) -> str | None:
    """The sentence without which a projection may not be shown."""
    if not figure.condition or not figure.extrapolation:
        return None
    factor = format_number(figure.extrapolation)
    return f"if {figure.condition}; observed {figure.source_window}; extrapolated {factor} times"


def column_kind(table: Table, index: int) -> str | None:
    """The one kind that all figures of a column share, for its header; None when mixed or without figures."""
    cells = (row[index] for row in table.rows)
    kinds = {str(c.kind) for c in cells if isinstance(c, Figure) and c.value is not None}
    return kinds.pop() if len(kinds) == 1 else None


def table_texts(table: Table) -> list[list[CellText]]:
    """Every cell as text; durations of a column share one unit and one number of decimals."""
    columns = [_column_texts(table, index) for index in range(len(table.columns))]
    return [list(row) for row in zip(*columns, strict=True)]


def _column_texts(table: Table, index: int) -> list[CellText]:
    cells = [row[index] for row in table.rows]
    unit, shared = table.columns[index].unit, column_kind(table, index)
    # `device-h` scales as `h` does.
    scale_us = SCALES_US.get(unit.rpartition("-")[2])
    numbers = [_in_unit(cell, unit, scale_us) for cell in cells]
    known = [n for n in numbers if n is not None]
    is_time = any(isinstance(c, Figure) and c.unit in {"us", DEVICE_TIME} for c in cells)
    if not is_time and _is_wide(known):
        texts = ["" if n is None else format_number(n) for n in numbers]
    else:
        decimals = _decimals(known)
        texts = [
            "" if n is None else f"{n:,}" if isinstance(n, int) else f"{n:,.{decimals}f}"
            for n in numbers
        ]
    return [_cell_text(cell, text, shared) for cell, text in zip(cells, texts, strict=True)]


def _in_unit(cell: Cell, unit: str, scale_us: int | None) -> float | None:
    """The number to print when the unit stands in the header; None when the cell has to say its own."""
    if not isinstance(cell, Figure) or cell.value is None:
        return None
    if scale_us is not None and cell.unit in {"us", DEVICE_TIME}:
        return cell.value / scale_us
    return cell.value if unit and unit == cell.unit else None


def _cell_text(cell: Cell, text: str, shared: str | None) -> CellText:
    if cell is None:
        return CellText(text=NOTHING, is_missing=True)
    if isinstance(cell, str):
        return CellText(text=cell)
    if cell.value is None:
        return CellText(text=NOT_OBSERVED, detail=detail_text(cell), is_missing=True)
    return CellText(
        text=text or value_text(cell),
        kind=None if shared else str(cell.kind),
        detail=detail_text(cell),
        is_number=True,
    )


def _is_wide(values: list[float]) -> bool:
    """True for a column of numbers over many magnitudes: shared decimals would print noise or zeros."""
    sizes = [abs(v) for v in values if v and isinstance(v, float)]
    return bool(sizes) and max(sizes) >= WIDE_RATIO * min(sizes)


def _decimals(values: list[float]) -> int:
    """Decimals that give the smallest non-zero value three significant digits, at most three; 0 for integers."""
    smallest = min((abs(v) for v in values if v), default=1.0)
    return next((d for d, at_least in enumerate((100.0, 10.0, 1.0)) if smallest >= at_least), 3)


def answer_text(state: str) -> str:
    """The answer with its sign, in words first of all."""
    return f"{SIGNS.get(state, '·')} {STATES.get(state, state.replace('_', ' '))}"


def instant_text(t_us: int | None, *, with_date: bool = True) -> str:
    """Wall time in UTC with milliseconds, such as `2026-11-30 02:29:19.120 UTC`."""
    if t_us is None:
        return "not recorded"
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=t_us)
    text = moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    return f"{moment:%Y-%m-%d} {text} UTC" if with_date else text


def since_text(since_us: int | None) -> str:
    """A distance from the onset, such as `+1.2 s`; `not recorded` where no record tells."""
    if since_us is None:
        return "not recorded"
    if since_us == 0:
        return "0 s"
    sign = "-" if since_us < 0 else "+"
    return f"{sign}{format_duration(abs(since_us))}"


def data_value_text(value: str | float | None) -> str:
    """One value of a chart's data table."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
