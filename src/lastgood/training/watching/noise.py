"""How far two runs of one step differ in this job: measured at its start, and the measure of every later replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.training import control
    from lastgood.training.supervising.supervisor import Supervisor

TOLERANCE_FACTOR = 4
"""How much further than in the probes two runs of a step may lie apart: a later step may be noisier than the measured one.

With uniform noise, one replay in six lies beyond four times a single probe, but less than one in 10,000 beyond four
times the largest of eight. One that does costs a state that was right; it never lets a wrong one through.
"""


def hear_noise(supervisor: Supervisor, message: control.NoiseMeasured) -> None:
    """A step was run again at the start: from now on it is known whether replays must be bit-equal, and how nearly."""
    if not message.is_bitwise:
        known = supervisor.tolerance
        bound = TOLERANCE_FACTOR * float.fromhex(message.noise)
        bound = max(bound, float.fromhex(known) if known else 0.0)
        supervisor.tolerance = bound.hex()
        supervisor.life.tolerate(bound)
    supervisor.recorder.record(
        "annotation",
        ranks=(message.rank,),
        body={
            "text": "one step was run again from the same state",
            "probe": message.probe,
            "step": message.step,
            "is_bitwise": message.is_bitwise,
            "noise": message.noise,
        },
    )
