"""What a run does while its ledger cannot be written: it goes on, says so, and ends in order before memory runs out.

Training does not need the ledger, so a full disk is no reason to lose work. The events wait in memory with their times
and are written as soon as there is room. A person is told at once on the terminal. When too many wait, the run stops
behind a step, writes a checkpoint and ends with the code that asks for a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.errors import EXIT_DO_NOT_REQUEUE
from lastgood.base.units import format_duration
from lastgood.recovery.messages import Escalate
from lastgood.training.supervising.notify import notify

if TYPE_CHECKING:
    from lastgood.ledger.writer import Outage
    from lastgood.training.supervising.supervisor import Supervisor

HELD_EVENT_COUNT_MAX = 20_000
"""Events that may wait in memory: some 40 MB, and about a day of a quiet run."""


class LedgerWatch:
    """Looks once a turn whether the ledger takes what it is given."""

    def __init__(
        self, supervisor: Supervisor, *, held_count_max: int = HELD_EVENT_COUNT_MAX
    ) -> None:
        self._supervisor = supervisor
        self._held_count_max = held_count_max
        self._since_us: int | None = None
        self._held_count = 0
        self._has_escalated = False

    def poll(self) -> None:
        """Say when an outage begins and ends; end the run when it lasts too long."""
        outage = self._supervisor.recorder.outage
        if outage is not None:
            self._held_count = max(self._held_count, outage.held_count)
            if self._since_us is None:
                self._begin(outage)
            if outage.held_count >= self._held_count_max and not self._has_escalated:
                self._escalate(outage)
        elif self._since_us is not None:
            self._end(self._since_us)

    def _begin(self, outage: Outage) -> None:
        self._since_us = outage.since_us
        text = (
            f"the ledger cannot be written: {outage.reason}; training goes on, "
            f"and up to {self._held_count_max:,} events are kept in memory"
        )
        self._record(text, since_us=outage.since_us)

    def _end(self, since_us: int) -> None:
        lasted_us = self._supervisor.now_us() - since_us
        text = (
            f"the ledger is written again after {format_duration(lasted_us)}: "
            f"{self._held_count:,} events had waited in memory"
        )
        self._record(text, since_us=since_us, lasted_us=lasted_us, held_count=self._held_count)
        self._since_us, self._held_count = None, 0

    def _record(self, text: str, *, since_us: int, **numbers: int) -> None:
        recorder = self._supervisor.recorder
        body = {"text": text, "since_us": recorder.wall_us(since_us), **numbers}
        recorder.record("annotation", symptom="storage_error", body=body)

    def _escalate(self, outage: Outage) -> None:
        self._has_escalated = True
        supervisor = self._supervisor
        reason = f"the ledger cannot be written and {outage.held_count:,} events wait in memory"
        owner = ""
        if supervisor.contract is not None:
            owner = supervisor.contract.spec.recovery.detect.owner
        supervisor.recorder.record("escalate", body={"reason": reason, "owner": owner})
        notify(
            supervisor.contract,
            supervisor.recorder,
            Escalate(reason=reason, incident="", owner=owner),
            ledger=supervisor.options.ledger,
        )
        supervisor.ending.end_for(reason, code=EXIT_DO_NOT_REQUEUE)
