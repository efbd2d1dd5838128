"""Drills of jobs that lastgood only watches: an unchanged script under observe mode, and one that attaches.

What must be shown is that the culprit is named from outside and that nothing was touched.
"""

from __future__ import annotations

from lastgood.faults.spec import FaultKind
from lastgood.training.drills.drill import (
    Drill,
    Expectation,
    JobSettings,
    Outcome,
    Seen,
    a_fault,
)

GROUP = "watched"
STOPPED_US = 12_000_000
"""Longer than the limit of a second and the stacks of all ranks together."""
_UNCHANGED = JobSettings(spares=0, arguments=("--plain",), options=("--mode", "observe"))
_NOT_AGAIN = tuple(Seen(kind=kind) for kind in ("isolate", "restore.begin", "restore", "escalate"))


def _closed(outcome: str) -> Seen:
    return Seen(
        kind="incident.close",
        body=(("outcome", outcome), ("blast_radius", 4)),
        words=f"the incident is closed as {outcome}, and reached all four ranks",
    )


DRILLS: tuple[Drill, ...] = (
    Drill(
        name="observed-hang",
        group=GROUP,
        title="a rank of an unchanged script is stopped for 12 s under observe mode",
        faults=(a_fault(FaultKind.SIGSTOP, 1, duration_us=STOPPED_US),),
        expect=Expectation(
            outcome=Outcome.OBSERVED,
            symptom="hang",
            class_="fail_slow",
            ranks=(1,),
            incidents=1,
            lost_steps_max=0,
            exit_code=0,
            is_bitwise_equal=True,
            seen=(
                Seen(
                    kind="diagnose",
                    body=(("stack_groups", {"role": "trainer", "is_usual": True}), ("culprits", 1)),
                    words="the stacks are grouped, with rank 1 as the culprit",
                ),
                _closed("resolved"),
            ),
            never=_NOT_AGAIN,
            says="resolved by itself: goes on after step",
        ),
        run=_UNCHANGED,
    ),
    Drill(
        name="observed-death",
        group=GROUP,
        title="a rank of an unchanged script is killed under observe mode",
        faults=(a_fault(FaultKind.SIGKILL, 2),),
        expect=Expectation(
            outcome=Outcome.OBSERVED,
            symptom="process_exit",
            class_="fail_stop",
            ranks=(2,),
            incidents=1,
            exit_code=137,
            seen=(
                _closed("ended"),
                Seen(
                    kind="run.end",
                    body=(("exit_code", 137),),
                    words="the run ended with the code of the killed rank",
                ),
            ),
            never=_NOT_AGAIN,
        ),
        run=_UNCHANGED,
    ),
    Drill(
        name="attached-death",
        group=GROUP,
        title="a rank of a job of two hosts that attach is killed, and the spools are imported",
        faults=(a_fault(FaultKind.SIGKILL, 3),),
        expect=Expectation(
            outcome=Outcome.OBSERVED,
            symptom="process_exit",
            class_="fail_stop",
            ranks=(3,),
            incidents=1,
            exit_code=75,
            seen=(
                _closed("ended"),
                Seen(
                    kind="observation",
                    body=(("text", "ended because another host's did"),),
                    words="the other host says that its ranks only ended of it",
                ),
            ),
            never=_NOT_AGAIN,
        ),
        run=JobSettings(spares=0, arguments=("--plain", "--attach"), is_attached=True, steps=600),
    ),
)
