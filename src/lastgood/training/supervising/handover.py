"""A fault before the first state: the start hands the run over to the recovery loop, which knows what to do.

Only an error that every rank raises ends the run here: nothing was trained yet that a recovery could save, and no other
process would do better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.errors import RecoveryError
from lastgood.recovery import messages
from lastgood.signals.reading import Symptom, Verdict

if TYPE_CHECKING:
    from lastgood.signals.reading import Assessment
    from lastgood.training.supervising.supervisor import Supervisor

LOOK_EVERY_US = 40_000
SETTLE_US = 500_000
"""How long an error waits for the other ranks to raise it too; a start is in no hurry."""


class HandOver:
    """Looks for a fault among ranks of which not all have published a state."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Nothing was seen yet."""
        self._supervisor = supervisor
        self._generation = -1
        self._next_us = 0

    def is_done(self, generation: int, *, is_leaving: bool) -> bool:
        """Hand over when there is a fault; True when the loop has the run now.

        Args:
            is_leaving: the ranks were told to leave this generation, since its state did not hold.

        Raises:
            RecoveryError: every rank raised the same error.
        """
        supervisor = self._supervisor
        now_us = supervisor.now_us()
        if generation != self._generation:
            self._generation = generation
            supervisor.watch.begin_generation(generation, next_step=1)
        has_ended = any(supervisor.workers[n].exit_code is not None for n in supervisor.serving)
        if is_leaving and not has_ended:
            return (
                False  # ranks that leave a generation cut each other off: their errors are no news
            )
        if now_us < self._next_us and not has_ended and not supervisor.raised:
            return False
        self._next_us = now_us + LOOK_EVERY_US
        supervisor.hear_last_words()
        workers = [supervisor.workers[name] for name in supervisor.serving]
        verdict = supervisor.watch.assess_liveness(workers, supervisor.raised, now_us=now_us)
        if verdict.verdict not in (Verdict.FAILED, Verdict.UNKNOWN) or verdict.symptom is None:
            return False
        if verdict.symptom is Symptom.EXCEPTION and self._waits(verdict, now_us=now_us):
            return False
        self._close_interruption()
        supervisor.take_over_start(generation)
        supervisor.tell_loop(messages.Assessed(verdict))
        return True

    def _close_interruption(self) -> None:
        """A run that was being taken up has an incident of its own, which this one takes the place of."""
        incident = self._supervisor.resumption.incident
        if incident is not None:
            body = {"outcome": "interrupted", "reason": "a rank failed before the run went on"}
            self._supervisor.recorder.record("incident.close", incident=incident, body=body)

    def _waits(self, verdict: Assessment, *, now_us: int) -> bool:
        supervisor = self._supervisor
        if len(verdict.culprits) == len(supervisor.serving) and "," not in verdict.key:
            first = supervisor.raised[verdict.culprits[0]]
            is_alone = len(supervisor.serving) == 1
            raise RecoveryError(
                "the rank raised before the first step"
                if is_alone
                else "every rank raised the same error before the first step",
                where=f"rank {verdict.culprits[0]}",
                found=f"{first.type_name}{f' {first.loader}' if first.loader else ''}: {first.message}",
                needs="a script that gets to its first step; this is a bug of the script, not of a host",
                next="look at its trace above, or type: lastgood report LEDGER",
            )
        since_us = min(raised.t_us for raised in supervisor.raised.values())
        return now_us - since_us < SETTLE_US
