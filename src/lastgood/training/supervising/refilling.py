"""Spares that were ordered: started at once, or as soon as there is memory, room and a process number for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.training.supervising.launch import start_worker

if TYPE_CHECKING:
    from lastgood.training.supervising.supervisor import Supervisor

RETRY_US = 5_000_000


class Refilling:
    """How many spares are still to be started, and when the next attempt is due."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._owed_count = 0
        self._next_try_us = 0
        self._told = ""

    def order(self, count: int) -> None:
        """Start so many more spares, now where that is possible."""
        self._owed_count += count
        self.poll()

    def poll(self) -> None:
        """Start what is owed. A failure is said once and tried again: the run does not need the spare yet."""
        while self._owed_count and self._supervisor.now_us() >= self._next_try_us:
            try:
                start_worker(self._supervisor, is_spare=True)
            except OSError as error:
                self._next_try_us = self._supervisor.now_us() + RETRY_US
                self._tell(error)
            else:
                self._owed_count -= 1
                self._told = ""

    def _tell(self, error: OSError) -> None:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"{error.strerror or error}{where}"
        if reason != self._told:
            self._told = reason
            text = f"a spare cannot be started: {reason}; it is tried again every {RETRY_US // 1_000_000} s"
            body = {"text": text, "owed": self._owed_count}
            self._supervisor.recorder.record("annotation", symptom="storage_error", body=body)
