"""The simulation against the exact formulas, against a slow process-based oracle, and against itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.base.errors import BadInput, MissingExtra, Refused
from lastgood.base.rng import numpy_stream, philox_stream, stream
from lastgood.budget.closed.efficiency import efficiency, finite_job
from lastgood.budget.closed.interval import exact_work, young
from lastgood.budget.closed.regime import Regime
from lastgood.budget.montecarlo import draws, engine, replicate
from lastgood.budget.montecarlo.engine import Engine, has_compiler, pick
from lastgood.budget.montecarlo.model import JobModel
from lastgood.budget.montecarlo.replicate import quantile_estimate, simulate

CHAPTER = Regime(mean_to_stop=185.584726, checkpoint=1, detection=1, recovery=1)
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="numba is not installed")


def model(regime: Regime = CHAPTER, *, segments: float = 200, **features) -> JobModel:
    work = features.pop("work", young(regime))
    return JobModel(regime=regime, work=work, total_work=work * segments, **features)


@st.composite
def models(draw):
    mean = draw(st.floats(min_value=5, max_value=200))
    regime = Regime(
        mean_to_stop=mean,
        checkpoint=mean * draw(st.floats(min_value=0.001, max_value=0.3)),
        detection=mean * draw(st.floats(min_value=0, max_value=0.2)),
        recovery=mean * draw(st.floats(min_value=0, max_value=0.3)),
        is_recovery_exposed=draw(st.booleans()),
    )
    return model(
        regime,
        segments=draw(st.floats(min_value=0.3, max_value=30)),
        weibull_shape=draw(st.sampled_from([1.0, 0.6, 1.7])),
        burst_chance=draw(st.sampled_from([0.0, 0.3])),
        burst_gap=mean * draw(st.sampled_from([0.0, 0.02])),
        checkpoint_failure_chance=draw(st.sampled_from([0.0, 0.2])),
        mean_to_corruption=draw(st.sampled_from([math.inf, 20 * mean])),
        detection_latency=mean * draw(st.sampled_from([0.0, 0.5])),
        retained_count=draw(st.integers(min_value=1, max_value=4)),
    )


@needs_compiler
@given(models(), st.integers(min_value=0, max_value=2**40))
@settings(max_examples=60)
def test_the_compiled_and_the_interpreted_loop_give_the_same_bits(world, seed):
    runs = [
        simulate(world, seed=seed, count=5, engine=which)
        for which in (Engine.COMPILED, Engine.INTERPRETED)
    ]
    assert runs[0].wall.tobytes() == runs[1].wall.tobytes()
    assert runs[0].lost_work.tobytes() == runs[1].lost_work.tobytes()
    assert runs[0].counts == runs[1].counts


@given(models())
@settings(max_examples=20)
def test_the_size_of_the_portions_changes_nothing(world):
    with pytest.MonkeyPatch.context() as patch:
        before = simulate(world, seed=3, count=3, engine=Engine.INTERPRETED)
        patch.setattr(draws, "PORTION_MIN", 1)
        patch.setattr(replicate, "_portion", lambda *_: 1)
        after = simulate(world, seed=3, count=3, engine=Engine.INTERPRETED)
    assert before.wall.tobytes() == after.wall.tobytes()
    assert before.counts == after.counts


def test_a_replication_is_the_same_whoever_runs_before_it():
    few, many = (simulate(model(), seed=5, count=n) for n in (20, 60))
    assert set(few.wall) <= set(many.wall)
    assert set(simulate(model(), seed=6, count=20).wall).isdisjoint(few.wall)
    assert set(simulate(model(), seed=5, scenario="b", count=20).wall).isdisjoint(few.wall)
    assert philox_stream(1, "a", replication=2).random() != philox_stream(1, "a").random()


def random_regime(draw, *, is_exposed: bool) -> Regime:
    mean = 10 ** draw.uniform(0, 3)
    return Regime(
        mean_to_stop=mean,
        checkpoint=mean * 10 ** draw.uniform(-3, 0),
        detection=mean * draw.uniform(0, 0.3),
        recovery=mean * draw.uniform(0, 0.5),
        is_recovery_exposed=is_exposed,
    )


@needs_compiler
@pytest.mark.parametrize("is_exposed", [True, False])
def test_the_mean_wall_time_is_the_exact_one_within_three_and_a_half_sigma(is_exposed):
    """100 random worlds per form of recovery; the seed is fixed, so this holds or does not."""
    draw = stream(12, "worlds", str(is_exposed))
    scores = []
    for index in range(100):
        regime = random_regime(draw, is_exposed=is_exposed)
        work = exact_work(regime) * draw.uniform(0.5, 1.5)
        world = model(regime, work=work, segments=draw.uniform(20, 60))
        runs = simulate(world, seed=index, count=400, engine=Engine.COMPILED)
        sigma = runs.wall.std(ddof=1) / math.sqrt(runs.count)
        expected = finite_job(world.total_work, work=work, regime=regime).wall
        scores.append((runs.wall.mean() - expected) / sigma)
    assert max(map(abs, scores)) < 3.5
    # Neither form may be off by a little everywhere.
    assert abs(sum(scores)) / math.sqrt(len(scores)) < 3.5
    assert 0.8 < np.std(scores) < 1.25


@needs_compiler
def test_the_interval_of_the_mean_covers_the_exact_value_as_often_as_it_says():
    work = young(CHAPTER)
    expected = finite_job(30 * work, work=work, regime=CHAPTER).wall
    covered = 0
    for seed in range(400):
        _, lo, hi = simulate(
            model(segments=30), seed=seed, count=100, engine=Engine.COMPILED
        ).mean()
        covered += lo <= expected <= hi
    assert 0.92 <= covered / 400 <= 0.98


def test_the_interval_of_a_quantile_covers_it_as_often_as_it_says():
    draw = numpy_stream(4, "quantiles")
    for share in (0.5, 0.9, 0.99):
        truth, covered = -math.log(1 - share), 0
        for _ in range(1_000):
            estimate = quantile_estimate(np.sort(draw.exponential(size=800)), share)
            assert estimate.lo is not None
            assert estimate.hi is not None
            covered += estimate.lo <= truth <= estimate.hi
        assert 0.94 <= covered / 1_000 <= 0.985


def test_a_quantile_that_few_runs_cannot_bound_says_so():
    few = quantile_estimate(np.arange(100.0), 0.99)
    assert few.hi is None
    assert few.lo is not None


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "expected"), [(0.5, 0.9000), (0.7, 0.8936), (1.0, 0.8901), (1.5, 0.8889)]
)
def test_weibull_gaps_of_the_same_mean_give_the_published_efficiency(shape, expected):
    world = model(segments=20_000, weibull_shape=shape)
    _, lo, hi = simulate(world, seed=3, count=100, engine=Engine.COMPILED).useful_share()
    assert lo - 0.0003 <= expected <= hi + 0.0003  # the published digits carry their own error


def process_oracle(world: JobModel, draw) -> float:
    """The same job as processes and timeouts of SimPy, written without a look at the kernel."""
    simpy = pytest.importorskip("simpy")
    env = simpy.Environment()
    regime = world.regime
    never = env.event()

    def gap():
        chance, short = world.burst_chance, world.burst_gap
        if draw.random() < chance:
            return draw.exponential(short)
        mean = (regime.mean_to_stop - chance * short) / (1 - chance)
        shape = world.weibull_shape
        return draw.weibull(shape) * mean / math.gamma(1 + 1 / shape)

    def job():
        saved, done, kept, corrupt_at, found = 0.0, 0.0, [], None, never
        to_corruption = draw.exponential(world.mean_to_corruption)
        failure = env.timeout(gap())
        while saved < world.total_work - 1e-9:
            segment = min(world.work, world.total_work - done)
            before = env.now
            end = env.timeout(segment)
            onset = (
                env.timeout(to_corruption)
                if corrupt_at is None and to_corruption < segment
                else never
            )
            yield end | failure | found | onset
            if onset is not never and onset.processed and not (failure.processed or end.processed):
                corrupt_at = env.now
                found = env.timeout(draw.exponential(world.detection_latency))
                yield end | failure | found
            written = end.processed and not (failure.processed or found.processed)
            if written:
                began = env.now
                yield env.timeout(regime.checkpoint) | failure | found
                written = not (failure.processed or found.processed)
            if corrupt_at is None:
                to_corruption -= min(segment, env.now - before)
            if written:
                done += segment
                if draw.random() >= world.checkpoint_failure_chance:
                    saved = done
                    kept = [*kept, (saved, began)][-world.retained_count :]
                continue
            if failure.processed:
                clean = not kept or (corrupt_at is not None and kept[-1][1] <= corrupt_at)
            else:
                kept = [one for one in kept if one[1] <= corrupt_at]
                clean = True
                saved = kept[-1][0] if kept else 0.0
            if corrupt_at is not None and clean:
                corrupt_at, found = None, never
                to_corruption = draw.exponential(world.mean_to_corruption)
            done = saved
            paused = None if failure.processed else failure._delay - (env.now - armed(failure))
            yield env.timeout(regime.detection)
            while True:
                failure = env.timeout(gap() if paused is None else paused)
                if not regime.is_recovery_exposed:
                    left = failure._delay
                    yield env.timeout(regime.recovery)
                    failure = env.timeout(left)
                    break
                restored = env.timeout(regime.recovery)
                yield restored | failure
                if not failure.processed:
                    break
                paused = None
                yield env.timeout(regime.detection)

    starts = {}
    make = env.timeout

    def timeout(delay):
        event = make(delay)
        starts[event] = env.now
        return event

    def armed(event):
        return starts[event]

    env.timeout = timeout
    env.run(env.process(job()))
    return env.now


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"weibull_shape": 0.6},
        {"burst_chance": 0.3, "burst_gap": 0.5},
        {"checkpoint_failure_chance": 0.15},
        {"mean_to_corruption": 150.0, "detection_latency": 12.0, "retained_count": 2},
        {"mean_to_corruption": 150.0, "detection_latency": 40.0, "retained_count": 1},
    ],
    ids=["plain", "weibull", "bursts", "failed writes", "late detection", "one kept"],
)
@pytest.mark.parametrize("is_exposed", [True, False])
def test_every_feature_agrees_with_processes_of_simpy(features, is_exposed):
    regime = Regime(
        mean_to_stop=40.0,
        checkpoint=2.0,
        detection=3.0,
        recovery=6.0,
        is_recovery_exposed=is_exposed,
    )
    world = model(regime, segments=12.5, **features)
    draw = numpy_stream(8, "oracle", *map(str, features), str(is_exposed))
    slow = np.array([process_oracle(world, draw) for _ in range(300)])
    fast = simulate(world, seed=8, count=3_000, engine=Engine.INTERPRETED).wall
    sigma = math.hypot(slow.std() / math.sqrt(len(slow)), fast.std() / math.sqrt(len(fast)))
    assert abs(slow.mean() - fast.mean()) < 3.5 * sigma
    assert slow.std() == pytest.approx(fast.std(), rel=0.25)


def test_a_narrow_enough_interval_ends_the_runs_early():
    wide = simulate(model(segments=20), seed=1, count=200, half_width=0.2, count_max=5_000)
    narrow = simulate(model(segments=20), seed=1, count=200, half_width=0.01, count_max=5_000)
    never = simulate(model(segments=20), seed=1, count=200, half_width=0.0001, count_max=400)
    assert (wide.count, wide.is_narrow) == (200, True)
    assert 200 < narrow.count < 5_000
    assert narrow.is_narrow
    assert (never.count, never.is_narrow) == (400, False)


def test_progress_is_told_and_ends_with_all():
    told = []
    simulate(model(segments=5), seed=1, count=250, on_progress=lambda *parts: told.append(parts))
    assert told == [(100, 250), (200, 250), (250, 250)]


def test_a_job_that_never_ends_is_refused(monkeypatch):
    monkeypatch.setattr(replicate, "EVENT_COUNT_MAX", 10_000)
    hopeless = Regime(mean_to_stop=1.0, checkpoint=30.0)
    with pytest.raises(Refused, match="failures expected before it is done"):
        simulate(model(hopeless, segments=1_000), seed=1, count=2)
    # A little better, so that it is tried: 24,000 failures are expected, below five times the limit.
    hard = Regime(mean_to_stop=1.0, checkpoint=5.0)
    work = 1.0
    with pytest.raises(Refused, match=r"10,000 events and .* of the work done"):
        simulate(model(hard, work=work, segments=60), seed=1, count=2)


@pytest.mark.parametrize(
    "features",
    [{"weibull_shape": 0.0}, {"burst_chance": 1.0}, {"retained_count": 0}, {"work": -1.0}],
)
def test_a_world_that_cannot_be_is_bad_input(features):
    with pytest.raises(BadInput, match="cannot use this"):
        model(**features)


def test_without_numba_the_loop_is_interpreted_and_a_wish_for_it_names_the_extra(monkeypatch):
    monkeypatch.setattr(engine, "has_compiler", lambda: False)
    assert pick(Engine.AUTO, expected_events=1e12) is Engine.INTERPRETED
    engine.compiled.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(MissingExtra, match=r"lastgood\[sim\]"):
        engine.compiled()


def test_a_late_corruption_costs_more_when_fewer_checkpoints_are_kept():
    def useful(kept):
        world = model(
            segments=50, mean_to_corruption=500.0, detection_latency=40.0, retained_count=kept
        )
        return simulate(world, seed=2, count=300, engine=Engine.INTERPRETED)

    one, many = useful(1), useful(20)
    assert one.counts["restarts from nothing"] > many.counts["restarts from nothing"]
    assert one.useful_share().hi < many.useful_share().lo
    assert many.useful_share().hi < efficiency(young(CHAPTER), CHAPTER)


@pytest.mark.parametrize(
    "features",
    [{"weibull_shape": 0.6}, {"burst_chance": 0.4, "burst_gap": 60.0}, {"weibull_shape": 2.0}],
)
def test_the_mean_gap_stays_as_declared_whatever_its_shape(features):
    source = draws.Draws(model(**features), seed=1, scenario="", replication=0, portion=60_000)
    gaps = source.more(0)
    error = gaps.std() / math.sqrt(len(gaps))
    assert abs(gaps.mean() - CHAPTER.mean_to_stop) < 3.5 * error
