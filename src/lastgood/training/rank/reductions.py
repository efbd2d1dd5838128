"""The gradient reductions that a rank waits for: a revocation ends the wait, whatever becomes of the reduction itself.

gloo forgets the transfer that was under way when its connection ended: who waits for that one is never told. Gradients
are most of what the ranks send, so the wrapper is given a future that this process can end by itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Reduced = torch.futures.Future[Any]

_REVOKED = "the gloo group was revoked: a rank of it is lost"


class Reductions:
    """What is under way in the current generation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Reductions end on the group's own threads, a revocation comes on the control thread."""
        self._pending: dict[int, Reduced] = {}
        self._number = 0
        self._is_revoked = False

    def begin(self) -> None:
        """A new generation: nothing is under way."""
        with self._lock:
            self._pending, self._is_revoked = {}, False

    def refuse_revoked(self) -> None:
        """Raise where the generation is over: no reduction of it can come to anything."""
        if self._is_revoked:
            raise RuntimeError(_REVOKED)

    def follow(
        self, reduced: Reduced, finish: Callable[[Reduced], torch.Tensor]
    ) -> torch.futures.Future[torch.Tensor]:
        """Return what `finish` makes of a reduction, or what raises once the generation is revoked before that."""
        outcome: Reduced = torch.futures.Future()
        with self._lock:
            self.refuse_revoked()
            number = self._number = self._number + 1
            self._pending[number] = outcome
        reduced.add_done_callback(lambda done: self._end(number, done))
        return outcome.then(lambda ended: finish(_of_group(ended.value())))

    def _end(self, number: int, done: Reduced) -> None:
        with self._lock:
            outcome = self._pending.pop(number, None)
        if outcome is not None:
            outcome.set_result(done)

    def revoke(self) -> None:
        """End every wait, from any thread; later reductions are refused."""
        with self._lock:
            pending, self._pending, self._is_revoked = self._pending, {}, True
        for outcome in pending.values():
            outcome.set_result(None)


def _of_group(done: Reduced | None) -> Reduced:
    if done is None:
        raise RuntimeError(_REVOKED)
    return done
