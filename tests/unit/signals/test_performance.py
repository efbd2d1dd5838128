"""Who is slow, since when, and whether it is worth a recovery. Self times in microseconds, four ranks."""

import math

import pytest

from lastgood.signals.pace import find_change
from lastgood.signals.performance import (
    PerformanceMemory,
    assess,
    begin_generation,
    learn_recovery,
)
from lastgood.signals.reading import StepReport, Symptom, Verdict

S = 1_000_000
EVEN = (100_000, 102_000, 101_000, 99_000)
SLOW = (100_000, 306_000, 101_000, 99_000)
"""Rank 1 takes three times as long: every step costs the job about 204 ms."""


def step(*self_us: int, number: int = 1, work=None, between=None, starved=0) -> list[StepReport]:
    return [
        StepReport(
            rank=rank,
            step=number,
            digest="aa",
            loss=None,
            grad_norm=None,
            local_nonfinite=False,
            self_us=us,
            step_us=9999,
            work=work[rank] if work else None,
            between_us=between[rank] if between else 0,
            starved_us=starved[rank] if isinstance(starved, tuple) else starved,
        )
        for rank, us in enumerate(self_us)
    ]


def play(*rows, memory=None, seconds_per_step: float = 0.1):
    """All verdicts of a row of steps, and the memory at the end."""
    memory = memory or PerformanceMemory(skip_count=0)
    verdicts = []
    for number, row in enumerate(rows, start=1):
        reports = row if isinstance(row, list) else step(*row, number=number)
        now_us = int(number * seconds_per_step * S)
        verdict, memory = assess(reports, memory=memory, now_us=now_us)
        verdicts.append(verdict)
    return verdicts, memory


def last(*rows, **options):
    return play(*rows, **options)[0][-1]


# --- slow -----------------------------------------------------------------------------------------


def test_a_rank_that_stays_slow_is_suspect():
    verdict = last(*[EVEN] * 30, *[SLOW] * 8)
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.SUSPECT,
        Symptom.SLOW,
        (1,),
    )
    assert "8 of its last 10 steps slow, 3.06 times" in verdict.evidence[0]


def test_seven_slow_steps_are_not_enough():
    assert last(*[EVEN] * 30, *[SLOW] * 7).verdict is Verdict.OK


def test_a_rank_that_was_slow_recovers_and_its_loss_is_forgotten():
    verdicts, memory = play(*[EVEN] * 30, *[SLOW] * 20, *[EVEN] * 3)
    assert verdicts[-1].verdict is Verdict.OK
    assert (memory.ranks[1].lost_us, memory.ranks[1].began) == (0, None)


def test_all_ranks_slow_together_are_not_slow_ranks():
    slow_host = tuple(9 * us for us in EVEN)
    verdicts, _ = play(*[EVEN] * 30, *[slow_host] * 200)
    assert {v.verdict for v in verdicts} == {Verdict.OK}


def test_of_two_ranks_the_slower_one_is_named():
    assert last(*[(100_000, 100_000)] * 30, *[(300_000, 100_000)] * 8).culprits == (0,)


def test_two_of_four_slow_ranks_are_both_named():
    verdict = last(*[EVEN] * 30, *[(300_000, 306_000, 101_000, 99_000)] * 8)
    assert verdict.culprits == (0, 1)


def test_a_rank_in_the_usual_spread_of_its_peers_is_ok():
    assert last(*[(100, 180, 140, 60, 200, 220)] * 40).verdict is Verdict.OK


def test_a_rank_is_not_slow_in_steps_in_which_its_peers_are_all_over_the_place():
    scattered = (50_000, 160_000, 100_000, 150_000)
    verdicts, _ = play(*[EVEN] * 40, *[scattered] * 40)
    assert {v.verdict for v in verdicts} == {Verdict.OK}


def test_a_rank_alone_cannot_be_called_slow():
    assert last((100,)).verdict is Verdict.UNKNOWN


def test_the_time_between_two_steps_counts_as_the_ranks_own():
    """A slow data loader is outside of the step, and the peers wait for it in the next collective."""
    slow_loader = [step(*EVEN, between=(5_000, 300_000, 5_000, 5_000), number=n) for n in range(8)]
    assert last(*[EVEN] * 30, *slow_loader).culprits == (1,)


# --- work units -----------------------------------------------------------------------------------


def test_a_long_batch_is_not_slow_when_its_work_is_reported():
    longer = [step(*SLOW, work=(100, 300, 100, 100), number=n) for n in range(30)]
    usual = [step(*EVEN, work=(100, 100, 100, 100), number=n) for n in range(30)]
    assert {v.verdict for v in play(*usual, *longer)[0]} == {Verdict.OK}


def test_a_rank_that_is_slow_per_unit_is_named_though_its_batch_is_short():
    short = [step(*EVEN, work=(300, 100, 300, 300), number=n) for n in range(8)]
    usual = [step(*EVEN, work=(300, 300, 300, 300), number=n) for n in range(30)]
    assert last(*usual, *short).culprits == (1,)


@pytest.mark.parametrize("bad", [None, 0.0, -1.0, math.inf, math.nan])
def test_work_that_one_rank_does_not_report_is_used_for_nobody(bad):
    odd = [step(*EVEN, work=(100, 100, 100, bad), number=n) for n in range(40)]
    assert {v.verdict for v in play(*odd)[0]} == {Verdict.OK}


# --- was it always like that? ---------------------------------------------------------------------


def test_a_rank_that_always_was_slower_is_no_new_fault():
    verdicts, _ = play(*[SLOW] * 1000)
    assert Verdict.FAILED not in {v.verdict for v in verdicts}
    assert "nothing is known about how it was before" in verdicts[9].evidence[0]
    assert {v.verdict for v in verdicts[60:]} == {
        Verdict.OK
    }  # by then it is known to be its nature


def test_a_rank_that_is_slow_from_the_first_steps_on_is_never_replaced_though_acting_costs_nothing():
    memory = PerformanceMemory(skip_count=0, assumed_cost_us=0)
    assert Verdict.FAILED not in {v.verdict for v in play(*[SLOW] * 1000, memory=memory)[0]}


def test_a_fifth_slower_than_usual_is_not_slow():
    a_little = (100_000, 367_000, 101_000, 99_000)
    verdicts, _ = play(*[SLOW] * 80, *[a_little] * 40)
    assert {v.verdict for v in verdicts[60:]} == {Verdict.OK}


def test_long_waves_that_come_again_and_again_are_learned():
    """Nine slow steps in every forty are more than one of ten: after two of them they are usual."""
    verdicts, _ = play(*([EVEN] * 31 + [SLOW] * 9) * 8)
    assert Verdict.SUSPECT in {v.verdict for v in verdicts[:80]}
    assert {v.verdict for v in verdicts[120:]} == {Verdict.OK}


def test_a_rank_that_always_was_slower_is_named_when_it_becomes_slower_still():
    slower = (100_000, 918_000, 101_000, 99_000)
    verdicts, _ = play(*[SLOW] * 60, *[slower] * 60)
    failed = [v for v in verdicts if v.verdict is Verdict.FAILED]
    assert [v.culprits for v in failed] == [(1,)]
    assert "9.18 times its peers' own time, before that 3.06 times" in failed[0].evidence[0]


def test_a_rank_whose_work_comes_in_waves_is_never_replaced():
    """Five slow steps in every twenty: more than one of ten, so that is how it is."""
    wave = [*[EVEN] * 15, *[SLOW] * 5]
    assert Verdict.FAILED not in {v.verdict for v in play(*wave * 30)[0]}


def test_a_change_is_found_where_it_is_and_one_odd_value_is_none():
    levels = [0.0, 0.01, -0.01, 0.0] * 5 + [1.1, 1.0, 1.2, 1.1] * 2
    change = find_change(levels, least_count=4)
    assert (change.index, change.before, round(change.after, 2)) == (20, 0.0, 1.1)
    assert find_change([*levels[:20], 3.0, 0.0, 0.01, 0.0, -0.01], least_count=4) is None
    assert find_change([0.0, 0.01] * 20, least_count=4) is None


# --- is it worth a recovery? ----------------------------------------------------------------------


def test_a_slow_rank_fails_when_it_has_cost_as_much_as_replacing_it():
    """204 ms a step against 30 s: the 148th slow step is the first that reaches it."""
    verdicts, _ = play(*[EVEN] * 40, *[SLOW] * 200, seconds_per_step=1)
    first = next(i for i, v in enumerate(verdicts) if v.verdict is Verdict.FAILED)
    excess_us = SLOW[1] - EVEN[1]
    assert first == 40 + math.ceil(30 * S / excess_us) - 1
    failed = verdicts[first]
    assert (failed.symptom, failed.culprits) == (Symptom.SLOW, (1,))
    assert failed.onset_us == 41 * S  # the 41st step
    assert failed.lost_device_us == 4 * math.ceil(30 * S / excess_us) * excess_us
    assert "slow since step 41, lost so far 2.01 min of device time" in failed.evidence[0]
    assert "costs 2 min (assumed" in failed.evidence[0]


def test_what_a_replacement_costs_is_learned_from_the_recoveries_of_the_run():
    memory = PerformanceMemory(skip_count=0)
    for duration_us in (2 * S, 900_000, 1_000_000):
        memory = learn_recovery(memory, duration_us)
    verdicts, _ = play(*[EVEN] * 40, *[SLOW] * 20, memory=memory)
    first = next(i for i, v in enumerate(verdicts) if v.verdict is Verdict.FAILED)
    assert first == 40 + 8 - 1  # five steps cost a second, but eight make it persistent
    assert "costs 4 s (median of 3 recoveries of this run)" in verdicts[first].evidence[0]


def test_a_contract_may_say_that_slow_ranks_are_only_recorded():
    memory = PerformanceMemory(skip_count=0, may_act=False, assumed_cost_us=1)
    verdicts, _ = play(*[EVEN] * 40, *[SLOW] * 200, memory=memory)
    assert {v.verdict for v in verdicts} == {Verdict.OK, Verdict.SUSPECT}
    assert "recorded and not replaced" in verdicts[-1].evidence[0]


def test_a_slow_rank_costs_nothing_while_a_peer_is_as_late():
    """What the job loses is how long the others wait for this rank, not how slow it is."""
    late_peer = (305_000, 306_000, 101_000, 99_000)
    _, memory = play(*[EVEN] * 40, *[late_peer] * 10)
    assert memory.ranks[1].lost_us > 0  # both are slow: without them the job would be fast
    usual = (300_000, 102_000, 101_000, 99_000)
    _, memory = play(*[usual] * 40, *[(300_000, 306_000, 101_000, 99_000)] * 10)
    assert memory.ranks[1].lost_us == 10 * 6_000  # rank 0 always needs 300 ms


def test_a_rank_that_is_as_slow_in_its_next_process_is_not_replaced_again():
    memory = learn_recovery(PerformanceMemory(skip_count=0), 1 * S)
    verdicts, memory = play(*[EVEN] * 40, *[SLOW] * 8, memory=memory)
    assert verdicts[-1].verdict is Verdict.FAILED
    verdicts, _ = play(*[SLOW] * 300, memory=begin_generation(memory))
    assert Verdict.FAILED not in {v.verdict for v in verdicts}
    assert Verdict.SUSPECT in {v.verdict for v in verdicts}


def slower(rank: int) -> tuple[int, ...]:
    return tuple(3 * us if r == rank else us for r, us in enumerate(EVEN))


def test_a_rank_is_replaced_for_being_slow_once_in_half_an_hour():
    memory = learn_recovery(PerformanceMemory(skip_count=0), 1 * S)
    verdicts, memory = play(*[EVEN] * 40, *[slower(1)] * 8, memory=memory)
    assert verdicts[-1].verdict is Verdict.FAILED
    verdicts, later = play(*[EVEN] * 40, *[slower(1)] * 300, memory=memory)
    assert Verdict.FAILED not in {v.verdict for v in verdicts}
    assert "it was replaced for this" in verdicts[-1].evidence[0]
    after = assess(step(*slower(1)), memory=later, now_us=1_805 * S)
    assert after.assessment.verdict is Verdict.FAILED


def test_each_replacement_doubles_the_price_of_the_next_one():
    memory = learn_recovery(PerformanceMemory(skip_count=0), 2 * S)
    verdicts, memory = play(*[EVEN] * 40, *[slower(1)] * 10, memory=memory)
    assert verdicts[-1].verdict is Verdict.FAILED  # ten steps of 200 ms are the two seconds
    verdicts, _ = play(*[EVEN] * 40, *[slower(2)] * 30, memory=memory)
    first = next(i for i, v in enumerate(verdicts) if v.verdict is Verdict.FAILED)
    excess_us = 3 * EVEN[2] - EVEN[1]
    assert first == 40 + math.ceil(4 * S / excess_us) - 1
    assert "taken 2 times, since ranks were replaced" in verdicts[first].evidence[0]


def test_a_new_generation_begins_with_steps_that_teach_nothing():
    memory = PerformanceMemory(skip_count=3)
    _, memory = play(*[EVEN] * 43, memory=memory)
    cold = begin_generation(memory)
    assert len(cold.ranks[1].usual) == 30  # what is usual is still known
    verdicts, after = play(*[SLOW] * 3, memory=cold)
    assert {v.verdict for v in verdicts} == {Verdict.OK}
    assert after.ranks[1].recent == ()


def test_a_rank_that_is_slow_in_two_of_three_steps_does_not_become_usual():
    """Stopped for a share of the time on a loaded host, as the drill `throttled` does: one window of ten dips to six."""
    rhythm = [SLOW, SLOW, EVEN] * 20
    verdicts, memory = play(*[EVEN] * 40, *rhythm, *[SLOW] * 10)
    assert (verdicts[-1].verdict, verdicts[-1].culprits) == (Verdict.SUSPECT, (1,))
    assert max(memory.ranks[1].usual) < math.log(1.3)


def test_a_slow_step_now_and_then_is_usual():
    """Noise has to teach, or the bound on false alarms is none."""
    _, memory = play(*([EVEN] * 19 + [SLOW]) * 7)
    assert sum(level > math.log(1.3) for level in memory.ranks[1].usual) == 3


# --- starved ------------------------------------------------------------------------------------------

# Own time of each rank and the part of it without a processor, in ms: 3 ranks and 6 processes that
# compute, on 2 cores, while a spare imports torch behind a recovery. Measured in steps 141 to 160 of a real run.
LOADED = [
    ((44, 0), (50, 7), (75, 33)),
    ((44, 1), (50, 6), (43, 0)),
    ((43, 0), (43, 1), (43, 3)),
    ((43, 0), (72, 29), (44, 1)),
    ((44, 2), (55, 12), (43, 0)),
    ((43, 0), (57, 14), (43, 0)),
    ((47, 4), (63, 19), (45, 2)),
    ((43, 0), (60, 17), (43, 0)),
    ((45, 2), (72, 34), (47, 3)),
    ((43, 0), (117, 73), (43, 1)),
    ((45, 2), (143, 102), (47, 7)),
    ((43, 0), (67, 25), (44, 1)),
    ((49, 5), (65, 22), (44, 1)),
    ((49, 6), (99, 56), (47, 4)),
    ((44, 2), (135, 92), (46, 3)),
    ((46, 2), (82, 38), (45, 2)),
    ((43, 0), (62, 19), (43, 0)),
    ((55, 12), (47, 4), (46, 3)),
    ((44, 0), (48, 6), (45, 2)),
    ((43, 3), (55, 12), (43, 0)),
]
USUAL = ((47, 4), (46, 3), (47, 4))


def loaded(rows):
    """Steps of three ranks from rows of (own, starved) in milliseconds."""
    return [
        step(
            *[own * 1000 for own, _ in row],
            number=number,
            starved=tuple(wait * 1000 for _, wait in row),
        )
        for number, row in enumerate(rows, start=1)
    ]


def eager() -> PerformanceMemory:
    """Whoever is slow and changed is replaced at once."""
    return PerformanceMemory(skip_count=0, assumed_cost_us=1)


def test_a_rank_that_waited_for_a_processor_is_starved_and_never_replaced():
    verdicts, _ = play(*loaded([USUAL] * 30 + LOADED), memory=eager())
    assert {v.verdict for v in verdicts} == {Verdict.OK, Verdict.SUSPECT}
    said = [v for v in verdicts if v.verdict is Verdict.SUSPECT]
    assert {v.culprits for v in said} == {(1,)}
    assert all("starved, not slow by itself" in v.evidence[0] for v in said)


def test_the_same_steps_without_the_wait_would_replace_that_rank():
    blind = [tuple((own, 0) for own, _ in row) for row in [USUAL] * 30 + LOADED]
    verdicts, _ = play(*loaded(blind), memory=eager())
    assert next(v.culprits for v in verdicts if v.verdict is Verdict.FAILED) == (1,)


def test_a_rank_that_computes_three_times_as_long_is_slow_on_a_loaded_host_too():
    slow = [(row[0], (row[1][0] + 2 * 43, row[1][1]), row[2]) for row in LOADED]
    verdicts, _ = play(*loaded([USUAL] * 30 + slow), memory=eager())
    failed = [v for v in verdicts if v.verdict is Verdict.FAILED]
    assert failed[0].culprits == (1,)
    assert "slow since step" in failed[0].evidence[0]


def test_a_starved_rank_says_how_much_of_its_time_it_waited():
    even, starved = ((100, 0),) * 3, ((100, 0), (300, 200), (100, 0))
    verdict = last(*loaded([even] * 30 + [starved] * 8))
    (words,) = verdict.evidence
    assert words == (
        "rank 1: starved, not slow by itself: in 8 of its last 10 steps it took longer than its peers, ready to run "
        "without a processor for 67% of that time; recorded only"
    )
    assert verdict.onset_us == 31 * S // 10


def test_seven_starved_steps_are_not_enough():
    even, starved = ((100, 0),) * 3, ((100, 0), (300, 200), (100, 0))
    assert last(*loaded([even] * 30 + [starved] * 7)).verdict is Verdict.OK


def test_steps_that_are_slow_by_themselves_count_with_the_starved_ones():
    even, starved, slow = (((100, 0), (own, wait), (100, 0)) for own, wait in [(100, 0), (300, 200), (300, 0)])  # fmt: skip
    verdict = last(*loaded([even] * 30 + [starved] * 5 + [slow] * 3))
    assert (verdict.verdict, verdict.culprits) == (Verdict.SUSPECT, (1,))
    assert "starved" in verdict.evidence[0]
    mostly_slow = last(*loaded([even] * 30 + [starved] * 4 + [slow] * 4))
    assert (
        mostly_slow.verdict is Verdict.OK
    )  # neither persistently slow nor for want of a processor


def test_what_a_starved_rank_waited_is_not_counted_as_lost_by_a_slow_one():
    both = ((100, 0), (500, 200), (100, 0))
    _, memory = play(*loaded([((100, 0),) * 3] * 30 + [both] * 8))
    assert memory.ranks[1].lost_us == 8 * 200_000


def test_a_rank_of_unknown_wait_is_recorded_as_slow_and_not_replaced():
    reports = [
        step(*row, number=n, starved=None) for n, row in enumerate([EVEN] * 30 + [SLOW] * 50)
    ]
    verdicts, _ = play(*reports, memory=eager())
    assert {v.verdict for v in verdicts} == {Verdict.OK, Verdict.SUSPECT}
    assert verdicts[-1].evidence[0].endswith("for a processor, so it is only recorded")
