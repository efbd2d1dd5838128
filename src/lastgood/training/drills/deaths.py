"""Drills of deaths: at hard moments, of several ranks, of a spare, during a recovery, and of bugs that come back."""

from __future__ import annotations

from functools import partial

from lastgood.contract.starter import starter_text
from lastgood.faults.spec import Fault, FaultKind, Repeat, Target, When
from lastgood.training.drills.drill import (
    SETTLE_STEPS,
    Drill,
    Expectation,
    JobSettings,
    Outcome,
    Seen,
    a_fault,
)

_drill = partial(Drill, group="deaths")
_WITH_SECTIONS = JobSettings(arguments=("--section-every", "10", "--section-ms", "200"))
_AT_ONCE = When(t_us=0)
"""A second fault right behind the first one."""
_WAITS = Seen(
    kind="annotation",
    body=(("text", "waiting for a spare"),),
    words="that a spare is waited for is on record",
)


def _died(*ranks: int, **more: object) -> Expectation:
    known: dict[str, object] = {"incidents": 1, "lost_steps_max": 0}
    return Expectation(
        outcome=Outcome.RECOVERED,
        symptom="process_exit",
        class_="fail_stop",
        ranks=ranks,
        **{**known, **more},  # type: ignore[arg-type]
    )


def _kill(rank: int, name: str, when: When) -> Fault:
    return a_fault(FaultKind.SIGKILL, rank, name=name, when=when)


def _in_phase(phase: str) -> Drill:
    return _drill(
        name=f"die-{phase}",
        title=f"another rank is killed while the recovery is {phase}",
        faults=(
            a_fault(FaultKind.SIGKILL, 2, name="first"),
            _kill(0, "second", When(t_us=0, phase=phase)),
        ),
        expect=_died(0, 2),
        is_alone=True,
    )


def _raises(rank: int) -> Fault:
    return Fault(
        id=f"rank-{rank}",
        kind=FaultKind.EXCEPTION,
        target=Target(rank=rank),
        when=When(step=SETTLE_STEPS),
        repeat=Repeat(count=9, every_steps=1),
    )


def _impatient() -> str:
    """The starter's contract with one second to restore: no spare comes up so fast."""
    text = starter_text()
    head, row, tail = text.partition("    restore:\n      timeout: 2min\n")
    assert row, "the starter's contract has another restore row"
    return head + row.replace("2min", "1s") + tail


DRILLS: tuple[Drill, ...] = (
    _drill(
        name="exit-0",
        title="a rank's process ends with exit code 0 in the middle of a step",
        faults=(a_fault(FaultKind.EXIT_PROCESS, 0),),
        expect=_died(
            0,
            seen=(
                Seen(
                    kind="incident.open",
                    body=(("evidence", "ended early, before its last step: exit code 0"),),
                    words="code 0 is named as an early end",
                ),
            ),
        ),
        run=_WITH_SECTIONS,
    ),
    _drill(
        name="leave-loop",
        title="the script of one rank leaves its loop, the others go on",
        faults=(a_fault(FaultKind.LEAVE_LOOP, 1),),
        expect=_died(
            1,
            seen=(
                Seen(
                    kind="incident.open",
                    body=(("evidence", "left its loop early, with exit code 0"),),
                    words="the early exit is named as one",
                ),
            ),
        ),
        run=_WITH_SECTIONS,
    ),
    _drill(
        name="die-in-section",
        title="a rank is killed inside a declared section",
        faults=(a_fault(FaultKind.KILL_IN_SECTION, 2),),
        expect=_died(2),
        run=_WITH_SECTIONS,
    ),
    _drill(
        name="die-in-start",
        title="a rank is killed inside lastgood.start, before any state exists",
        faults=(a_fault(FaultKind.KILL_IN_START, 1),),
        expect=_died(1),
        is_alone=True,
    ),
    _in_phase("restoring"),
    _in_phase("verifying"),
    _drill(
        name="two-at-once",
        title="two ranks are killed at once, one spare is parked",
        faults=(a_fault(FaultKind.SIGKILL, 1, name="first"), _kill(3, "second", _AT_ONCE)),
        expect=_died(1, 3, seen=(_WAITS,)),
        is_alone=True,
    ),
    _drill(
        name="three-at-once",
        title="three of four ranks are killed at once, two spares are parked",
        faults=(
            a_fault(FaultKind.SIGKILL, 0, name="first"),
            _kill(1, "second", _AT_ONCE),
            _kill(3, "third", _AT_ONCE),
        ),
        expect=_died(0, 1, 3, seen=(_WAITS,)),
        run=JobSettings(spares=2),
        is_alone=True,
    ),
    _drill(
        name="spare-dies",
        title="the parked spare is killed",
        faults=(a_fault(FaultKind.KILL_SPARE, 0),),
        expect=Expectation(
            outcome=Outcome.FINISHED,
            seen=(
                Seen(
                    kind="inventory",
                    body=(("state", "gone"),),
                    words="the spare's end is on record",
                ),
            ),
        ),
        is_alone=True,
    ),
    _drill(
        name="no-spare",
        title="a rank is killed in a job without spares",
        faults=(a_fault(FaultKind.SIGKILL, 2),),
        expect=_died(2, seen=(_WAITS,)),
        run=JobSettings(spares=0),
        is_alone=True,
    ),
    _drill(
        name="no-spare-in-time",
        title="a rank is killed without spares, and the contract waits for one second",
        faults=(a_fault(FaultKind.SIGKILL, 2),),
        expect=Expectation(
            outcome=Outcome.ESCALATED,
            symptom="process_exit",
            ranks=(2,),
            seen=(_WAITS,),
            says="no spare in time",
        ),
        run=JobSettings(spares=0, contract=_impatient()),
    ),
    _drill(
        name="error-every-step",
        title="one rank raises the same error in every step, whoever serves it",
        faults=(_raises(2),),
        expect=Expectation(
            outcome=Outcome.ESCALATED,
            symptom="exception",
            incidents=4,
            says="the same failure came back 3 times: exception/InjectedFault",
        ),
        run=JobSettings(limit_us=300_000_000),
    ),
    _drill(
        name="error-every-rank",
        title="every rank raises the same error in the same step, again and again",
        faults=tuple(_raises(rank) for rank in range(4)),
        expect=Expectation(
            outcome=Outcome.ESCALATED,
            symptom="exception",
            ranks=(0, 1, 2, 3),
            incidents=2,
            says="a bug of the script, not of a host; signature exception/InjectedFault",
        ),
    ),
)
