"""Whether every rank of the next generation has a worker, and what is done about one that has none."""

from __future__ import annotations

from lastgood.base.units import format_duration
from lastgood.recovery.escalation import escalate
from lastgood.recovery.turn import Turn


def is_complete(turn: Turn) -> bool:
    """Whether every rank has a worker; says once that one is waited for, and gives up when none can come.

    The number of ranks never shrinks: that would change the global batch, and with it every later bit.
    """
    crew = turn.crew
    missing = len(crew.vacant_ranks) - len(crew.spares)
    if missing <= 0:
        return True
    words = f"{missing} {'rank has' if missing == 1 else 'ranks have'} no worker"
    if (
        not crew.launching_count
        and crew.launch_failure_count >= turn.state.policy.launch_failures_max
    ):
        lost = f"the last {crew.launch_failure_count} spares ended before they were ready"
        escalate(turn, f"no spare is left: {words}, and {lost}")
    elif turn.is_late:
        limit_us = turn.row.timeout_us or 0
        escalate(turn, f"no spare in time: {words} after {format_duration(limit_us)}")
    elif not turn.open_case.is_short_noted:
        turn.change_case(is_short_noted=True)
        until_us = turn.state.deadline_us
        limit_us = None if until_us is None else until_us - turn.now_us
        body: dict[str, object] = {
            "missing": missing,
            "launching": crew.launching_count,
            "limit_us": limit_us,
        }
        turn.note("waiting for a spare", body, ranks=crew.vacant_ranks)
    return False
