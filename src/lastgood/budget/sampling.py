"""Uncertain inputs drawn many times, so that a result can say how sure it is.

Each input with an interval is drawn from a two-piece log-normal: its median is the value, and the ends of the interval
are its quantiles. Every input has a random stream of its own name, so two plans that share an input draw the same
values of it, and their difference is not blurred by chance.

Source: two-piece (split) normal on the logarithm, Wallis 2014; Monte Carlo propagation as in JCGM 101:2008.
Assumes: inputs independent of each other; an input without an interval is held fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.base.figures import Figure, Interval
from lastgood.base.rng import numpy_stream
from lastgood.budget.scenario import LEVEL, QUANTITIES, Measure, Scenario

if TYPE_CHECKING:
    import numpy as np

SAMPLE_COUNT = 2_000
SAMPLED = ("mtti", "checkpoint_cost", "detection", "recovery")
"""Inputs of the closed forms, whose intervals are propagated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Values of the inputs, one list per input; inputs that are held fixed have one value throughout."""

    values: dict[str, list[float]]
    varied: tuple[str, ...]
    seed: int

    @property
    def count(self) -> int:
        """How many draws."""
        return len(next(iter(self.values.values())))

    def at(self, index: int) -> dict[str, float]:
        """One draw of all inputs."""
        return {name: values[index] for name, values in self.values.items()}

    @property
    def method(self) -> str:
        """The words that stand beside an interval made of these draws."""
        fixed = [name for name in self.values if name not in self.varied]
        return f"{self.count:,} draws of {', '.join(self.varied)}" + (
            f"; {', '.join(fixed)} held fixed" if fixed else ""
        )


def draw(scenario: Scenario, *, seed: int, count: int = SAMPLE_COUNT) -> Samples:
    """Draw the inputs of the closed forms."""
    values: dict[str, list[float]] = {}
    varied = []
    for name in SAMPLED:
        if name == "mtti" and name not in scenario.given and scenario.stops:
            drawn = _draw_joint(scenario, seed=seed, count=count)
            is_varied = any(figure.interval for figure in scenario.stops.values())
        else:
            figure = scenario.figure(name)
            is_varied = figure.interval is not None
            drawn = _draw_one(figure, name, seed=seed, count=count)
        values[name] = [float(value) for value in drawn]
        if is_varied:
            varied.append(name)
    return Samples(values=values, varied=tuple(varied), seed=seed)


def _draw_joint(scenario: Scenario, *, seed: int, count: int) -> np.ndarray:
    import numpy as np

    rates = np.zeros(count)
    for name, figure in scenario.stops.items():
        rates += 1 / _draw_one(figure, f"stops/{name}", seed=seed, count=count)
    return 1 / rates


def _draw_one(figure: Figure, name: str, *, seed: int, count: int) -> np.ndarray:
    import numpy as np

    assert figure.value is not None
    value = float(figure.value)
    if figure.interval is None:
        return np.full(count, value)
    z = numpy_stream(seed, "plan inputs", name).standard_normal(count)
    drawn = spread_around(value, figure.interval, z)
    quantity = QUANTITIES.get(name)
    return np.minimum(drawn, 1.0) if quantity and quantity.measure is Measure.RATIO else drawn


def spread_around(value: float, interval: Interval, z: np.ndarray) -> np.ndarray:
    """Values of the two-piece log-normal at these standard normal scores; two-piece normal when the low end is 0."""
    import numpy as np
    from scipy.special import ndtri

    edge = float(ndtri((1 + interval.level) / 2))
    if interval.lo > 0 and value > 0:
        low, high = math.log(value / interval.lo) / edge, math.log(interval.hi / value) / edge
        return value * np.exp(z * np.where(z < 0, low, high))
    low, high = (value - interval.lo) / edge, (interval.hi - value) / edge
    return np.maximum(0.0, value + z * np.where(z < 0, low, high))


def interval_from(
    values: Sequence[float], samples: Samples, *, level: float = LEVEL
) -> Interval | None:
    """The central interval of drawn results; None when nothing was varied."""
    if not samples.varied:
        return None
    import numpy as np

    tail = (1 - level) / 2
    lo, hi = np.quantile(np.asarray(values), [tail, 1 - tail])
    return Interval(lo=float(lo), hi=float(hi), level=level, method=samples.method)


def map_samples(
    scenario: Scenario, samples: Samples, value_of: Callable[[Scenario, dict[str, float]], float]
) -> list[float]:
    """A result for each draw; once when nothing varies."""
    indexes = range(samples.count) if samples.varied else range(1)
    return [value_of(scenario, samples.at(index)) for index in indexes]
