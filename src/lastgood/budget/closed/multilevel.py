"""Several kinds of checkpoint: cheap ones often, for the failures they can mend; dear ones rarely, for the rest.

A level mends every failure that needs it or a lower level. The last level is always written: without it, the
failures that need it would lose the whole job.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.base.errors import BadInput, Refused

LEVEL_COUNT_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One kind of checkpoint, and the failures that need at least it."""

    name: str
    mean_to_stop: float
    """1/λ of the failures that need this level and no higher one."""
    checkpoint: float
    recovery: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlan:
    """The intervals of the levels that are worth having."""

    levels: tuple[str, ...]
    works: tuple[float, ...]
    """Each level's own Young interval, before nesting."""
    overhead: float
    """H* = Σ sqrt(2 λ C): checkpoint and rework, at the intervals before nesting."""
    ratios: tuple[int, ...]
    """How many checkpoints of a level lie between two of the next one, rounded so that levels nest."""
    nested_work: float
    """Interval of the first level once the ratios are whole numbers."""
    nested_overhead: float
    recovery: float
    """Share of time spent in recovery, first order."""

    @property
    def waste(self) -> float:
        """Total first-order waste of the nested plan."""
        return self.nested_overhead + self.recovery


def multilevel(levels: Sequence[Level]) -> LevelPlan:
    """The plan with exactly these levels.

    Source: Benoit, Cavelan, Le Fèvre, Robert, Sun, IEEE TC 66(7) 2017: H* = Σ sqrt(2 λ_l C_l), W_l = sqrt(2 C_l/λ_l).
    Assumes: first order; independent Poisson failures per level; a level mends all failures that need it or less.
    """
    if not 1 <= len(levels) <= LEVEL_COUNT_MAX:
        raise BadInput(
            "a plan needs levels", found=str(len(levels)), needs=f"1 to {LEVEL_COUNT_MAX}"
        )
    works = [math.sqrt(2 * level.checkpoint * level.mean_to_stop) for level in levels]
    ratios = [max(1, round(after / before)) for before, after in itertools.pairwise(works)]
    strides = list(itertools.accumulate(ratios, lambda a, b: a * b, initial=1))
    cost = math.fsum(level.checkpoint / n for level, n in zip(levels, strides, strict=True))
    hazard = math.fsum(n / level.mean_to_stop for level, n in zip(levels, strides, strict=True))
    return LevelPlan(
        levels=tuple(level.name for level in levels),
        works=tuple(works),
        overhead=math.fsum(
            math.sqrt(2 * level.checkpoint / level.mean_to_stop) for level in levels
        ),
        ratios=tuple(ratios),
        nested_work=math.sqrt(2 * cost / hazard),
        nested_overhead=math.sqrt(2 * cost * hazard),
        recovery=math.fsum(level.recovery / level.mean_to_stop for level in levels),
    )


def best_levels(levels: Sequence[Level]) -> LevelPlan:
    """The subset of the levels with the least waste; a failure whose level is left out needs the next one kept.

    Source: as for `multilevel`, every subset that keeps the last level tried.
    Assumes: as for `multilevel`; levels are given from the cheapest to the dearest.
    """
    if not 1 <= len(levels) <= LEVEL_COUNT_MAX:
        raise BadInput(
            "a plan needs levels", found=str(len(levels)), needs=f"1 to {LEVEL_COUNT_MAX}"
        )
    plans = []
    for kept in itertools.product((True, False), repeat=len(levels) - 1):
        plans.append(multilevel(_kept_levels(levels, (*kept, True))))
    best = min(plans, key=lambda plan: plan.waste)
    if best.waste >= 1:
        raise Refused(
            "no choice of levels makes progress in the first order",
            found=f"a waste of {best.waste:.2f}",
            needs="less than 1",
        )
    return best


def _kept_levels(levels: Sequence[Level], kept: tuple[bool, ...]) -> list[Level]:
    """The kept levels, each with the failure rates of those below it that were left out."""
    chosen, rate = [], 0.0
    for level, is_kept in zip(levels, kept, strict=True):
        rate += 1 / level.mean_to_stop
        if is_kept:
            chosen.append(
                Level(
                    name=level.name,
                    mean_to_stop=1 / rate,
                    checkpoint=level.checkpoint,
                    recovery=level.recovery,
                )
            )
            rate = 0.0
    return chosen
