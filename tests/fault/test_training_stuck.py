"""Ranks that are alive and do not move, or move too slowly: each is named, the records say how, and the run goes on."""

import statistics
from pathlib import Path

import pytest

from lastgood.base.clock import SystemClock
from lastgood.faults.spec import FaultKind
from lastgood.ledger.walltime import partition
from tests.fault.training_drill import (
    FIRST_STEP,
    HANG_AFTER_US,
    assert_ledger_holds,
    assert_recovered_in_order,
    drill,
    fault,
    in_step,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

S = 1_000_000
HOUR_US = 3600 * S
STUCK = {
    "spin": (1, "; spinning", "hold_interpreter_lock"),
    "deadlock": (2, "waiting on a lock (futex", "take_lock_twice"),
    "spin_thread": (0, "spinning", "hold_interpreter_lock"),
    "kernel_wait": (3, "process uninterruptible; held in the kernel (", "wait_in_the_kernel"),
}
"""Kind -> its rank, what the evidence says, and the function that the stacks show."""


@pytest.fixture(scope="module")
def drilled(tmp_path_factory):
    return drill(
        tmp_path_factory.mktemp("stuck"),
        in_step("spin", FaultKind.SPIN, 1, step=FIRST_STEP),
        fault("deadlock", FaultKind.DEADLOCK, 2),
    )


@pytest.fixture(scope="module")
def drilled_slow(tmp_path_factory):
    return drill(
        tmp_path_factory.mktemp("slow"),
        fault("stop", FaultKind.SIGSTOP, 1),
        fault("slow", FaultKind.SLOW_STEP, 3, factor=3.0),
    )


@pytest.fixture(scope="module")
def drilled_at_night(tmp_path_factory):
    """The wall clock of the supervisor jumps while all of this happens: back by an hour, then on by two."""
    jumps = {FIRST_STEP - 4: -HOUR_US, FIRST_STEP + 4: HOUR_US}
    with pytest.MonkeyPatch.context() as patch:
        jumped = [0]
        read = SystemClock.wall_us
        patch.setattr(SystemClock, "wall_us", lambda clock: read(clock) + jumped[0])

        def jump(supervisor) -> None:
            due = [us for step, us in jumps.items() if supervisor.page.assessed_step >= step]
            jumped[0] = due[-1] if due else 0

        return drill(
            tmp_path_factory.mktemp("stuck-at-night"),
            in_step("spin_thread", FaultKind.SPIN_THREAD, 0, step=FIRST_STEP),
            fault("kernel_wait", FaultKind.KERNEL_WAIT, 3),
            on_turn=jump,
        )


def assert_stuck(drilled, kind: str) -> None:
    """The rank is named after the limit; how and where it sticks is on record; nothing is lost."""
    rank, words, function = STUCK[kind]
    incident = drilled.incident_with(symptom="hang", rank=rank)
    assert (incident.class_, incident.lost_steps) == ("fail_slow", 0)
    assert incident.detect_us >= HANG_AFTER_US
    assert_recovered_in_order(incident)
    found = evidence_of(drilled, incident)
    # A supervisor that was itself starved knows that the process runs, and not yet how much of a processor it had.
    assert words in found or (kind == "spin" and found.endswith("process running"))
    assert function in stacks_of(drilled, incident)


def evidence_of(drilled, incident) -> str:
    (opened,) = drilled.events_of(incident, "incident.open")
    (words,) = opened.body["evidence"]
    return words


def stacks_of(drilled, incident) -> str:
    (text,) = [
        event.body["text"]
        for event in drilled.events
        if event.kind == "observation"
        and event.body.get("what") == "stack dump"
        and incident.detected_us <= (event.t_observed_us or 0) <= incident.isolated_us
    ]
    return text


@pytest.mark.parametrize("kind", ["spin", "deadlock"])
def test_a_stuck_rank_is_named_with_how_it_is_stuck_and_where(drilled, kind):
    assert_stuck(drilled, kind)


@pytest.mark.nightly  # on a busy machine its peers look slow too, and replacing it pays later
def test_a_rank_that_became_three_times_as_slow_is_replaced_when_that_pays(drilled_slow):
    drilled = drilled_slow
    incident = drilled.incident_with(symptom="slow", rank=3)
    assert (incident.class_, incident.lost_steps) == ("fail_slow", 0)
    assert_recovered_in_order(incident)
    words = evidence_of(drilled, incident)
    assert "rank 3: " in words
    earlier = [i for i in drilled.incidents if i.symptom == "hang"]
    assert f"median of {len(earlier)} recoveries of this run" in words
    cost_us = statistics.median(
        i.diagnose_us + i.isolate_us + i.recover_us + i.verify_us for i in earlier
    )
    # Four ranks waited for it until that had cost what a recovery costs, and a few steps more at the most.
    (closed,) = drilled.events_of(incident, "incident.close")
    waited_us = closed.lost_device_us / 4 - (incident.closed_us - incident.detected_us)
    assert cost_us <= waited_us + 1000
    assert waited_us < 2 * cost_us + 20 * S
    assert drilled.result.is_bitwise_equal


def test_nobody_else_was_ever_named(drilled):
    # With a limit of one second a busy machine may have a silence of all ranks: nobody is named for it.
    found = [(i.symptom, i.ranks) for i in drilled.incidents if i.ranks]
    assert found == [("hang", (1,)), ("hang", (2,))]


def test_the_final_weights_are_those_of_an_undisturbed_plain_run(drilled):
    assert drilled.result.is_bitwise_equal


def test_the_ledger_verifies(drilled):
    assert_ledger_holds(drilled.ledger)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["spin_thread", "kernel_wait"])
def test_a_rank_stuck_in_another_thread_or_in_the_kernel_is_named(drilled_at_night, kind):
    assert_stuck(drilled_at_night, kind)


@pytest.mark.nightly
def test_a_wall_clock_that_jumps_is_recorded_and_accuses_nobody(drilled_at_night):
    drilled = drilled_at_night
    jumps = [e.body["jump_us"] for e in drilled.events if e.body.get("what") == "clock.jump"]
    assert [round(us / HOUR_US, 2) for us in jumps] == [-1.0, 2.0]
    assert [i.ranks for i in drilled.incidents] == [(0,), (3,)]
    run = drilled.events[0].run
    last_us = max(e.t_observed_us for e in drilled.events if e.kind == "run.end")
    wall = partition(drilled.events, run=run, as_of_us=last_us)
    assert sum(wall.totals_us.values()) == wall.window_us < HOUR_US
    assert min(wall.totals_us.values()) >= 0
    for incident in drilled.incidents:
        assert HANG_AFTER_US <= incident.detect_us < 60 * S


@pytest.mark.nightly
def test_the_weights_are_right_and_no_process_of_a_stuck_rank_is_left(drilled_at_night):
    """A rank that sat in the kernel waited for a child, and the child must not outlive it."""
    assert drilled_at_night.result.is_bitwise_equal
    assert_ledger_holds(drilled_at_night.ledger)
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"lastgood-wait-" in _bytes_of(p)]
    assert left == []


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""
