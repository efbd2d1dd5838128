"""A rank is late by how long it is waited for: an evaluation that all ranks make is nobody's hang. Limit: 1 s."""

import dataclasses

import pytest

from lastgood.signals.limits import Limits
from lastgood.signals.liveness import assess, remember
from lastgood.signals.reading import Phase, ProcessState, RankReading, Symptom, Verdict

S = 1_000_000
NOW = 1_000 * S
DECLARED = Limits(step_floor_us=1 * S, warmup_floor_us=30 * S)
UNDECLARED = dataclasses.replace(DECLARED, unawaited_us=20 * S, is_stop_enough=False)
ONE_HOST_OF_SEVERAL = dataclasses.replace(UNDECLARED, is_stop_enough=True)


def rank(number: int, phase: Phase, *, launches: int, stale_us: int, **changes) -> RankReading:
    fields = {
        "rank": number, "worker": f"w{number}", "pid": 100 + number, "generation": 1, "exit_code": None,
        "phase": phase, "step": 7, "published_step": 6, "launches": launches, "completions": 6,
        "progress_us": NOW - stale_us, "process": ProcessState.SLEEPING, "cpu_us": 0, "runqueue_wait_us": 0,
    }  # fmt: skip
    return RankReading(**{**fields, **changes})


def own(number: int, *, stale_us: int, phase: Phase = Phase.BETWEEN, **changes) -> RankReading:
    """In its own code since so long."""
    return rank(number, phase, launches=6, stale_us=stale_us, **changes)


def waits(number: int, *, since_us: int, launches: int = 7) -> RankReading:
    return rank(number, Phase.COLLECTIVE, launches=launches, stale_us=since_us)


def look(*readings: RankReading, limits: Limits = UNDECLARED):
    return assess(readings, limits=limits, now_us=NOW)


@pytest.mark.parametrize("phase", [Phase.LAUNCHING, Phase.BETWEEN, Phase.COMPUTE])
def test_after_a_long_evaluation_of_all_the_first_one_back_accuses_nobody(phase):
    limits = dataclasses.replace(UNDECLARED, warmup_floor_us=1 * S)
    late = [own(r, stale_us=12 * S, phase=phase) for r in (1, 2)]
    verdict = look(waits(0, since_us=30_000), *late, limits=limits)
    assert (verdict.verdict, verdict.culprits) == (Verdict.OK, ())


def test_it_is_named_once_a_peer_has_waited_for_longer_than_the_limit():
    late = own(1, stale_us=12 * S)
    assert look(waits(0, since_us=900_000), late, waits(2, since_us=100_000)).verdict is Verdict.OK
    verdict = look(waits(0, since_us=1_100_000), late, waits(2, since_us=100_000))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.HANG,
        (1,),
    )
    assert "made no progress for 12000 ms" in verdict.evidence[0]
    assert "waited for since 1100 ms" in verdict.evidence[0]


def test_a_peer_that_is_ahead_and_silent_waits_though_its_phase_does_not_say_so():
    """Calls of a device return before they are done: the wait is in the rank's own code."""
    ahead = rank(0, Phase.BETWEEN, launches=7, stale_us=2 * S)
    assert look(ahead, own(1, stale_us=12 * S)).culprits == (1,)
    assert look(dataclasses.replace(ahead, progress_us=NOW), own(1, stale_us=12 * S)).verdict is Verdict.OK  # fmt: skip


@pytest.mark.parametrize("world", [1, 3])
def test_where_nobody_waits_the_long_limit_counts(world):
    assert look(*[own(r, stale_us=19 * S) for r in range(world)]).verdict is Verdict.OK
    verdict = look(*[own(r, stale_us=21 * S) for r in range(world)])
    assert verdict.symptom is Symptom.HANG
    assert verdict.culprits == ((0,) if world == 1 else ())


def test_a_silence_of_more_than_the_long_limit_needs_nobody_who_waits():
    ahead = rank(0, Phase.BETWEEN, launches=9, stale_us=0)
    assert look(ahead, own(1, stale_us=21 * S)).culprits == (1,)


def test_a_peer_that_sits_in_a_collective_that_the_rank_has_left_does_not_wait_for_it():
    left = [own(r, stale_us=12 * S) for r in (0, 1)]
    assert look(*left, waits(2, since_us=12 * S, launches=6)).verdict is Verdict.OK


@pytest.mark.parametrize("limits", [DECLARED, UNDECLARED])
def test_a_rank_that_wakes_a_moment_late_from_a_long_wait_is_not_hung(limits):
    """All waited a minute for a section; the first to wake is in the next collective already."""
    asleep = waits(2, since_us=60 * S, launches=6)
    assert look(waits(0, since_us=20_000), waits(1, since_us=10_000), asleep, limits=limits).verdict is Verdict.OK  # fmt: skip
    verdict = look(waits(0, since_us=1_100_000), waits(1, since_us=900_000), asleep, limits=limits)
    assert (verdict.symptom, verdict.culprits) == (Symptom.HANG, (2,))


def test_where_sections_are_declared_each_phase_has_its_own_limit():
    late = own(1, stale_us=1_100_000)
    assert look(waits(0, since_us=500_000), late, limits=DECLARED).culprits == (1,)


def test_a_stopped_rank_is_late_by_its_own_silence_where_its_peers_cannot_be_seen():
    stopped = own(1, stale_us=1_100_000, process=ProcessState.STOPPED)
    for limits in (DECLARED, ONE_HOST_OF_SEVERAL):
        assert look(waits(0, since_us=500_000), stopped, limits=limits).culprits == (1,)
        assert look(stopped, limits=limits).culprits == (1,)
    peer = own(0, stale_us=12 * S)
    assert look(peer, stopped).verdict is Verdict.OK, "looked at by a debugger, for one"


def test_a_starved_rank_has_its_four_limits_from_when_it_is_waited_for():
    late = own(1, stale_us=12 * S)
    memory = remember(None, [late], now_us=NOW - 11 * S)
    starved = dataclasses.replace(late, runqueue_wait_us=8 * S)
    for waited_us, verdict in ((2 * S, Verdict.SUSPECT), (4_100_000, Verdict.FAILED)):
        ranks = [waits(0, since_us=waited_us), starved]
        found = assess(ranks, limits=UNDECLARED, now_us=NOW, previous=memory)
        assert (found.verdict, found.culprits) == (verdict, (1,))
