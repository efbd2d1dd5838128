"""What a rank reads before it is told what to restore: while others still leave the old generation.

Which states those will be, and which rank a spare will serve, is a guess. Nothing is decided by it: what is restored
is what the plan says, and a state that was read ahead was hashed like any other. What goes wrong here goes wrong again
in the restore, which can tell it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.training.rank.feed import EndOfEpoch, Feed
from lastgood.training.rank.group import group_to_come
from lastgood.training.rank.snapshot import LoadedState, load_snapshot
from lastgood.training.rank.state import capture_streams, restore_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lastgood.training.rundir import RunDir


class _Guess(NamedTuple):
    """The newest states of a rank, as far as they have been read."""

    rank: int
    newest_step: int
    found: dict[int, LoadedState]
    thread: threading.Thread | None
    """Still reads, where it is alive."""


class ReadAhead:
    """Reads the newest state of a rank and its predecessor, which a replay of the newest step begins with."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._guess: _Guess | None = None
        self._opened: tuple[int, Feed] | None = None

    def begin(self, *, rank: int, newest_step: int) -> None:
        """Read on a thread, since the main one may still be in the user's step.

        What was read before is forgotten: a step may have been done again since.
        """
        found: dict[int, LoadedState] = {}

        def read() -> None:
            self._read(found, rank, newest_step - 1)
            self._read(found, rank, newest_step)

        thread = threading.Thread(target=read, name="lastgood-ahead", daemon=True)
        self._guess = None
        with suppress(RuntimeError):  # no more threads for this user: read when it is needed
            thread.start()
            self._guess = _Guess(rank, newest_step, found, thread)

    def prepare(
        self,
        make_loader: Callable[[int, int], Iterable[Any]],
        *,
        rank: int,
        world: int,
        newest_step: int,
    ) -> None:
        """In a spare: read now, and fetch the batch that a replay of the newest step takes.

        The user's loader is made before there is a group: it finds its rank and world in `torch.distributed`, and what
        needs more than that raises, and is done again behind the join.
        """
        found: dict[int, LoadedState] = {}
        self._guess, self._opened = _Guess(rank, newest_step, found, None), None
        self._read(found, rank, newest_step - 1)
        if newest_step - 1 in found:
            self._open(make_loader, found[newest_step - 1], rank=rank, world=world)
        self._read(found, rank, newest_step)

    def _read(self, found: dict[int, LoadedState], rank: int, step: int) -> None:
        with suppress(Exception):
            found[step] = load_snapshot(self._run, rank, step)

    def _open(
        self,
        make_loader: Callable[[int, int], Iterable[Any]],
        state: LoadedState,
        *,
        rank: int,
        world: int,
    ) -> None:
        streams = capture_streams()
        try:
            with suppress(Exception), group_to_come(rank=rank, world=world):
                feed = Feed(make_loader, rank=rank, world=world)
                restore_streams(state.streams)
                feed.seek(state.position["feed"], step=state.step)
                with suppress(EndOfEpoch):
                    feed.batch(state.step + 1)
                self._opened = (rank, feed)
        finally:
            restore_streams(streams)

    def likely(self, rank: int) -> LoadedState | None:
        """Return the state of a rank with which a replay of the newest step begins, where it was read ahead."""
        guess = self._guess
        if guess is None or guess.rank != rank:
            return None
        if guess.thread is not None:
            guess.thread.join()
        return guess.found.get(guess.newest_step - 1)

    def state(self, rank: int, step: int) -> LoadedState:
        """Return a state of a rank, read ahead or now; raises SnapshotMismatch when anything is off."""
        guess = self._guess
        if guess is not None and guess.rank == rank:
            if guess.thread is not None:
                guess.thread.join()
            if step in guess.found:
                return guess.found[step]
        return load_snapshot(self._run, rank, step)

    def feed_of(self, rank: int) -> Feed | None:
        """Hand out the data that was opened for a rank, once."""
        opened, self._opened = self._opened, None
        return opened[1] if opened is not None and opened[0] == rank else None

    def forget(self) -> None:
        """Let go of the states: the ranks are about to publish others."""
        self._guess = None
