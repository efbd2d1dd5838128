"""The order of evidence, one scene each. Limits: 1 s for a step, 30 s for warm-up, 5 s for group errors."""

import pytest

from lastgood.signals.limits import Limits
from lastgood.signals.liveness import assess, remember
from lastgood.signals.reading import (
    Phase,
    ProcessState,
    Question,
    Raised,
    RankReading,
    Symptom,
    Verdict,
)

S = 1_000_000
NOW = 100 * S
LIMITS = Limits(step_floor_us=1 * S, warmup_floor_us=30 * S, section_floor_us=60 * S)


def rank(
    number: int, *, phase: Phase = Phase.COLLECTIVE, stale_us: int = 100_000, **changes
) -> RankReading:
    fields = {
        "rank": number, "worker": f"w{number}", "pid": 100 + number, "generation": 1, "exit_code": None,
        "phase": phase, "step": 7, "published_step": 6, "launches": 7, "completions": 6,
        "progress_us": NOW - stale_us, "process": ProcessState.SLEEPING, "cpu_us": 0, "runqueue_wait_us": 0,
    }  # fmt: skip
    return RankReading(**{**fields, **changes})


def raised(*, group: bool, t_us: int = NOW - 100_000, type_name: str = "ValueError", loader: str = "") -> Raised:  # fmt: skip
    return Raised(
        type_name=type_name, message="no", is_group_error=group, step=7, t_us=t_us, loader=loader
    )


def look(*readings: RankReading, previous=None, now_us: int = NOW, limits: Limits = LIMITS):
    return assess(readings, limits=limits, now_us=now_us, previous=previous)


def test_ranks_that_move_are_ok():
    verdict = look(rank(0), rank(1, phase=Phase.COMPUTE, launches=6), rank(2), rank(3))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (Verdict.OK, None, ())
    assert verdict.question is Question.LIVENESS


def test_no_reading_at_all_is_unknown():
    assert look().verdict is Verdict.UNKNOWN


# --- processes that ended -------------------------------------------------------------------------


def test_a_killed_process_is_named_at_once():
    dead = rank(2, exit_code=-9, process=ProcessState.GONE, stale_us=50_000)
    verdict = look(rank(0), rank(1), dead, rank(3))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.PROCESS_EXIT,
        (2,),
    )
    assert verdict.onset_us == NOW - 50_000
    assert verdict.evidence == ("rank 2 (w2) ended: signal 9",)
    assert verdict.key == "signal 9"


def test_two_that_died_together_are_both_named():
    verdict = look(rank(0, exit_code=-9), rank(1), rank(2), rank(3, exit_code=-11))
    assert verdict.culprits == (0, 3)


def test_leaving_early_with_zero_is_a_failure_too():
    assert look(rank(0, exit_code=0), rank(1)).culprits == (0,)


def test_a_finished_rank_may_leave():
    assert look(rank(0, phase=Phase.FINISHED, exit_code=0), rank(1)).verdict is Verdict.OK


def test_a_finished_rank_that_ends_with_an_error_is_named():
    assert look(rank(0, phase=Phase.FINISHED, exit_code=1), rank(1)).culprits == (0,)


def test_a_rank_that_died_of_its_peers_death_is_not_the_culprit():
    victim = rank(1, exit_code=1, raised=raised(group=True))
    assert look(rank(0, exit_code=-9), victim, rank(2)).culprits == (0,)


def test_victims_are_named_when_there_is_nobody_else():
    victim = rank(1, exit_code=1, raised=raised(group=True))
    assert look(rank(0), victim, rank(2)).culprits == (1,)


# --- exceptions -----------------------------------------------------------------------------------


def test_user_code_that_raised_is_an_exception_of_that_rank():
    verdict = look(rank(0), rank(1, raised=raised(group=False)), rank(2))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.EXCEPTION,
        (1,),
    )
    assert verdict.key == "ValueError"
    assert verdict.onset_us == NOW - 100_000
    assert "step 7" in verdict.evidence[0]


def test_an_error_of_the_loader_is_another_failure_than_one_of_the_step():
    of_loader = raised(group=False, loader="in its loader, for step 7")
    verdict = look(rank(0), rank(1, raised=of_loader), rank(2))
    assert verdict.evidence == ("rank 1 raised ValueError in its loader, for step 7: no",)
    assert verdict.key == "ValueError in the loader"
    both = look(rank(0, raised=raised(group=False)), rank(1, raised=of_loader))
    assert both.key == "ValueError,ValueError in the loader"


def test_a_process_that_ended_by_its_own_exception_is_an_exception():
    verdict = look(rank(0), rank(1, exit_code=1, raised=raised(group=False)))
    assert (verdict.symptom, verdict.culprits) == (Symptom.EXCEPTION, (1,))


def test_an_ended_process_is_stronger_evidence_than_an_exception_elsewhere():
    verdict = look(rank(0, exit_code=-9), rank(1, raised=raised(group=False)))
    assert (verdict.symptom, verdict.culprits) == (Symptom.PROCESS_EXIT, (0,))


def test_an_exception_is_stronger_evidence_than_the_group_errors_of_its_peers():
    verdict = look(rank(0, raised=raised(group=True)), rank(1, raised=raised(group=False)))
    assert (verdict.symptom, verdict.culprits) == (Symptom.EXCEPTION, (1,))


# --- hangs ----------------------------------------------------------------------------------------


def test_who_has_not_entered_the_collective_is_named():
    waiting = [rank(r, stale_us=3 * S) for r in (0, 1, 3)]
    absent = rank(2, phase=Phase.COMPUTE, launches=6, stale_us=3 * S)
    verdict = look(*waiting[:2], absent, waiting[2])
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.HANG,
        (2,),
    )
    assert verdict.onset_us == NOW - 3 * S
    assert "collectives entered 6, foremost rank 7" in verdict.evidence[0]


@pytest.mark.parametrize(
    ("completions", "where"),
    [
        (6, "in its own code or data behind the collectives of step 7;"),
        (5, "in collective of step 7;"),
    ],
)
def test_a_rank_that_has_left_every_collective_it_entered_is_in_none(completions, where):
    late = rank(
        1, stale_us=3 * S, launches=6, completions=completions, process=ProcessState.STOPPED
    )
    verdict = look(rank(0, stale_us=2 * S), late)
    assert verdict.culprits == (1,)
    assert where in verdict.evidence[0]


def test_the_absent_rank_is_named_though_the_waiting_ones_have_waited_longer():
    verdict = look(
        rank(0, stale_us=9 * S), rank(1, phase=Phase.COMPUTE, launches=6, stale_us=2 * S)
    )
    assert verdict.culprits == (1,)


def test_waiting_for_a_rank_that_is_still_in_time_is_no_hang():
    waiting = [rank(r, stale_us=3 * S) for r in (0, 1)]
    assert (
        look(*waiting, rank(2, phase=Phase.COMPUTE, launches=6, stale_us=900_000)).verdict
        is Verdict.OK
    )


def test_two_that_hang_together_are_both_named():
    slow = [rank(r, phase=Phase.COMPUTE, launches=6, stale_us=3 * S) for r in (1, 2)]
    assert look(rank(0), *slow, rank(3)).culprits == (1, 2)


def test_a_rank_a_whole_step_behind_inside_an_older_collective_is_named():
    behind = rank(1, launches=6, stale_us=3 * S)
    assert look(rank(0, stale_us=3 * S), behind, rank(2, stale_us=3 * S)).culprits == (1,)


def test_with_equal_counts_the_stopped_rank_is_named():
    stopped = rank(1, process=ProcessState.STOPPED, stale_us=3 * S)
    assert look(rank(0, stale_us=3 * S), stopped, rank(2, stale_us=3 * S)).culprits == (1,)


def test_with_equal_counts_the_rank_that_is_not_waiting_is_named():
    computing = rank(1, phase=Phase.COMPUTE, stale_us=3 * S)
    assert look(rank(0, stale_us=3 * S), computing, rank(2, stale_us=3 * S)).culprits == (1,)


def test_with_equal_counts_and_nobody_stopped_nobody_is_named():
    verdict = look(*[rank(r, stale_us=3 * S) for r in range(4)])
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.UNKNOWN,
        Symptom.HANG,
        (),
    )


def test_when_every_rank_computes_too_long_nobody_is_named():
    verdict = look(*[rank(r, phase=Phase.COMPUTE, stale_us=3 * S) for r in range(4)])
    assert (verdict.verdict, verdict.culprits) == (Verdict.UNKNOWN, ())


def test_the_only_rank_of_a_job_is_named():
    assert look(rank(0, phase=Phase.COMPUTE, stale_us=3 * S)).culprits == (0,)


def test_a_slow_data_loader_has_the_limit_of_data_and_not_of_computing():
    limits = Limits(step_floor_us=1 * S, samples={"between": (2 * S,) * 10})
    late = rank(1, phase=Phase.BETWEEN, launches=6, stale_us=9 * S)
    assert look(rank(0, stale_us=9 * S), late, limits=limits).verdict is Verdict.OK
    too_late = rank(1, phase=Phase.BETWEEN, launches=6, stale_us=11 * S)
    assert look(rank(0, stale_us=9 * S), too_late, limits=limits).culprits == (1,)


@pytest.mark.parametrize("phase", [Phase.PARKED, Phase.HELD, Phase.FINISHED])
def test_waiting_for_the_supervisor_is_never_a_hang(phase):
    assert look(rank(0, phase=phase, stale_us=90 * S), rank(1)).verdict is Verdict.OK


def test_a_section_within_its_limit_keeps_everybody_waiting_in_peace():
    evaluating = rank(
        0, phase=Phase.SECTION, section="eval", section_limit_us=60 * S, launches=6, stale_us=50 * S
    )
    assert (
        look(evaluating, rank(1, stale_us=50 * S), rank(2, stale_us=50 * S)).verdict is Verdict.OK
    )


def test_a_section_past_its_limit_names_its_rank():
    evaluating = rank(
        0, phase=Phase.SECTION, section="eval", section_limit_us=40 * S, launches=6, stale_us=50 * S
    )
    verdict = look(evaluating, rank(1, stale_us=50 * S))
    assert (verdict.symptom, verdict.culprits) == (Symptom.HANG, (0,))
    assert "section eval" in verdict.evidence[0]


def test_a_section_past_its_limit_names_its_rank_though_another_is_further_behind():
    saving = rank(0, phase=Phase.SECTION, section="save", section_limit_us=40 * S, stale_us=50 * S)
    assert look(saving, rank(1, phase=Phase.COMPUTE, launches=6)).culprits == (0,)


def test_a_section_of_an_older_generation_is_closed():
    old = rank(
        0,
        phase=Phase.SECTION,
        section="eval",
        section_limit_us=1 * S,
        stale_us=50 * S,
        generation=1,
    )
    assert look(old, rank(1, generation=2), rank(2, generation=2)).verdict is Verdict.OK


def test_the_first_step_has_the_patience_of_warm_up():
    compiling = [
        rank(r, phase=Phase.COMPUTE, completions=0, launches=0, stale_us=20 * S) for r in range(2)
    ]
    assert look(*compiling).verdict is Verdict.OK


def test_a_long_parked_worker_is_not_late_in_the_moment_in_which_it_is_assigned():
    joining = rank(1, phase=Phase.JOINING, launches=0, completions=0, stale_us=90 * S)
    peer = rank(0, phase=Phase.JOINING, launches=0, completions=0, stale_us=1 * S)
    memory = remember(None, [peer, joining], now_us=NOW)
    assert look(peer, joining).verdict is Verdict.OK
    assert look(rank(0, phase=Phase.HELD), joining).verdict is Verdict.OK
    assert look(peer, joining, previous=memory, now_us=NOW + 29 * S).verdict is Verdict.OK
    late = look(rank(0, phase=Phase.HELD), joining, previous=memory, now_us=NOW + 31 * S)
    assert late.culprits == (1,)


# --- starved and spinning -------------------------------------------------------------------------


def stalled(*, cpu_us: int, wait_us: int, after_us: int):
    """A rank that has not moved since NOW - 1 s, seen then and after `after_us` more."""
    before = rank(1, phase=Phase.COMPUTE, launches=6, stale_us=1 * S)
    now = rank(
        1, phase=Phase.COMPUTE, launches=6, stale_us=1 * S, cpu_us=cpu_us, runqueue_wait_us=wait_us
    )
    memory = remember(None, [rank(0), before], now_us=NOW)
    return look(rank(0), now, previous=memory, now_us=NOW + after_us)


def test_a_starved_rank_is_slow_and_not_hung():
    verdict = stalled(cpu_us=100_000, wait_us=1_700_000, after_us=2 * S)
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.SUSPECT,
        Symptom.SLOW,
        (1,),
    )


def test_a_starved_rank_is_called_hung_after_four_limits():
    verdict = stalled(cpu_us=100_000, wait_us=3_200_000, after_us=3_500_000)
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.HANG)


def test_a_rank_that_gets_the_cpu_is_not_starved():
    verdict = stalled(cpu_us=1_900_000, wait_us=1_700_000, after_us=2 * S)
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.HANG)


def test_a_rank_that_does_not_want_the_cpu_is_not_starved():
    verdict = stalled(cpu_us=0, wait_us=900_000, after_us=2 * S)
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.HANG)


def copying(*, after_us: int = 2 * S, phase=Phase.SNAPSHOT, **changes):
    """A rank that entered a phase at NOW - 1 s and has not moved since, seen then and later."""
    place = {"phase": phase, "launches": 6, "stale_us": 1 * S}
    memory = remember(None, [rank(0), rank(1, **place)], now_us=NOW)
    return look(rank(0), rank(1, **place, **changes), previous=memory, now_us=NOW + after_us)


@pytest.mark.parametrize(
    "spent",
    [
        {"cpu_us": 1_200_000},
        {"cpu_us": 150_000, "runqueue_wait_us": 700_000},
        {"cpu_us": 300_000, "process": ProcessState.UNINTERRUPTIBLE},
    ],
)
def test_a_rank_that_works_on_its_snapshot_is_late_and_not_hung(spent):
    """Seen at load 35: pages that fault in, and neither the CPU nor the run queue has half of the time."""
    verdict = copying(**spent)
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.SUSPECT,
        Symptom.SLOW,
        (1,),
    )
    assert "copies its state, not hung" in verdict.evidence[0]


@pytest.mark.parametrize(
    "given",
    [
        {"cpu_us": 0},
        {"cpu_us": 0, "runqueue_wait_us": 900_000},
        {"cpu_us": 10_000},
        {"cpu_us": 1_200_000, "process": ProcessState.STOPPED},
        {"cpu_us": 1_200_000, "phase": Phase.COMPUTE},
        {"cpu_us": 1_700_000, "after_us": 3_500_000},
    ],
)
def test_a_snapshot_that_is_not_worked_on_or_never_ends_is_a_hang(given):
    verdict = copying(**given)
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.HANG)


def test_a_starved_rank_does_not_hide_a_group_error():
    starved = rank(1, phase=Phase.COMPUTE, launches=6, stale_us=1 * S)
    later = rank(1, phase=Phase.COMPUTE, launches=6, stale_us=1 * S, runqueue_wait_us=2 * S)
    broken = rank(0, phase=Phase.PARKED, raised=raised(group=True, t_us=NOW - 6 * S))
    memory = remember(None, [broken, starved], now_us=NOW)
    verdict = look(broken, later, previous=memory, now_us=NOW + 2 * S)
    assert (verdict.verdict, verdict.symptom) == (Verdict.UNKNOWN, Symptom.GROUP_ERROR)


def test_a_spinning_rank_is_hung_and_the_evidence_says_so():
    verdict = stalled(cpu_us=1_900_000, wait_us=0, after_us=2 * S)
    assert (verdict.verdict, verdict.symptom) == (Verdict.FAILED, Symptom.HANG)
    assert "spinning" in verdict.evidence[0]


def held(*, cpu_us: int = 0, **changes) -> str:
    """What is said of a rank that has not moved for three seconds."""
    place = {"phase": Phase.COMPUTE, "launches": 6, "stale_us": 1 * S}
    memory = remember(None, [rank(0), rank(1, **place)], now_us=NOW)
    now = rank(1, cpu_us=cpu_us, **place, **changes)
    verdict = look(rank(0), now, previous=memory, now_us=NOW + 2 * S)
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.FAILED,
        Symptom.HANG,
        (1,),
    )
    return verdict.evidence[0]


def test_a_rank_that_sleeps_in_a_lock_is_said_to_wait_for_it():
    words = held(waits_in="futex_do_wait")
    assert "waiting on a lock (futex_do_wait)" in words
    assert "spinning" not in words


def test_a_lock_that_is_waited_for_while_another_thread_burns_cpu_is_said_so():
    """On a full host the spinning thread gets a fraction of a processor only."""
    words = held(waits_in="futex_do_wait", cpu_us=300_000)
    assert "main thread waits on a lock while another thread is spinning" in words


def test_a_spinning_rank_that_gets_little_cpu_is_still_said_to_spin():
    assert "; spinning" in held(process=ProcessState.RUNNING, cpu_us=300_000)


def test_a_rank_that_hardly_ever_got_a_processor_is_said_to_spin_or_starve():
    """After four limits it is hung, whichever of the two it is."""
    verdict = stalled(cpu_us=100_000, wait_us=3_200_000, after_us=3_500_000)
    assert (
        "spinning, or starved: it wanted a processor all the time and had one for 3% of it"
        in (verdict.evidence[0])
    )


def test_a_rank_in_uninterruptible_sleep_is_said_to_be_held_in_the_kernel():
    words = held(process=ProcessState.UNINTERRUPTIBLE, waits_in="kernel_clone", cpu_us=1_900_000)
    assert "held in the kernel (kernel_clone): no signal but SIGKILL can reach it" in words


def test_a_rank_that_sleeps_elsewhere_is_said_to_sleep_there():
    assert "; asleep in hrtimer_nanosleep" in held(waits_in="hrtimer_nanosleep")


def test_a_quiet_rank_is_hung_without_that_remark():
    assert "spinning" not in stalled(cpu_us=0, wait_us=0, after_us=2 * S).evidence[0]


def test_what_was_spent_before_the_stall_does_not_count():
    moved = rank(1, phase=Phase.COMPUTE, launches=6, stale_us=0, cpu_us=500 * S)
    memory = remember(None, [rank(0), rank(1, cpu_us=0)], now_us=NOW - 5 * S)
    memory = remember(memory, [rank(0), moved], now_us=NOW)
    assert memory.anchors[1].seen_us == NOW
    memory = remember(memory, [rank(0), moved], now_us=NOW + S)
    assert memory.anchors[1].seen_us == NOW


# --- group errors ---------------------------------------------------------------------------------


def test_a_group_error_alone_waits_for_a_culprit():
    verdict = look(rank(0, raised=raised(group=True)), rank(1), rank(2))
    assert (verdict.verdict, verdict.symptom) == (Verdict.SUSPECT, Symptom.GROUP_ERROR)


def test_a_group_error_without_a_culprit_becomes_unknown():
    old = raised(group=True, t_us=NOW - 6 * S)
    verdict = look(rank(0, raised=old, phase=Phase.PARKED), rank(1))
    assert (verdict.verdict, verdict.symptom, verdict.culprits) == (
        Verdict.UNKNOWN,
        Symptom.GROUP_ERROR,
        (),
    )
    assert verdict.onset_us == NOW - 6 * S


def test_a_hung_rank_explains_the_group_errors_of_its_peers():
    error = raised(group=True)
    hung = rank(1, phase=Phase.COMPUTE, launches=6, stale_us=3 * S)
    verdict = look(rank(0, raised=error, phase=Phase.PARKED), hung, rank(2))
    assert (verdict.symptom, verdict.culprits) == (Symptom.HANG, (1,))
