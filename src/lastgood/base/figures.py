"""A number together with what it is worth: its kind, its uncertainty, its assumptions and its source.

Three mistakes cannot be written down with a `Figure`: quoting one operator's rate as a law of hardware,
quoting a simulated fault model as field incidence, and quoting throughput without correctness and
latency. Kinds are ordered from the strongest to the weakest, in the order of `FigureKind`; a combination
keeps all kinds of its parts and prints the weakest; whatever rests on an assumption is at best
`modelled`; and nothing leads back to `measured`.

`render` is the only way from a figure to text: it always prints the kind, and it refuses a projection
without its condition and a rate of useful work without its companions.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from lastgood.base.errors import BadInput, EvidenceError
from lastgood.base.units import format_bytes, format_duration, format_number

T = TypeVar("T")
DEVICE_TIME = "device-us"
"""Unit of device time, which reads `1.94 device-s`: two devices lose two of them in one second."""
COUNTED = frozenset(("steps", "ranks", "incidents", "events"))
"""Units that have a singular."""


class FigureKind(enum.StrEnum):
    """Where a number comes from, strongest first. The order is the one stated order of the product."""

    MEASURED = "measured"
    """Read from records of what this system did."""
    REPORTED = "reported"
    """Read in somebody else's publication or log; theirs, not ours."""
    MODELLED = "modelled"
    """Computed by a formula whose assumptions are printed."""
    ASSUMED = "assumed"
    """Typed by a person or a default."""
    SIMULATED = "simulated"
    """Produced by a simulator: as good as its fault model."""
    PROJECTED = "projected"
    """Extended beyond what was observed, under a condition."""


_STRENGTH = {kind: position for position, kind in enumerate(FigureKind)}


class FigureRole(enum.StrEnum):
    """What a figure is used for, where a rule depends on it."""

    PLAIN = "plain"
    THROUGHPUT = "throughput"
    """Useful work per time (throughput, goodput): cannot be shown alone."""
    CORRECTNESS = "correctness"
    """How much of the work was right: one companion of a throughput."""
    LATENCY = "latency"
    """How long the work took: the other companion."""


_WORK_RATE = re.compile(
    r"(?:\w+ )?(?:token|sample|request|step|output|item|quer(?:y|ie)|task|answer|update)s?"
    r"/(?:us|ms|s|min|h|d|day|hour|second|minute)"
)
"""Units that say useful work per time whatever the role says, so that forgetting the role gains nothing."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """What the value could also be, in the unit of its figure."""

    lo: float
    hi: float
    level: float
    """Coverage between 0 and 1, such as 0.95."""
    method: str
    """Such as `exact Poisson`."""

    def __post_init__(self) -> None:
        """Refuse an interval that is none."""
        if not (self.lo <= self.hi and 0 < self.level < 1):
            raise EvidenceError(
                "not an interval",
                found=f"lo {self.lo}, hi {self.hi}, level {self.level}",
                needs="lo <= hi and a level between 0 and 1",
            )


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A number with its provenance. Make one with `measured`, `assumed`, `combine`, ... or directly."""

    name: str
    value: float | int | None
    """None means not observed, which is not zero."""
    unit: str
    """`us` and `bytes` print scaled, `ratio` prints as a share; anything else prints as it is."""
    kind: FigureKind
    interval: Interval | None = None
    n: int | None = None
    """How many observations it rests on."""
    exposure: str | None = None
    """At risk over what, in words, such as `16384 devices over 54 d`."""
    assumptions: tuple[str, ...] = ()
    source: str = ""
    as_of_us: int | None = None
    """Wall time up to which the records were read; later records may change the value."""
    kinds: tuple[FigureKind, ...] = ()
    """Every kind that went into it, strongest first; filled in from `kind` when left out."""
    role: FigureRole = FigureRole.PLAIN
    companions: tuple[Figure, ...] = ()
    """Correctness and latency beside a throughput."""
    condition: str | None = None
    """Projected only: the sentence under which the number would hold."""
    source_window: str | None = None
    """Projected only: what was observed, such as `54 d on 16384 devices`."""
    extrapolation: float | None = None
    """Projected only: how far beyond the source window, as a factor."""

    def __post_init__(self) -> None:
        """Fill in `kinds` and refuse a figure that claims more than its parts allow."""
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise EvidenceError(
                "a figure is a number or not observed",
                where=self.name,
                found=str(self.value),
                needs="a finite number or None",
            )
        kinds = _ordered((self.kind, *self.kinds))
        msgspec.structs.force_setattr(self, "kinds", kinds)
        bound = weakest((*kinds, FigureKind.MODELLED)) if self.assumptions else weakest(kinds)
        if _STRENGTH[self.kind] < _STRENGTH[bound]:
            raise EvidenceError(
                "a figure claims more than it rests on",
                where=self.name,
                found=f"kind {self.kind}",
                needs=f"{bound} or weaker, because of {_because(self)}",
            )


def _because(figure: Figure) -> str:
    kinds = ", ".join(figure.kinds)
    return f"the assumption {figure.assumptions[0]!r}" if figure.assumptions else f"parts {kinds}"


def _ordered(kinds: Iterable[FigureKind]) -> tuple[FigureKind, ...]:
    return tuple(sorted(set(kinds), key=_STRENGTH.__getitem__))


def weakest(kinds: Iterable[FigureKind]) -> FigureKind:
    """Return the kind that a combination of these kinds prints."""
    return max(kinds, key=_STRENGTH.__getitem__)


def measured(
    name: str,
    value: float | None,
    unit: str,
    *,
    source: str,
    n: int | None = None,
    interval: Interval | None = None,
    exposure: str | None = None,
    as_of_us: int | None = None,
    role: FigureRole = FigureRole.PLAIN,
) -> Figure:
    """Return a number read from our own records; `source` says which."""
    return Figure(
        name=name,
        value=value,
        unit=unit,
        kind=FigureKind.MEASURED,
        source=source,
        n=n,
        interval=interval,
        exposure=exposure,
        as_of_us=as_of_us,
        role=role,
    )


def assumed(name: str, value: float | None, unit: str, *, source: str = "typed") -> Figure:
    """Return a bare number that a person typed or a default supplied."""
    return Figure(name=name, value=value, unit=unit, kind=FigureKind.ASSUMED, source=source)


def combine(
    parts: Sequence[Figure],
    formula: Callable[..., float | int | None],
    *,
    name: str,
    unit: str,
    source: str,
    assumptions: Sequence[str] = (),
    interval: Interval | None = None,
    n: int | None = None,
    exposure: str | None = None,
    role: FigureRole = FigureRole.PLAIN,
    companions: Sequence[Figure] = (),
) -> Figure:
    """Return `formula(*values)` with everything that its parts bring along.

    All kinds and all assumptions are kept; the oldest `as_of_us` counts; a part that was not observed
    makes the result not observed; conditions, source windows and the largest extrapolation of projected
    parts stay. With assumptions of its own the formula yields at best `modelled`. `source` names the
    formula.
    """
    assert parts, "combine needs at least one figure"
    all_assumptions = _unique((*_flat(part.assumptions for part in parts), *assumptions))
    kinds = _ordered(_flat(part.kinds for part in parts))
    if all_assumptions:
        kinds = _ordered((*kinds, FigureKind.MODELLED))
    values = [part.value for part in parts]
    stamps = [part.as_of_us for part in parts if part.as_of_us is not None]
    factors = [part.extrapolation for part in parts if part.extrapolation is not None]
    return Figure(
        name=name,
        value=None if any(value is None for value in values) else formula(*values),
        unit=unit,
        kind=weakest(kinds),
        kinds=kinds,
        interval=interval,
        n=n,
        exposure=exposure,
        assumptions=all_assumptions,
        source=source,
        as_of_us=min(stamps, default=None),
        role=role,
        companions=tuple(companions),
        condition=_joined(part.condition for part in parts),
        source_window=_joined(part.source_window for part in parts),
        extrapolation=max(factors, default=None),
    )


def project(
    part: Figure,
    formula: Callable[..., float | int | None],
    *,
    name: str,
    unit: str,
    condition: str,
    source_window: str,
    extrapolation: float,
    source: str,
    assumptions: Sequence[str] = (),
    interval: Interval | None = None,
) -> Figure:
    """Return a figure beyond what was observed: never without its condition, window and factor."""
    base = combine(
        [part],
        formula,
        name=name,
        unit=unit,
        source=source,
        assumptions=assumptions,
        interval=interval,
    )
    return msgspec.structs.replace(
        base,
        kind=FigureKind.PROJECTED,
        condition=_joined((part.condition, condition)),
        source_window=_joined((part.source_window, source_window)),
        extrapolation=extrapolation * (part.extrapolation or 1.0),
    )


def _flat(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(item for group in groups for item in group)


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def _joined(sentences: Iterable[str | None]) -> str | None:
    return "; ".join(_unique(s for s in sentences if s)) or None


def is_work_rate(figure: Figure) -> bool:
    """Say whether a figure stands for useful work per time, by its role or by its unit."""
    return figure.role is FigureRole.THROUGHPUT or bool(_WORK_RATE.fullmatch(figure.unit))


def check_renderable(figure: Figure) -> None:
    """Raise `EvidenceError` when showing the figure would say more than it is worth.

    Every renderer, textual or graphical, calls this before it shows a value.
    """
    if FigureKind.PROJECTED in figure.kinds:
        missing = [
            word
            for word, part in (
                ("condition", figure.condition),
                ("source_window", figure.source_window),
                ("extrapolation", figure.extrapolation),
            )
            if not part
        ]
        if missing:
            raise EvidenceError(
                "a projection is shown only together with its condition",
                where=figure.name,
                found=f"no {', no '.join(missing)}",
                needs="condition, source window and extrapolation factor",
                code="LG-E02",
            )
    if is_work_rate(figure):
        roles = {companion.role for companion in figure.companions}
        missing = [r.value for r in (FigureRole.CORRECTNESS, FigureRole.LATENCY) if r not in roles]
        if missing:
            raise EvidenceError(
                "useful work per time is shown only with its companions",
                where=figure.name,
                found=f"no {' and no '.join(missing)} beside it",
                needs="a correctness and a latency figure in companions",
                code="LG-E03",
            )
    for companion in figure.companions:
        check_renderable(companion)


def format_value(figure: Figure) -> str:
    """Return value and unit as text, `not observed` for None. Not for printing alone: see `render`."""
    return "not observed" if figure.value is None else _format_in_unit(figure.value, figure.unit)


def _format_in_unit(value: float, unit: str) -> str:
    if unit == "us":
        return format_duration(value)
    if unit == DEVICE_TIME:
        return "0 device-s" if value == 0 else format_duration(value).replace(" ", " device-")
    if unit == "bytes":
        return format_bytes(value)
    if unit == "ratio":
        return f"{value:.4f}"
    if value == 1 and unit in COUNTED:
        return f"1 {unit.removesuffix('s')}"
    text = f"{value}" if isinstance(value, int) else format_number(value)
    return f"{text} {unit}".rstrip()


def format_interval(figure: Figure) -> str | None:
    """Return the interval in words, such as `2.8 h to 3.4 h, 95 %, exact Poisson`."""
    interval = figure.interval
    if interval is None:
        return None
    lo = _format_in_unit(interval.lo, figure.unit)
    hi = _format_in_unit(interval.hi, figure.unit)
    return f"{lo} to {hi}, {interval.level * 100:g} %, {interval.method}"


def render(figure: Figure) -> str:
    """Return a figure as one line: value, unit, kind, and whatever the reader must know to use it.

    Example: `3.09 h measured (2.80 h to 3.40 h, 95 %, exact Poisson; n = 419)`.
    """
    if not isinstance(figure, Figure):
        raise BadInput(
            "not a figure",
            where="render",
            found=type(figure).__name__,
            needs="a Figure, such as one of lastgood.open(PATH).figures()",
        )
    check_renderable(figure)
    notes = [
        format_interval(figure),
        f"n = {figure.n}" if figure.n is not None else None,
        f"exposure {figure.exposure}" if figure.exposure else None,
        f"from {', '.join(figure.kinds)}" if len(figure.kinds) > 1 else None,
        f"assuming {'; '.join(figure.assumptions)}" if figure.assumptions else None,
    ]
    if FigureKind.PROJECTED in figure.kinds:
        notes += [
            f"if {figure.condition}",
            f"observed {figure.source_window}",
            f"extrapolated {format_number(figure.extrapolation or 0.0)} times",
        ]
    notes += [f"{companion.name} {render(companion)}" for companion in figure.companions]
    told = "; ".join(note for note in notes if note)
    return f"{format_value(figure)} {figure.kind}" + (f" ({told})" if told else "")
