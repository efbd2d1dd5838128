"""Laws of the detectors over arbitrary readings and reports."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from lastgood.signals import correctness, liveness, performance
from lastgood.signals.limits import Limits, learn, limit_of_key_us
from lastgood.signals.reading import (
    Phase,
    ProcessState,
    Raised,
    RankReading,
    StepReport,
    Symptom,
    Verdict,
)

NOW = 1_000_000_000
LIMITS = Limits(step_floor_us=1_000_000, warmup_floor_us=3_000_000, section_floor_us=3_000_000)

raised = st.builds(
    Raised,
    type_name=st.sampled_from(["ValueError", "RuntimeError"]),
    message=st.just("no"),
    is_group_error=st.booleans(),
    step=st.integers(1, 9),
    t_us=st.integers(NOW - 20_000_000, NOW),
)


@st.composite
def readings(draw, *, quiet: bool = False):
    found = []
    for rank in range(draw(st.integers(1, 5))):
        found.append(
            RankReading(
                rank=rank,
                worker=f"w{rank}",
                pid=rank,
                generation=draw(st.sampled_from([1, 2])),
                exit_code=None if quiet else draw(st.none() | st.sampled_from([-9, 0, 1])),
                phase=draw(st.sampled_from(Phase)),
                step=7,
                published_step=6,
                launches=draw(st.integers(0, 3)),
                completions=draw(st.integers(0, 3)),
                progress_us=NOW - draw(st.integers(0, 900_000 if quiet else 9_000_000)),
                process=draw(st.sampled_from(ProcessState)),
                cpu_us=draw(st.integers(0, 5_000_000)),
                runqueue_wait_us=draw(st.integers(0, 5_000_000)),
                section=draw(st.none() | st.just("eval")),
                section_limit_us=draw(st.none() | st.integers(1_000_000, 5_000_000)),
                raised=None if quiet else draw(st.none() | raised),
            )
        )
    return found


@given(readings())
def test_a_verdict_names_only_ranks_that_are_there_and_failure_always_names_one(found):
    verdict = liveness.assess(found, limits=LIMITS, now_us=NOW)
    assert set(verdict.culprits) <= {r.rank for r in found}
    assert list(verdict.culprits) == sorted(set(verdict.culprits))
    assert (verdict.verdict is Verdict.FAILED) <= bool(verdict.culprits)
    assert (verdict.verdict is Verdict.OK) == (verdict.symptom is None)
    assert (verdict.symptom is None) or bool(verdict.evidence)
    assert verdict.onset_us is None or verdict.onset_us <= NOW


@given(readings(), st.randoms(use_true_random=False))
def test_the_order_of_the_readings_does_not_matter(found, random):
    mixed = list(found)
    random.shuffle(mixed)
    one = liveness.assess(found, limits=LIMITS, now_us=NOW)
    other = liveness.assess(mixed, limits=LIMITS, now_us=NOW)
    assert (one.verdict, one.symptom, one.culprits) == (
        other.verdict,
        other.symptom,
        other.culprits,
    )


@given(readings(quiet=True))
def test_ranks_that_all_moved_within_every_limit_are_never_accused(found):
    assert liveness.assess(found, limits=LIMITS, now_us=NOW).verdict is Verdict.OK


@given(readings())
def test_who_waits_for_the_supervisor_is_never_called_hung(found):
    waiting = [dataclasses.replace(r, phase=Phase.HELD, exit_code=None, raised=None) for r in found]
    assert liveness.assess(waiting, limits=LIMITS, now_us=NOW).verdict is Verdict.OK


@given(readings(), readings(), st.integers(0, 2_000_000))
def test_memory_never_changes_what_is_said_of_processes_that_ended(before, now, gap_us):
    memory = liveness.remember(None, before, now_us=NOW - gap_us)
    with_memory = liveness.assess(now, limits=LIMITS, now_us=NOW, previous=memory)
    without = liveness.assess(now, limits=LIMITS, now_us=NOW)
    if Symptom.PROCESS_EXIT in (with_memory.symptom, without.symptom):
        assert with_memory == without


@given(st.lists(st.integers(0, 10**9), max_size=200), st.floats(1, 50), st.floats(0.01, 1))
def test_a_limit_lies_between_the_floor_and_the_factor_times_the_slowest(
    durations_us, factor, quantile
):
    limits = Limits(factor=factor, quantile=quantile)
    for duration_us in durations_us:
        limits = learn(limits, "compute", duration_us)
    limit = limit_of_key_us(limits, "compute")
    assert limit >= limits.step_floor_us
    assert limit <= max(limits.step_floor_us, factor * max(durations_us, default=0) + 1)
    assert len(limits.samples.get("compute", ())) <= limits.sample_count_max


digests = st.integers(1, 5).map(lambda world: ["aa"] * world) | st.lists(
    st.sampled_from(["aa", "bb", "cc", ""]), min_size=1, max_size=7
)
numbers = st.sampled_from([None, 1.0, 1.0, 1.0, float("nan"), float("-inf")])


@given(digests, st.data())
def test_only_a_whole_world_of_equal_finite_replicas_is_ok(found, data):
    reports = [
        StepReport(
            rank=rank,
            step=3,
            digest=digest,
            loss=data.draw(numbers),
            grad_norm=data.draw(numbers),
            local_nonfinite=data.draw(st.sampled_from([False, False, False, True])),
            self_us=1,
            step_us=2,
        )
        for rank, digest in enumerate(found)
    ]
    verdict, _ = correctness.assess(
        reports, memory=correctness.CorrectnessMemory(), world=len(found), now_us=0
    )
    finite = [
        not r.local_nonfinite
        and all(v is None or abs(v) < float("inf") for v in (r.loss, r.grad_norm))
        for r in reports
    ]
    is_good = all(finite) and len(set(found)) == 1 and "" not in found
    assert (verdict.verdict is Verdict.OK) == is_good
    if verdict.symptom is Symptom.REPLICA_DIVERGENCE and verdict.culprits:
        majority = {d for r, d in enumerate(found) if r not in verdict.culprits and d}
        assert len(majority) == 1
        assert 2 * found.count(majority.pop()) > len(found)


@given(
    st.lists(st.lists(st.integers(0, 10**7), min_size=4, max_size=4), max_size=30),
    st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), min_size=4, max_size=4),
)
def test_never_all_ranks_are_called_slow(steps, waits):
    memory = performance.PerformanceMemory()
    for number, self_us in enumerate(steps):
        reports = [
            StepReport(
                rank=r, step=number, digest="", loss=None, grad_norm=None, local_nonfinite=False,
                self_us=us, step_us=us, starved_us=None if waits[r] is None else int(us * waits[r]),
            )
            for r, us in enumerate(self_us)
        ]  # fmt: skip
        verdict, memory = performance.assess(reports, memory=memory, now_us=0)
        assert len(verdict.culprits) < 4
        for pace in memory.ranks.values():
            assert len(pace.recent) <= memory.window_count
            assert len(pace.usual) <= memory.usual_count_max
            assert pace.lost_us >= 0
