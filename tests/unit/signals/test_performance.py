from lastgood.signals.performance import PerformanceMemory, assess
from lastgood.signals.reading import StepReport, Symptom, Verdict


def step(*self_us: int) -> list[StepReport]:
    return [
        StepReport(
            rank=rank,
            step=1,
            digest="aa",
            loss=None,
            grad_norm=None,
            local_nonfinite=False,
            self_us=us,
            step_us=9999,
        )
        for rank, us in enumerate(self_us)
    ]


def after(*steps: list[StepReport]):
    memory = PerformanceMemory()
    for one in steps:
        verdict, memory = assess(one, memory=memory, now_us=5)
    return verdict


def test_a_rank_that_stays_slow_is_suspect():
    verdict = after(*[step(100, 300, 101, 99)] * 8)
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.SUSPECT,
        Symptom.SLOW,
        (1,),
    )


def test_seven_slow_steps_are_not_enough():
    assert after(*[step(100, 300, 101, 99)] * 7).verdict is Verdict.OK


def test_a_rank_that_was_slow_recovers():
    assert (
        after(*[step(100, 300, 101, 99)] * 8, *[step(100, 100, 101, 99)] * 3).verdict is Verdict.OK
    )


def test_all_ranks_slow_together_are_not_slow_ranks():
    assert (
        after(*[step(100, 101, 99, 100)] * 5, *[step(900, 909, 899, 900)] * 10).verdict
        is Verdict.OK
    )


def test_of_two_ranks_the_slower_one_is_named():
    assert after(*[step(300, 100)] * 8).culprits == (0,)


def test_a_rank_in_the_usual_spread_of_its_peers_is_ok():
    assert after(*[step(100, 180, 140, 60, 200, 220)] * 10).verdict is Verdict.OK


def test_a_rank_alone_cannot_be_called_slow():
    assert after(step(100)).verdict is Verdict.UNKNOWN
