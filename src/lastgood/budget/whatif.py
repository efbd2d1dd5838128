"""What changes when an input changes: the difference in E, and how sure its sign and the ranking are.

Plan and changed plan are computed from the same draws of the inputs, so what they share cancels. Each takes its own
best τ. A sign that holds in nearly all draws is a result; one that holds in 60 % is a coin.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lastgood.base.errors import BadInput
from lastgood.base.figures import Figure, FigureKind, Interval, combine
from lastgood.budget.closed.efficiency import efficiency
from lastgood.budget.closed.interval import exact_work
from lastgood.budget.plan import ASSUMES, parts_of
from lastgood.budget.sampling import SAMPLED, Samples, draw, interval_from
from lastgood.budget.scenario import QUANTITIES, UNITS, Scenario, quantity_of, read_value

WHAT_IF_INPUTS = (*SAMPLED, "recovery_exposed")
"""The inputs of the exact efficiency: no other changes what is compared."""
EXACT_ONLY = "what-if compares the exact efficiency"
TORNADO_FACTORS = (0.5, 2.0)
_FACTOR = re.compile(r"[x×](\d+(?:\.\d+)?)|([+-]\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change as a person wrote it: to a value, or by a factor."""

    text: str
    name: str
    value: Figure | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a change does."""

    change: str
    work: Figure
    useful: Figure
    delta: Figure
    """In points of E, changed minus plan."""
    sign_share: Figure
    """Share of the draws in which the difference has the sign that is shown."""
    rank: int
    """1 is the largest gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All changes side by side, the combination of all of them last."""

    base_work: Figure
    base_useful: Figure
    effects: tuple[Effect, ...]
    all_together: Effect | None
    ranking_share: Figure | None
    """Share of the draws in which all single changes rank as shown; None for fewer than two."""
    samples: Samples


def parse_change(text: str) -> Change:
    """`checkpoint_cost=30s`, `mtti=x2` or `recovery=-50%`.

    Raises:
        BadInput: no such input, or no value for it.
    """
    name, equals, value = text.partition("=")
    where = f"--change {text}"
    if not equals or not value.strip():
        raise BadInput(
            "not a change", where=where, found=repr(text), needs="NAME=VALUE, NAME=x2 or NAME=-50%"
        )
    quantity = quantity_of(name.strip(), where=where)
    if quantity.name not in WHAT_IF_INPUTS:
        raise BadInput(
            EXACT_ONLY,
            where=where,
            found=quantity.name,
            needs=f"one of: {', '.join(WHAT_IF_INPUTS)}",
        )
    match = _FACTOR.fullmatch(value.strip())
    if not match:
        return Change(
            text=text,
            name=quantity.name,
            value=read_value(name.strip(), value.strip(), where=where),
        )
    factor = float(match[1]) if match[1] else 1 + float(match[2]) / 100
    if factor < 0 or (factor == 0 and not quantity.can_be_zero):
        raise BadInput(
            "a change leaves something", where=where, found=value, needs="more than -100%"
        )
    return Change(text=text, name=quantity.name, factor=factor)


def apply_changes(scenario: Scenario, changes: Sequence[Change]) -> Scenario:
    """The scenario with these changes; a changed value is assumed, a scaled one keeps its interval, scaled."""
    for change in changes:
        if change.value is not None:
            scenario = scenario.with_given({change.name: change.value})
            continue
        assert change.factor is not None
        if change.name == "mtti" and scenario.stops and "mtti" not in scenario.given:
            # Each domain keeps its own draws, so that plan and changed plan stay comparable.
            stops = {name: _scaled(figure, change) for name, figure in scenario.stops.items()}
            scenario = replace(scenario, stops=stops)
            continue
        scenario = scenario.with_given({change.name: _scaled(scenario.figure(change.name), change)})
    return scenario


def _scaled(figure: Figure, change: Change) -> Figure:
    factor = change.factor or 0.0
    interval = figure.interval
    if interval is not None:
        interval = Interval(
            lo=interval.lo * factor,
            hi=interval.hi * factor,
            level=interval.level,
            method=interval.method,
        )
    return combine(
        [figure, Figure(name="change", value=factor, unit="", kind=FigureKind.ASSUMED)],
        lambda value, by: value * by,
        name=change.name,
        unit=UNITS[QUANTITIES[change.name].measure],
        source=f"changed by {change.text}",
        interval=interval,
    )


def what_if(scenario: Scenario, changes: Sequence[Change], *, seed: int = 0) -> WhatIf:
    """Compare each change, and all of them together, with the plan as it is."""
    scenario.require()
    base = _Side(scenario, draw(scenario, seed=seed))
    singles = [_Side.changed(base, [change], seed) for change in changes]
    together = _Side.changed(base, changes, seed) if len(changes) > 1 else None
    order = sorted(range(len(singles)), key=lambda i: -singles[i].value)
    ranks = {index: place for place, index in enumerate(order, 1)}
    samples = max((base, *singles), key=lambda side: len(side.samples.varied)).samples
    effects = [
        _effect(change.text, base, side, ranks[index])
        for index, (change, side) in enumerate(zip(changes, singles, strict=True))
    ]
    return WhatIf(
        base_work=base.work_figure(),
        base_useful=base.useful_figure(),
        effects=tuple(sorted(effects, key=lambda effect: effect.rank)),
        all_together=_effect("all together", base, together, 0) if together else None,
        ranking_share=_ranking_share(singles, order) if len(singles) > 1 else None,
        samples=samples,
    )


def tornado(scenario: Scenario) -> list[tuple[str, str, float, float]]:
    """What each input moves: rows of (name, title, points of E when halved, when doubled), largest first.

    Inputs of zero are left out: halving nothing is nothing. Each change takes its own best interval.
    """
    base = _best(scenario, None)
    rows = []
    for name in SAMPLED:
        if not scenario.value(name):
            continue
        ends = []
        for factor in TORNADO_FACTORS:
            change = Change(text=f"{name}=x{factor:g}", name=name, factor=factor)
            ends.append(100 * (_best(apply_changes(scenario, [change]), None) - base))
        rows.append((name, QUANTITIES[name].title, ends[0], ends[1]))
    return sorted(rows, key=lambda row: -max(abs(row[2]), abs(row[3])))


def _best(scenario: Scenario, values: Mapping[str, float] | None) -> float:
    """E at the best τ of these inputs."""
    regime = scenario.regime(values)
    return efficiency(exact_work(regime), regime)


class _Side:
    """One scenario with its best E in every draw."""

    def __init__(self, scenario: Scenario, samples: Samples) -> None:
        self.scenario = scenario
        self.samples = samples
        self.value = _best(scenario, None)
        self.drawn = (
            [_best(scenario, samples.at(index)) for index in range(samples.count)]
            if samples.varied
            else []
        )

    @staticmethod
    def changed(base: _Side, changes: Sequence[Change], seed: int) -> _Side:
        scenario = apply_changes(base.scenario, changes)
        return _Side(scenario, draw(scenario, seed=seed))

    def at(self, index: int) -> float:
        return self.drawn[index] if self.drawn else self.value

    def useful_figure(self) -> Figure:
        interval = interval_from(self.drawn, self.samples) if self.drawn else None
        return self._figure("useful fraction", self.value, "ratio", interval)

    def work_figure(self) -> Figure:
        return self._figure("interval", exact_work(self.scenario.regime()), "us", None)

    def _figure(self, name: str, value: float, unit: str, interval: Interval | None) -> Figure:
        return combine(
            parts_of(self.scenario),
            lambda *_: value,
            name=name,
            unit=unit,
            source="exact renewal formula at its own best interval",
            assumptions=ASSUMES,
            interval=_holding(interval, value),
        )


def _holding(interval: Interval | None, value: float) -> Interval | None:
    if interval is None:
        return None
    return Interval(
        lo=min(interval.lo, value),
        hi=max(interval.hi, value),
        level=interval.level,
        method=interval.method,
    )


def _effect(text: str, base: _Side, side: _Side, rank: int) -> Effect:
    value = 100 * (side.value - base.value)
    samples = side.samples if side.samples.varied else base.samples
    differences = (
        [100 * (side.at(i) - base.at(i)) for i in range(samples.count)] if samples.varied else []
    )
    interval = interval_from(differences, samples) if differences else None
    same = sum((d > 0) == (value > 0) and d != 0 for d in differences)
    delta = combine(
        [*parts_of(base.scenario), *parts_of(side.scenario)],
        lambda *_: value,
        name="change of the useful fraction",
        unit="points",
        source="difference of two exact values, same draws",
        assumptions=ASSUMES,
        interval=_holding(interval, value),
    )
    share = combine(
        [delta],
        lambda _: same / len(differences) if differences else None,
        name="sign holds",
        unit="ratio",
        source=f"share of {len(differences):,} draws"
        if differences
        else "no input has an interval",
        n=len(differences) or None,
    )
    return Effect(
        change=text,
        work=side.work_figure(),
        useful=side.useful_figure(),
        delta=delta,
        sign_share=share,
        rank=rank,
    )


def _ranking_share(sides: Sequence[_Side], order: Sequence[int]) -> Figure:
    """How often all changes rank as they do at the values themselves."""
    count = max(side.samples.count for side in sides)
    is_varied = any(side.samples.varied for side in sides)
    held = 0
    for index in range(count if is_varied else 0):
        ranked = [sides[place].at(index) for place in order]
        held += all(a >= b for a, b in itertools.pairwise(ranked))
    return combine(
        [part for side in sides for part in parts_of(side.scenario)],
        lambda *_: held / count if is_varied else None,
        name="ranking holds",
        unit="ratio",
        source=f"share of {count:,} draws" if is_varied else "no input has an interval",
        n=count if is_varied else None,
        assumptions=ASSUMES,
    )
