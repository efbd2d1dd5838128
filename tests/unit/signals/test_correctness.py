import math

import pytest

from lastgood.signals.correctness import CorrectnessMemory, assess
from lastgood.signals.reading import StepReport, Symptom, Verdict


def report(rank: int, **changes) -> StepReport:
    fields = {
        "rank": rank, "step": 9, "digest": "aa", "loss": 2.0, "grad_norm": 1.0, "local_nonfinite": False,
        "self_us": 10, "step_us": 20,
    }  # fmt: skip
    return StepReport(**{**fields, **changes})


def check(*reports: StepReport, memory: CorrectnessMemory | None = None, world: int = 4):
    return assess(reports, memory=memory or CorrectnessMemory(), world=world, now_us=77)


def reports(**of_rank) -> list[StepReport]:
    return [report(rank, **of_rank.get(f"r{rank}", {})) for rank in range(4)]


def used_to(loss: float, grad_norm: float = 1.0, count: int = 20) -> CorrectnessMemory:
    return CorrectnessMemory(losses=(loss,) * count, grad_norms=(grad_norm,) * count)


def test_equal_replicas_with_ordinary_numbers_are_ok():
    verdict, memory = check(*reports())
    assert verdict.verdict is Verdict.OK
    assert memory.losses == (2.0,)


def test_a_minority_of_replicas_is_named_with_the_first_divergent_step():
    verdict, memory = check(*reports(r2={"digest": "bb"}))
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.REPLICA_DIVERGENCE)
    assert (verdict.culprits, verdict.first_divergent_step) == ((2,), 9)
    assert memory.losses == ()


def test_every_replica_outside_the_majority_is_named():
    five = [report(r, digest=d) for r, d in enumerate(["aa", "bb", "aa", "cc", "aa"])]
    assert check(*five, world=5)[0].culprits == (1, 3)


@pytest.mark.parametrize(
    "digests", [("aa", "bb"), ("aa", "aa", "bb", "bb"), ("aa", "aa", "bb", "cc")]
)
def test_without_a_majority_nobody_is_named(digests):
    verdict, _ = check(*[report(r, digest=d) for r, d in enumerate(digests)], world=len(digests))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.UNKNOWN, Symptom.REPLICA_DIVERGENCE, (),
    )  # fmt: skip
    assert verdict.first_divergent_step == 9


def test_a_missing_digest_is_unknown_and_never_ok():
    assert check(*reports(r1={"digest": ""}))[0].verdict is Verdict.UNKNOWN
    assert check(*reports()[:3])[0].verdict is Verdict.UNKNOWN
    assert check()[0].verdict is Verdict.UNKNOWN


def test_the_majority_is_one_of_the_world_and_not_of_those_who_spoke():
    verdict, _ = check(report(0), report(1), report(2, digest="bb"), world=6)
    assert (verdict.verdict, verdict.culprits) == (Verdict.UNKNOWN, ())


@pytest.mark.parametrize(
    "sign", [{"local_nonfinite": True}, {"loss": math.nan}, {"loss": -math.inf}]
)
def test_a_rank_with_its_own_bad_number_is_named(sign):
    verdict, _ = check(*reports(r3=sign))
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.NONFINITE)
    assert (verdict.culprits, verdict.first_divergent_step) == ((3,), 9)


def test_a_bad_number_everywhere_names_nobody():
    verdict, _ = check(*[report(r, local_nonfinite=True) for r in range(4)])
    assert (verdict.verdict, verdict.culprits) == (Verdict.FAILED, ())


def test_a_bad_reduced_gradient_names_nobody():
    verdict, _ = check(*[report(r, grad_norm=math.nan) for r in range(4)])
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.NONFINITE,
        (),
    )


def test_a_bad_number_is_stronger_evidence_than_a_divergent_replica():
    verdict, _ = check(*reports(r3={"local_nonfinite": True}, r1={"digest": "bb"}))
    assert verdict.symptom is Symptom.NONFINITE


@pytest.mark.parametrize(
    ("loss", "expected"), [(10.0, Verdict.OK), (10.1, Verdict.SUSPECT), (-10.1, Verdict.SUSPECT)]
)
def test_five_times_the_usual_loss_is_a_jump(loss, expected):
    verdict, _ = check(*[report(r, loss=loss) for r in range(4)], memory=used_to(2.0))
    assert verdict.verdict is expected


def test_a_jump_of_the_gradient_norm_is_suspect_and_names_nobody():
    verdict, memory = check(*[report(r, grad_norm=6.0) for r in range(4)], memory=used_to(2.0))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.SUSPECT,
        Symptom.NUMERIC_JUMP,
        (),
    )
    assert memory.grad_norms == (1.0,) * 20


def test_early_steps_may_jump():
    verdict, _ = check(*[report(r, loss=100.0) for r in range(4)], memory=used_to(2.0, count=19))
    assert verdict.verdict is Verdict.OK


def test_a_threshold_that_is_not_a_number_fails_closed():
    memory = CorrectnessMemory(jump_factor=math.nan, losses=(2.0,) * 20)
    assert check(*reports(), memory=memory)[0].verdict is Verdict.SUSPECT


def test_nothing_to_compare_is_no_jump():
    verdict, memory = check(
        *[report(r, loss=None, grad_norm=None) for r in range(4)], memory=used_to(2.0)
    )
    assert verdict.verdict is Verdict.OK
    assert len(memory.losses) == 20


def test_the_reference_is_bounded():
    assert len(check(*reports(), memory=used_to(2.0, count=64))[1].losses) == 64


def test_reports_of_two_steps_are_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="one step"):
        check(report(0), report(1, step=10))
