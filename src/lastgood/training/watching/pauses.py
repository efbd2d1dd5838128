"""A supervisor that was itself stopped (SIGSTOP, a frozen container, a starved host) and now turns again.

While it does not turn, nothing is assessed: the ranks go on for at most two steps and then wait at the gate, and a
recovery stands still. So the time of the pause is held against nobody: it is left out of every silence, and the deadline
of a recovery moves by its length. A long one is recorded, since it is lost time all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lastgood.base.units import format_duration

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor

PAUSE_US_MIN = 100_000
"""A turn takes 10 ms; one that took this long is time in which nobody looked."""
TOLD_US_MIN = 1_000_000
"""A pause of this length is recorded."""


def notice_pause(supervisor: Supervisor) -> None:
    """Mark this moment on the supervisor's page; forgive the time since the last mark when it was too long ago."""
    now_us = supervisor.now_us()
    before_us = supervisor.life.turn(now_us=now_us, wall_us=supervisor.clock.wall_us())
    pause_us = now_us - before_us
    if supervisor.has_turned and pause_us >= PAUSE_US_MIN:
        _forgive(supervisor, before_us=before_us, pause_us=pause_us)
    supervisor.has_turned = True


def _forgive(supervisor: Supervisor, *, before_us: int, pause_us: int) -> None:
    supervisor.watch.forgive(since_us=before_us, until_us=before_us + pause_us)
    state = supervisor.state
    if state is not None and state.deadline_us is not None:
        supervisor.state = replace(state, deadline_us=state.deadline_us + pause_us)
    if pause_us < TOLD_US_MIN:
        return
    began_us = supervisor.recorder.wall_us(before_us)
    supervisor.recorder.record(
        "annotation", t_occurred_us=began_us, body=told_pause("the supervisor", pause_us)
    )


def told_pause(who: str, pause_us: int) -> dict[str, object]:
    """The body of the remark on a long pause of a process that looks after the ranks."""
    text = f"{who} did not turn for {format_duration(pause_us)}: it was stopped or starved"
    return {"text": text, "pause_us": pause_us}
