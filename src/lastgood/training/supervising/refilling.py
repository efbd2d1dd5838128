"""Spares that were ordered: started at once, or as soon as there is memory, room and a process number for them.

A start costs seconds of processor time, most of it for imports. A recovery that has a worker for every rank does not
wait for the new spare, so the spare waits for the recovery: until the first new step was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery.policy import LoopPhase
from lastgood.training.supervising.launch import start_worker

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor

RETRY_US = 5_000_000
HOLD_US_MAX = 5_000_000
"""Longest wait for the first step behind a recovery: a step may take minutes."""


class Refilling:
    """How many spares are still to be started, and when the next attempt is due."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._owed_count = 0
        self._next_try_us = 0
        self._told = ""
        self._resumed_step: int | None = None
        """The step behind which the run goes on after a recovery; None while nothing is held back for one."""
        self._held_until_us = 0

    def order(self, count: int) -> None:
        """Start so many more spares, now where that is possible and delays no recovery."""
        self._owed_count += count
        self.poll()

    def poll(self) -> None:
        """Start what is owed. A failure is said once and tried again: the run does not need the spare yet."""
        if not self._owed_count or self._is_held():
            return
        while self._owed_count and self._supervisor.now_us() >= self._next_try_us:
            try:
                start_worker(self._supervisor, is_spare=True)
            except OSError as error:
                self._next_try_us = self._supervisor.now_us() + RETRY_US
                self._tell(error)
            else:
                self._owed_count -= 1
                self._told = ""

    def _is_held(self) -> bool:
        """Whether a recovery that needs no further worker goes on, or its first step is not done yet."""
        supervisor = self._supervisor
        state = supervisor.state
        assert state is not None, "the loop orders"
        if state.phase is not LoopPhase.RUNNING:
            self._resumed_step = supervisor.page.assessed_step
            self._held_until_us = supervisor.now_us() + HOLD_US_MAX
            return len(state.crew.vacant_ranks) <= len(state.crew.spares)
        if self._resumed_step is None:
            return False
        step = supervisor.page.assessed_step
        self._resumed_step = min(self._resumed_step, step)  # it may have gone back some steps
        if step <= self._resumed_step and supervisor.now_us() < self._held_until_us:
            return True
        self._resumed_step = None
        return False

    def _tell(self, error: OSError) -> None:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"{error.strerror or error}{where}"
        if reason != self._told:
            self._told = reason
            text = f"a spare cannot be started: {reason}; it is tried again every {RETRY_US // 1_000_000} s"
            body = {"text": text, "owed": self._owed_count}
            self._supervisor.recorder.record("annotation", symptom="storage_error", body=body)
