"""How often a job may be started again: the contract's recurrence, for the hard path, where nothing smaller can leave.

Restart without limit is a loop that costs machines and finds nothing. Two things end it: the same failure again soon
after its recovery, more often than the contract allows, and as many restarts in a row without a single step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.units import format_duration

if TYPE_CHECKING:
    from lastgood.contract.model import FailureContract


class Restarting:
    """Remembers the failures of a run."""

    def __init__(self, contract: FailureContract) -> None:
        again = contract.spec.recovery.recurrence
        self.limit = again.limit
        self._window_us = again.window_us
        self._recovered_us: dict[str, int] = {}
        self._returns: dict[str, int] = {}
        self._barren = 0

    def refusal(self, signature: str, *, now_us: int, has_progressed: bool) -> str | None:
        """Why the job must not be started again, or None when it may."""
        recovered_us = self._recovered_us.get(signature)
        if recovered_us is not None and now_us - recovered_us <= self._window_us:
            self._returns[signature] = self._returns.get(signature, 0) + 1
        else:
            self._returns[signature] = 0
        self._barren = 0 if has_progressed else self._barren + 1
        if self._returns[signature] > self.limit:
            return (
                f"{signature} came back {self._returns[signature]} times, each within "
                f"{format_duration(self._window_us)} of its recovery"
            )
        if self._barren > self.limit:
            return f"{self._barren} starts in a row ended before every rank had done a step"
        return None

    def recovered(self, signature: str, *, now_us: int) -> None:
        """The job does steps again after this failure."""
        self._recovered_us[signature] = now_us
