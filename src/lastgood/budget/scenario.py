"""What a plan is made from: named inputs, each a figure that says where it comes from.

An input comes from a ledger, from a scenario file or from the command line; the later wins. A number that a person
types without saying where it comes from is `assumed`. An interval travels with its input and is propagated through
every result; an input without one is held fixed, and the result says so.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lastgood.base.errors import BadInput, Problem, Problems
from lastgood.base.figures import Figure, FigureKind, Interval, combine
from lastgood.base.units import format_duration, parse_duration_us
from lastgood.budget.closed.regime import Regime

LEVEL = 0.95


class Measure(enum.StrEnum):
    """What sort of number an input is."""

    DURATION = "duration"
    RATIO = "ratio"
    COUNT = "count"
    NUMBER = "number"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One input that a plan understands."""

    name: str
    measure: Measure
    title: str
    default: float | None = None
    """What applies when nobody says, as `assumed`; None: there is no default."""
    is_mean_time: bool = False
    """A mean time between events, which may also be given as a count in a window."""
    can_be_zero: bool = True
    can_be_one: bool = True
    """False for a share of all, which would leave nothing."""


_D, _R, _C, _N, _F = Measure.DURATION, Measure.RATIO, Measure.COUNT, Measure.NUMBER, Measure.FLAG
QUANTITIES: Mapping[str, Quantity] = {
    q.name: q
    for q in (
        Quantity(name="mtti", measure=_D, title="mean time between job-stopping interruptions (M)", is_mean_time=True, can_be_zero=False),
        Quantity(name="checkpoint_cost", measure=_D, title="time for which a checkpoint blocks the job (C)", can_be_zero=False),
        Quantity(name="detection", measure=_D, title="detection and diagnosis (D)", default=0.0),
        Quantity(name="recovery", measure=_D, title="recovery (R)", default=0.0),
        Quantity(name="recovery_exposed", measure=_F, title="whether recovery can be interrupted", default=1.0),
        Quantity(name="interval", measure=_D, title="interval in use today, as work between checkpoints", can_be_zero=False),
        Quantity(name="work", measure=_D, title="useful work of the whole job", can_be_zero=False),
        Quantity(name="devices", measure=_C, title="devices of the job", can_be_zero=False),
        Quantity(name="weibull_shape", measure=_N, title="Weibull shape of the gaps", default=1.0, can_be_zero=False),
        Quantity(name="burst_chance", measure=_R, title="chance that a failure is followed by another soon", default=0.0, can_be_one=False),
        Quantity(name="burst_gap", measure=_D, title="mean gap inside a burst", default=0.0),
        Quantity(name="checkpoint_failure", measure=_R, title="chance that writing a checkpoint fails", default=0.0, can_be_one=False),
        Quantity(name="silent_mtti", measure=_D, title="mean work time between silent corruptions", is_mean_time=True, can_be_zero=False),
        Quantity(name="verification_cost", measure=_D, title="cost of one verification of the state (V)", can_be_zero=False),
        Quantity(name="detection_latency", measure=_D, title="mean time until a silent corruption is found", can_be_zero=False),
        Quantity(name="retained_checkpoints", measure=_C, title="checkpoints that are kept", default=2.0, can_be_zero=False),
        Quantity(name="retention_risk", measure=_R, title="risk per corruption that no clean checkpoint is left", default=0.001, can_be_zero=False, can_be_one=False),
        Quantity(name="snapshot_copy", measure=_D, title="blocking copy of an asynchronous snapshot (s)"),
        Quantity(name="snapshot_persist", measure=_D, title="time until a snapshot is durable (P)"),
        Quantity(name="snapshot_slowdown", measure=_R, title="share of speed lost while persisting (a)", default=0.0, can_be_one=False),
        Quantity(name="machines", measure=_C, title="machines of the job", can_be_zero=False),
        Quantity(name="copies", measure=_C, title="copies of a shard in the memory of peers", default=2.0, can_be_zero=False),
        Quantity(name="simultaneous_losses", measure=_C, title="machines lost at once", default=1.0),
        Quantity(name="evicted_together", measure=_C, title="machines of a fault domain, lost or evicted as a whole", can_be_zero=False),
        Quantity(name="peer_copy_cost", measure=_D, title="blocking time of a copy to peers", can_be_zero=False),
        Quantity(name="peer_recovery", measure=_D, title="recovery from the memory of a peer"),
        Quantity(name="node_mtti", measure=_D, title="mean time between node failures in the job", is_mean_time=True, can_be_zero=False),
        Quantity(name="refill", measure=_D, title="time until a failed node is a spare again", can_be_zero=False),
        Quantity(name="spare_chance", measure=_R, title="chance that a failure finds a spare", default=0.99, can_be_zero=False, can_be_one=False),
        Quantity(name="window", measure=_D, title="window in which spares and waits are counted", default=30 * 86_400e6, can_be_zero=False),
        Quantity(name="queue", measure=_D, title="mean wait for each submission"),
        Quantity(name="ettr_wanted", measure=_R, title="ETTR that is wanted, for the rate that allows it", can_be_zero=False, can_be_one=False),
    )
}  # fmt: skip
REQUIRED = ("mtti", "checkpoint_cost")
UNITS = {_D: "us", _R: "ratio", _C: "", _N: "", _F: ""}
NOTHING = "nothing"
NEEDS: Mapping[Measure, str] = {
    _D: "a duration with a unit, such as 90s or 3.09h",
    _R: "a share between 0 and 1, or a percentage",
    _C: "a whole number",
    _N: "a number",
    _F: "true or false",
}
"""What a value of each sort looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelInput:
    """One kind of checkpoint of a multi-level plan, as figures."""

    name: str
    mtti: Figure
    """Mean time between the failures that need at least this level and no higher one."""
    checkpoint_cost: Figure
    recovery: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCheckpoints:
    """Checkpoints on record that blocked the job for no time at all, every one of them."""

    cost: Figure
    """0 s, as measured."""
    write: Figure
    """From the begin of one until it was written."""

    @property
    def words(self) -> str:
        """What was measured, in one clause."""
        took = format_duration(round(float(self.write.value or 0)))
        return f"{self.cost.n} checkpoints of the ledger that were written beside the job, in {took} each, and blocked it for 0 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a plan rests on. `figure(name)` is the one way to an input."""

    name: str = "command line"
    given: Mapping[str, Figure] = field(default_factory=dict)
    stops: Mapping[str, Figure] = field(default_factory=dict)
    """Fault domain (or class) -> mean time between its job-stopping interruptions."""
    levels: tuple[LevelInput, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about where the inputs come from."""
    free_checkpoints: FreeCheckpoints | None = None
    """Measured checkpoints without a cost: there is nothing to trade against, and so no interval that is best."""

    def figure(self, name: str) -> Figure:
        """The input, its default, or a figure without a value."""
        if name == "mtti" and name not in self.given and self.stops:
            return _joint_mean(self.stops)
        if name in self.given:
            return self.given[name]
        quantity = QUANTITIES[name]
        return Figure(
            name=name,
            value=quantity.default,
            unit=UNITS[quantity.measure],
            kind=FigureKind.ASSUMED,
            source="default",
        )

    def has(self, *names: str) -> bool:
        """True when every one of these has a value, given or by default."""
        return all(self.figure(name).value is not None for name in names)

    def value(self, name: str) -> float:
        """The value of an input that is there."""
        value = self.figure(name).value
        assert value is not None, f"{name} has no value"
        return float(value)

    def with_given(self, given: Mapping[str, Figure]) -> Scenario:
        """The same with these inputs in place of what was there; a typed mean takes the place of the stops."""
        stops = {} if "mtti" in given else self.stops
        return replace(self, given={**self.given, **given}, stops=stops)

    def regime(self, values: Mapping[str, float] | None = None) -> Regime:
        """The regime of the closed forms, from the inputs or from sampled values of them."""

        def get(name: str) -> float:
            return values[name] if values is not None and name in values else self.value(name)

        return Regime(
            mean_to_stop=get("mtti"),
            checkpoint=get("checkpoint_cost"),
            detection=get("detection"),
            recovery=get("recovery"),
            is_recovery_exposed=bool(self.value("recovery_exposed")),
        )

    def require(self, names: Iterable[str] = REQUIRED, *, is_file: bool = False) -> None:
        """Raise `Problems` with every needed input that nobody gave; `is_file`: a file is the only place for it."""
        missing = [name for name in names if not self.has(name)]
        if missing:
            raise Problems(
                Problem(
                    what=f"{name} is not given",
                    where=self.name,
                    found=self.free_checkpoints.words
                    if self.free_checkpoints and name == "checkpoint_cost"
                    else None,
                    needs=f"the {QUANTITIES[name].title}",
                    next=f"write {name}: {_example(name)} under spec:"
                    if is_file
                    else f"write --{name.replace('_', '-')} {_example(name)}",
                )
                for name in missing
            )


def _example(name: str) -> str:
    return {"mtti": "3.09h", "checkpoint_cost": "1min", "work": "30d"}.get(name, "1min")


def _joint_mean(stops: Mapping[str, Figure]) -> Figure:
    """M = 1/Σ(1/M_j) over the fault domains; its interval comes from sampling, see `sampling.py`."""
    joint = combine(
        list(stops.values()),
        lambda *means: 1 / math.fsum(1 / mean for mean in means),
        name="mtti",
        unit="us",
        source=f"sum of the rates of {', '.join(stops)}",
        assumptions=("independent Poisson failures per domain, each of which stops the job",),
    )
    return joint


def read_value(name: str, text: str, *, where: str) -> Figure:
    """An input as typed on a command line: `1min`, or `2.8h..3.09h..3.4h` for a value with its 95 % interval.

    Raises:
        BadInput: no such input, or not a value of its sort.
    """
    quantity = quantity_of(name, where=where)
    parts = [part.strip() for part in text.split("..")]
    if len(parts) not in {1, 3} or not all(parts):
        raise BadInput(
            "not a value",
            where=where,
            found=repr(text) if text.strip() else NOTHING,
            needs=f"{NEEDS[quantity.measure]}, alone or as LOW..VALUE..HIGH",
        )
    numbers = [number_of(quantity, part, where=where) for part in parts]
    interval = None
    if len(numbers) == 3:
        interval = interval_of(numbers[0], numbers[1], numbers[2], where=where, shown=text.strip())
        numbers = numbers[1:2]
    return Figure(
        name=name,
        value=numbers[0],
        unit=UNITS[quantity.measure],
        kind=FigureKind.ASSUMED,
        interval=interval,
        source=where,
    )


def quantity_of(name: str, *, where: str) -> Quantity:
    """The quantity of this name (dashes and underscores alike).

    Raises:
        BadInput: there is none; the nearest name is suggested.
    """
    plain = name.replace("-", "_")
    if plain in QUANTITIES:
        return QUANTITIES[plain]
    import difflib

    near = difflib.get_close_matches(plain, QUANTITIES, n=1, cutoff=0.5)
    raise BadInput(
        "no such input of a plan",
        where=where,
        found=name,
        needs=f"one of: {', '.join(QUANTITIES)}",
        next=f"write {near[0]}" if near else None,
    )


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,2})?")


def number_of(quantity: Quantity, value: object, *, where: str) -> float:
    """A typed value as a float in the unit of its quantity.

    Raises:
        BadInput: not a value of this sort, or outside its range.
    """
    measure = quantity.measure
    if value is None or not str(value).strip():
        raise BadInput("no value", where=where, found=NOTHING, needs=NEEDS[measure])
    if measure is _D:
        text = value if isinstance(value, str) else str(value)
        number = float(parse_duration_us(text, where=where))
    elif measure is _F:
        if str(value).lower() not in {"true", "false"}:
            raise BadInput("not a yes or no", where=where, found=str(value), needs="true or false")
        number = float(str(value).lower() == "true")
    else:
        number = _plain_number(value, where=where)
    _check_range(quantity, number, where=where, shown=str(value).strip())
    return number


def _plain_number(value: object, *, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    scale = 1.0
    if text.endswith("%"):
        text, scale = text[:-1].strip(), 0.01
    if not _NUMBER.fullmatch(text):
        raise BadInput("not a number", where=where, found=repr(value), needs="a number")
    return float(text) * scale


def _check_range(quantity: Quantity, number: float, *, where: str, shown: str) -> None:
    needs = None
    if not math.isfinite(number) or number < 0 or (number == 0 and not quantity.can_be_zero):
        needs = "zero or more" if quantity.can_be_zero else "more than zero"
    elif quantity.measure is _R and number == 1 and not quantity.can_be_one:
        needs = "less than 1, or than 100 %"
    elif quantity.measure is _R and number > 1:
        needs = "a share between 0 and 1, or a percentage"
    elif quantity.measure is _C and (number != int(number) or number > 1e9):
        needs = "a whole number"
    if needs:
        raise BadInput(f"{quantity.name} is out of range", where=where, found=shown, needs=needs)


def interval_of(
    lo: float,
    value: float,
    hi: float,
    *,
    where: str,
    shown: str,
    level: float = LEVEL,
    method: str = "as typed",
) -> Interval:
    """An interval around a value; `shown` is all three of them as the person wrote them.

    Raises:
        BadInput: the value lies outside.
    """
    if not lo <= value <= hi:
        raise BadInput(
            "an interval holds its value",
            where=where,
            found=shown,
            needs="low <= value <= high",
        )
    return Interval(lo=lo, hi=hi, level=level, method=method)
