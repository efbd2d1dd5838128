"""Drills of ranks that are alive and do not move, or move too slowly."""

from __future__ import annotations

from functools import partial

from lastgood.contract.starter import starter_text
from lastgood.faults.spec import FaultKind, When
from lastgood.training.drills.drill import (
    Drill,
    Expectation,
    JobSettings,
    Outcome,
    Seen,
    a_fault,
)

_drill = partial(Drill, group="hangs")
_HANG_US = 1_600_000
"""The limit of one second, a look every 40 ms, and what a busy host adds."""
_STARVED_US = 4_600_000
"""A rank that wants a processor and does not get one may take four limits, so that it is not killed for being starved."""

_USUAL = When(step=40)
"""By then it is known how long a step of each rank takes: that wants 20 of them, and those of the warm-up do not count."""


def _priced() -> JobSettings:
    """A job in which replacing a rank is taken to cost a fifth of a second: no recovery of its own has told it yet."""
    text = starter_text()
    head, row, tail = text.partition("      cost: 30s")
    assert row, "the starter's contract has another price"
    return JobSettings(contract=f"{head}      cost: 200ms{tail}")


def _hang(rank: int, *, says: str, function: str, within_us: int = _HANG_US) -> Expectation:
    return Expectation(
        outcome=Outcome.RECOVERED,
        symptom="hang",
        class_="fail_slow",
        ranks=(rank,),
        incidents=1,
        lost_steps_max=0,
        detected_within_us=within_us,
        seen=(
            Seen(
                kind="incident.open", body=(("evidence", says),), words=f"the evidence says: {says}"
            ),
            Seen(
                kind="observation",
                body=(("what", "stack dump"), ("text", function)),
                words=f"the stacks name {function}",
            ),
        ),
    )


def _slow(rank: int) -> Expectation:
    return Expectation(
        outcome=Outcome.RECOVERED,
        symptom="slow",
        class_="fail_slow",
        ranks=(rank,),
        incidents=1,
        lost_steps_max=0,
        seen=(
            Seen(
                kind="incident.open",
                body=(("evidence", "replacing a rank costs"),),
                words="the evidence weighs the loss against the cost of acting",
            ),
        ),
    )


DRILLS: tuple[Drill, ...] = (
    _drill(
        name="spin",
        title="a step spins and never gives the interpreter lock back",
        faults=(a_fault(FaultKind.SPIN, 1),),
        expect=_hang(1, says="spinning", function="hold_interpreter_lock", within_us=_STARVED_US),
    ),
    _drill(
        name="spin-thread",
        title="another thread of a rank holds the interpreter lock for ever",
        faults=(a_fault(FaultKind.SPIN_THREAD, 0),),
        expect=_hang(0, says="spinning", function="hold_interpreter_lock", within_us=_STARVED_US),
    ),
    _drill(
        name="deadlock",
        title="a step takes a lock twice",
        faults=(a_fault(FaultKind.DEADLOCK, 2),),
        expect=_hang(2, says="waiting on a lock", function="take_lock_twice"),
    ),
    _drill(
        name="kernel-wait",
        title="a step sits in the kernel in uninterruptible sleep",
        faults=(a_fault(FaultKind.KERNEL_WAIT, 3),),
        expect=_hang(3, says="held in the kernel", function="wait_in_the_kernel"),
    ),
    _drill(
        name="slow",
        title="a rank takes three times as long for every step",
        faults=(a_fault(FaultKind.SLOW_STEP, 2, factor=3.0, when=_USUAL),),
        expect=_slow(2),
        run=_priced(),
        is_alone=True,  # nobody knows when it has come, so nothing can be placed behind it
    ),
    _drill(
        name="throttled",
        title="a rank is stopped for two thirds of the time",
        faults=(
            a_fault(FaultKind.SLOW, 0, duration_us=90_000_000, stopped_ratio=0.67, when=_USUAL),
        ),
        expect=_slow(0),
        run=_priced(),
        is_alone=True,
    ),
)
