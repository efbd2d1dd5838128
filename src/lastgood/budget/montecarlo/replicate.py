"""Many replications of one job: the distribution of its wall time, with intervals, and a bound on the effort.

Replications are independent and numbered; replication n gives the same numbers whoever runs it. Quantiles get
distribution-free intervals from order statistics. With a wanted half-width the runs stop as soon as the interval is
that narrow; looking again and again makes such an interval slightly too narrow, which is said where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lastgood.base.errors import BadInput, Refused
from lastgood.budget.montecarlo import kernel
from lastgood.budget.montecarlo.draws import PORTION_MAX, PORTION_MIN, Draws
from lastgood.budget.montecarlo.engine import Engine, Job, pick
from lastgood.budget.montecarlo.model import JobModel
from lastgood.budget.order_statistics import quantile_ranks

EVENT_COUNT_MAX = 20_000_000
"""Events of one replication; a job that needs more does not end in any useful time."""
HOPELESS = 5
"""Expected failures beyond this many times `EVENT_COUNT_MAX` are not even tried."""
BATCH_COUNT = 100
LEVEL = 0.95


class Estimate(NamedTuple):
    """A value and its interval at `LEVEL`; an open end is None."""

    value: float
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What the replications did; arrays by replication."""

    model: JobModel
    seed: int
    scenario: str
    engine: Engine
    wall: Any
    """Wall time from first step to final checkpoint, sorted ascending."""
    lost_work: Any
    """Useful work that was done and thrown away, by replication."""
    counts: dict[str, int]
    """Totals over all replications: events, failures, ..."""
    is_narrow: bool | None
    """Whether the wanted half-width was reached; None when none was wanted."""

    @property
    def count(self) -> int:
        """Number of replications."""
        return len(self.wall)

    def mean(self) -> Estimate:
        """Mean wall time, with the interval of the central limit theorem."""
        value = float(self.wall.mean())
        half = 1.959964 * float(self.wall.std(ddof=1)) / math.sqrt(self.count)
        return Estimate(value, value - half, value + half)

    def useful_share(self) -> Estimate:
        """Useful work over wall time: total work over mean wall time (not the mean of the ratios)."""
        value, lo, hi = self.mean()
        assert lo is not None
        assert hi is not None
        total = self.model.total_work
        return Estimate(total / value, total / hi, total / lo)

    def quantile(self, share: float) -> Estimate:
        """A quantile of the wall time; the interval is made of order statistics (exact binomial)."""
        return quantile_estimate(self.wall, share)


def quantile_estimate(ordered: Any, share: float) -> Estimate:
    """A quantile of ascending values with a distribution-free interval; an end is None when n is too small for it.

    Source: order statistics; the number of values below the true quantile is binomial (David and Nagaraja).
    Assumes: independent values.
    """
    ranks = quantile_ranks(len(ordered), share, level=LEVEL)
    return Estimate(
        float(ordered[ranks.value]),
        None if ranks.lo is None else float(ordered[ranks.lo]),
        None if ranks.hi is None else float(ordered[ranks.hi]),
    )


def simulate(
    model: JobModel,
    *,
    seed: int,
    scenario: str = "",
    count: int = 1_000,
    half_width: float | None = None,
    count_max: int = 20_000,
    engine: Engine = Engine.AUTO,
    on_progress: Callable[[int, int], None] | None = None,
) -> Runs:
    """Run the job `count` times, or, with a `half_width`, until the interval of p90 is that narrow.

    Args:
        model: the job and its world.
        seed: replays everything.
        scenario: keys the streams together with the seed, so that plans can share their failures.
        count: replications; the least number when a half-width is wanted.
        half_width: wanted half-width of the 95 % interval of p90, as a share of p90.
        count_max: replications at most.
        engine: how to run it.
        on_progress: called with (done, of) after each batch.

    Raises:
        Refused: the job makes so little progress that one replication does not end.
    """
    import numpy as np

    if not 2 <= count <= 1_000_000 or (half_width is not None and not 0 < half_width < 1):
        raise BadInput("a simulation needs 2 to 1,000,000 replications and a half-width below 1")
    _require_hope(model)
    last = max(count, count_max) if half_width is not None else count
    chosen = pick(engine, expected_events=_expected_events(model) * count)
    job = Job(_parameters(model), retained_count=model.retained_count, engine=chosen)
    portion = _portion(model)
    walls, lost, states = [], [], np.zeros(kernel.STATE_SIZE)
    is_narrow = None if half_width is None else False
    for done in range(1, last + 1):
        draws = Draws(model, seed=seed, scenario=scenario, replication=done - 1, portion=portion)
        _run_to_end(job, draws, model)
        walls.append(float(job.s[kernel.TIME]))
        lost.append(float(job.s[kernel.LOST_WORK]))
        states += np.asarray(job.s)
        if done % BATCH_COUNT and done < last:
            continue
        if on_progress:
            on_progress(done, last)
        if half_width is not None and done >= count and _is_narrow(walls, half_width):
            is_narrow = True
            break
    return Runs(
        model=model,
        seed=seed,
        scenario=scenario,
        engine=chosen,
        wall=np.sort(np.array(walls)),
        lost_work=np.array(lost),
        counts=_totals(states),
        is_narrow=is_narrow,
    )


def _run_to_end(job: Job, draws: Draws, model: JobModel) -> None:
    job.reset()
    if job.run(draws.more) != kernel.TOO_LONG:
        return
    share = float(job.s[kernel.SAVED_WORK]) / model.total_work
    raise Refused(
        "the job does not end in this world",
        found=f"{EVENT_COUNT_MAX:,} events and {100 * share:.2g} % of the work done",
        needs="a longer mean time to interruption, cheaper checkpoints or more of them",
    )


def _parameters(model: JobModel) -> list[float]:
    regime = model.regime
    parameters = [0.0] * 9
    parameters[kernel.TOTAL] = model.total_work
    parameters[kernel.WORK] = model.work
    parameters[kernel.CHECKPOINT] = regime.checkpoint
    parameters[kernel.DETECTION] = regime.detection
    parameters[kernel.RECOVERY] = regime.recovery
    parameters[kernel.IS_EXPOSED] = float(regime.is_recovery_exposed)
    parameters[kernel.FAIL_CHANCE] = model.checkpoint_failure_chance
    parameters[kernel.HAS_CORRUPTION] = float(math.isfinite(model.mean_to_corruption))
    parameters[kernel.EVENTS_MAX] = float(EVENT_COUNT_MAX)
    return [float(value) for value in parameters]


def _require_hope(model: JobModel) -> None:
    """Refuse at once what the closed form says would not end; a world near the limit is tried."""
    expected = _expected_failures(model)
    if expected > HOPELESS * EVENT_COUNT_MAX:
        raise Refused(
            "the job does not end in this world",
            found=f"about {expected:.1e} failures expected before it is done",
            needs="a longer mean time to interruption, cheaper checkpoints or more of them",
        )


def _expected_events(model: JobModel) -> float:
    """About how many events one replication has; only the choice of engine and portion depends on it."""
    segments = model.total_work / model.work
    return min(float(EVENT_COUNT_MAX), segments + 3 * _expected_failures(model))


def _expected_failures(model: JobModel) -> float:
    from lastgood.budget.closed.efficiency import expected_failures

    return model.total_work / model.work * expected_failures(model.work, model.regime)


def _portion(model: JobModel) -> int:
    failures = min(_expected_events(model), _expected_failures(model))
    return max(PORTION_MIN, min(PORTION_MAX, int(failures + 4 * math.sqrt(failures)) + 8))


def _is_narrow(walls: list[float], half_width: float) -> bool:
    estimate = quantile_estimate(sorted(walls), 0.9)
    if estimate.lo is None or estimate.hi is None:
        return False
    return (estimate.hi - estimate.lo) / 2 <= half_width * estimate.value


def _totals(states: Any) -> dict[str, int]:
    places = {
        "events": kernel.EVENTS,
        "checkpoints": kernel.CHECKPOINTS,
        "failed checkpoints": kernel.CHECKPOINT_FAILURES,
        "failures": kernel.FAILURES,
        "failures during recovery": kernel.FAILURES_IN_RECOVERY,
        "corruptions": kernel.CORRUPTIONS,
        "corruptions found": kernel.ROLLBACKS,
        "restarts from nothing": kernel.RESTARTS,
        "jobs that end corrupt": kernel.IS_CORRUPT,
    }
    return {name: round(float(states[place])) for name, place in places.items()}
