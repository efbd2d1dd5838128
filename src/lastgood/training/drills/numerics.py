"""Drills of state and numbers, and the plain deaths and stops that everything else builds on."""

from __future__ import annotations

from functools import partial

from lastgood.faults.spec import FaultKind
from lastgood.training.drills.drill import Drill, Expectation, Outcome, Seen, a_fault

_drill = partial(Drill, group="numerics")
_DROPPED = Seen(
    kind="state.trust",
    body=(("state", "suspect"),),
    words="the broken state is suspect, and not built upon",
)


def _recovered(symptom: str, class_: str, rank: int, **more: object) -> Expectation:
    return Expectation(
        outcome=Outcome.RECOVERED,
        symptom=symptom,
        class_=class_,
        ranks=(rank,),
        incidents=1,
        **more,  # type: ignore[arg-type]
    )


DRILLS = (
    _drill(
        name="kill-rank",
        title="a middle rank is killed",
        faults=(a_fault(FaultKind.SIGKILL, 2),),
        expect=_recovered("process_exit", "fail_stop", 2, lost_steps_max=0),
    ),
    _drill(
        name="kill-rank-0",
        title="rank 0 is killed",
        faults=(a_fault(FaultKind.SIGKILL, 0),),
        expect=_recovered("process_exit", "fail_stop", 0, lost_steps_max=0),
    ),
    _drill(
        name="stop-rank",
        title="a rank is stopped (SIGSTOP) and stays silent",
        faults=(a_fault(FaultKind.SIGSTOP, 1),),
        expect=_recovered("hang", "fail_slow", 1, lost_steps_max=0, detected_within_us=2_000_000),
    ),
    _drill(
        name="exception",
        title="the step raises on one rank",
        faults=(a_fault(FaultKind.EXCEPTION, 2),),
        expect=_recovered(
            "exception",
            "fail_stop",
            2,
            lost_steps_max=0,
            seen=(
                Seen(
                    kind="observation",
                    body=(("type", "InjectedFault"),),
                    words="the trace is kept",
                ),
            ),
        ),
    ),
    _drill(
        name="nan-gradient",
        title="the gradient of one rank holds NaN",
        faults=(a_fault(FaultKind.NAN_GRADIENT, 3),),
        expect=_recovered("nonfinite", "sdc", 3, lost_steps_max=3),
    ),
    _drill(
        name="flip-snapshot",
        title="a bit of the newest snapshot flips, and its rank dies",
        faults=(a_fault(FaultKind.FLIP_SNAPSHOT, 1, then_sigkill=True),),
        expect=_recovered("process_exit", "fail_stop", 1, lost_steps_max=3, seen=(_DROPPED,)),
    ),
    _drill(
        name="cut-snapshot",
        title="the newest snapshot loses its end, and its rank dies",
        faults=(a_fault(FaultKind.TRUNCATE_SNAPSHOT, 3, then_sigkill=True),),
        expect=_recovered("process_exit", "fail_stop", 3, lost_steps_max=3, seen=(_DROPPED,)),
    ),
    _drill(
        name="flip-parameter",
        title="a bit of a parameter flips in the memory of one replica",
        faults=(a_fault(FaultKind.FLIP_PARAMETER, 2, bit=20),),
        expect=_recovered("replica_divergence", "sdc", 2, lost_steps_max=3),
    ),
)
