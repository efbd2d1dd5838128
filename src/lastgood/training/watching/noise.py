"""How far two runs of one step differ in this job: measured once at its start, and the measure of every later replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.training import control
    from lastgood.training.supervising.supervisor import Supervisor


def hear_noise(supervisor: Supervisor, message: control.NoiseMeasured) -> None:
    """One step was run twice at the start: from now on it is known whether replays must be bit-equal."""
    if not message.is_bitwise:
        known = supervisor.tolerance
        # Four times the noise that was seen: two runs may differ by twice as much again.
        largest = max(float.fromhex(message.noise), float.fromhex(known) / 4 if known else 0.0)
        supervisor.tolerance = (4 * largest).hex()
        supervisor.life.tolerate(4 * largest)
    supervisor.recorder.record(
        "annotation",
        ranks=(message.rank,),
        body={
            "text": "one step was run twice from the same state",
            "step": message.step,
            "is_bitwise": message.is_bitwise,
            "noise": message.noise,
        },
    )
