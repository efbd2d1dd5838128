"""The detectors over the pages of real slots: where they stop, and what they learn from a recovery."""

import math
from types import SimpleNamespace

import pytest

from lastgood.base.clock import SystemClock
from lastgood.contract.load import parse_contract
from lastgood.contract.starter import starter_text
from lastgood.recovery.messages import Record
from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase, StepReport, Symptom, Verdict
from lastgood.training.slot import StatusSlot
from lastgood.training.watching.watch import Watch

S = 1_000_000


@pytest.fixture
def ranks(tmp_path):
    made = [StatusSlot(tmp_path / f"w{rank}", create=True) for rank in range(4)]
    for rank, slot in enumerate(made):
        slot.begin_generation(1, rank)
    yield made
    for slot in made:
        slot.close()


def publish(slots, step, *, slow=None, digest="ab", between_us=0, starved_us=0):
    for rank, slot in enumerate(slots):
        slot.publish(
            StepReport(
                rank=rank, step=step, digest=digest if rank != 3 else "ab", loss=1.0, grad_norm=1.0,
                local_nonfinite=False, self_us=300_000 if rank == slow else 100_000 + rank, step_us=400_000,
                between_us=between_us, starved_us=starved_us,
            ),
            done_wall_us=step,
        )  # fmt: skip


def play(watch, slots, steps, **options):
    """Publish and assess step by step; the verdicts on the pace."""
    workers = [SimpleNamespace(slot=slot) for slot in slots]
    found = []
    for step in steps:
        publish(slots, step, **options)
        found += [a.performance for a in watch.assess_steps(workers, now_us=step * S)]
    return found


def started(**options) -> Watch:
    watch = Watch(Limits(), **options)
    watch.begin_generation(1, next_step=1)
    return watch


def closed(outcome: str, **times) -> Record:
    return Record(kind="incident.close", fields={**times, "body": {"outcome": outcome}})


def first_failed(verdicts) -> int:
    return next(i for i, v in enumerate(verdicts) if v.verdict is Verdict.FAILED)


def test_a_slow_rank_is_replaced_when_it_has_cost_what_recoveries_of_this_run_took(ranks):
    watch = started()
    play(watch, ranks, range(1, 51))
    watch.hear(closed("escalated", isolate_us=1))
    for isolate_us in (1 * S, 2 * S, 3 * S):
        watch.hear(closed("recovered", isolate_us=isolate_us, verify_us=S))
    verdicts = play(watch, ranks, range(51, 81), slow=2)
    excess_us = 300_000 - 100_003  # rank 3 is the slowest of the others
    first = math.ceil(3 * S / excess_us) - 1
    assert first_failed(verdicts) == first
    assert verdicts[first - 1].verdict is Verdict.SUSPECT


def test_the_watch_stops_behind_a_step_that_has_to_be_acted_upon(ranks):
    watch = started()
    play(watch, ranks, range(1, 51))
    watch.hear(closed("recovered", isolate_us=1))
    workers = [SimpleNamespace(slot=slot) for slot in ranks]
    for step in range(51, 63):  # twelve steps are there before anybody looks
        publish(ranks, step, slow=2)
    found = [a.performance.verdict for a in watch.assess_steps(workers, now_us=70 * S)]
    assert found == [Verdict.OK] * 7 + [Verdict.FAILED]
    assert watch.next_step == 59


def test_the_contract_says_what_is_done_and_what_it_costs(ranks):
    text = starter_text().replace("cost: 30s", "cost: 1s")
    watch = started(recovery=parse_contract(text).spec.recovery)
    play(watch, ranks, range(1, 51))
    assert first_failed(play(watch, ranks, range(51, 81), slow=2)) == 8 - 1


def test_a_contract_that_only_records_never_fails_a_slow_rank(ranks):
    text = starter_text().replace("cost: 30s", "cost: 1s").replace("act: replace", "act: record")
    watch = started(recovery=parse_contract(text).spec.recovery)
    play(watch, ranks, range(1, 51))
    verdicts = play(watch, ranks, range(51, 151), slow=2)
    assert {v.verdict for v in verdicts} == {Verdict.OK, Verdict.SUSPECT}


def test_a_run_that_is_only_observed_never_has_a_slow_rank_that_failed(ranks):
    watch = started(is_observing=True)
    play(watch, ranks, range(1, 51))
    watch.hear(closed("recovered", isolate_us=1))
    verdicts = play(watch, ranks, range(51, 81), slow=2)
    assert verdicts[-1].verdict is Verdict.SUSPECT
    assert "recorded and not replaced here" in verdicts[-1].evidence[0]


def test_a_slow_rank_is_only_recorded_where_the_kernel_does_not_count_its_wait(ranks):
    watch = started()
    play(watch, ranks, range(1, 51), starved_us=None)
    watch.hear(closed("recovered", isolate_us=1))
    verdicts = play(watch, ranks, range(51, 101), slow=2, starved_us=None)
    assert (verdicts[-1].verdict, verdicts[-1].culprits) == (Verdict.SUSPECT, (2,))
    assert Verdict.FAILED not in {v.verdict for v in verdicts}
    assert "this kernel does not say how long it waited for a processor" in verdicts[-1].evidence[0]


def test_nobody_asks_how_fast_a_wrong_step_was(ranks):
    watch = started()
    play(watch, ranks, range(1, 51))
    workers = [SimpleNamespace(slot=slot) for slot in ranks]
    publish(ranks, 51, digest="cd")
    (found,) = watch.assess_steps(workers, now_us=60 * S)
    assert (found.correctness.verdict, found.performance.verdict) == (
        Verdict.FAILED,
        Verdict.UNKNOWN,
    )


@pytest.mark.parametrize(
    ("phase", "is_observing", "is_told"),
    [
        (Phase.BETWEEN, False, True),
        (Phase.COMPUTE, False, False),
        (Phase.BETWEEN, True, False),  # an unchanged script has no run to declare it on
    ],
)
def test_a_hang_between_two_steps_says_how_to_declare_an_evaluation(
    ranks, phase, is_observing, is_told
):
    watch = started(is_observing=is_observing)
    late_us = SystemClock().monotonic_us() + 3600 * S
    for rank, slot in enumerate(ranks):
        slot.enter(Phase.COMPUTE, step=5)
        if rank != 2:
            slot.count_launch(is_last=True)
    ranks[2].enter(phase)
    workers = [SimpleNamespace(slot=s, name="w", pid=0, exit_code=None) for s in ranks]
    verdict = watch.assess_liveness(workers, {}, now_us=late_us)
    assert (verdict.symptom, verdict.culprits) == (Symptom.HANG, (2,))
    assert ('run.section("eval")' in " ".join(verdict.evidence)) is is_told
