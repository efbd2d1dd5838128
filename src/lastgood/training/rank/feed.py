"""The data position: which batch belongs to which step, also after a rewind.

Batch k is what step k consumes. A loader that has `state_dict` and `load_state_dict` (torchdata's
StatefulDataLoader) is asked for its position. A plain DataLoader is rebuilt by seeded skip-ahead: its iterator is
created again under the random state in which the epoch began, and as many batches are passed over as were used.
Where the loader works in this process the samplers are advanced without loading the data.

The last few batches are kept with the random state behind each, so a rank that survived does not fetch them again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.training.rank.state import RandomStreams, capture_streams, restore_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

KEPT_BATCHES = 4
"""Enough for the furthest rewind within the three snapshots of a rank."""


class Position(NamedTuple):
    """Where in the data a state stands: batches used in this epoch, and how the epoch began."""

    epoch: int
    offset: int
    epoch_streams: RandomStreams | None
    loader_state: dict[str, Any] | None


class _Kept(NamedTuple):
    batch: Any
    streams: RandomStreams
    after: Position


class EndOfEpoch(Exception):
    """The loader has no more batches in this epoch."""


class Feed:
    """Hands out the batch of a step, in order or again."""

    def __init__(self, make: Callable[[int, int], Iterable[Any]], *, rank: int, world: int) -> None:
        """Build the loader for a rank; called when the rank is known, in a spare only when it takes one over."""
        self._loader = make(rank, world)
        self._iterator: Iterator[Any] | None = None
        self._position = Position(0, 0, None, None)
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._newest_step = 0

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self._position.epoch

    @property
    def position(self) -> Position:
        """Position after the newest batch handed out."""
        return self._position

    def seek(self, position: Position, *, step: int) -> None:
        """Go back (or, in a spare, forward) to the position of a state; `step` is that state's step."""
        self._position = position
        if step == self._newest_step or step + 1 in self._kept:
            return  # the iterator stands behind the newest batch, and what lies between is kept
        self._kept.clear()
        self._iterator = None

    def batch(self, step: int) -> Any:
        """Return the batch of a step; raises EndOfEpoch when the epoch has none left.

        The random streams end up as they were after the batch was first fetched.
        """
        kept = self._kept.get(step)
        if kept is not None:
            restore_streams(kept.streams)
            self._position = kept.after
            return kept.batch
        if self._iterator is None:
            self._open()
        assert self._iterator is not None
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise EndOfEpoch from None
        before = self._position
        self._position = before._replace(
            offset=before.offset + 1, loader_state=self._loader_state()
        )
        self._newest_step = step
        self._kept[step] = _Kept(batch, capture_streams(), self._position)
        while len(self._kept) > KEPT_BATCHES:
            self._kept.popitem(last=False)
        return batch

    def next_epoch(self) -> None:
        """Start over at the first batch of the next epoch."""
        if self._position.offset == 0:
            raise BadInput(
                "the loader gave no batch",
                where="lastgood.start(loader=...)",
                found="an epoch without a single batch",
                needs="at least one batch on every rank",
            )
        self._iterator = None
        self._position = Position(self._position.epoch + 1, 0, None, None)

    def _open(self) -> None:
        position = self._position
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(position.epoch)
        if position.loader_state is not None and hasattr(self._loader, "load_state_dict"):
            self._loader.load_state_dict(position.loader_state)
            self._iterator = iter(self._loader)
            return
        now = capture_streams()
        if position.epoch_streams is None:
            self._position = position._replace(epoch_streams=now)
            self._iterator = iter(self._loader)
            return
        restore_streams(position.epoch_streams)
        self._iterator = iter(self._loader)
        _skip(self._iterator, position.offset)
        restore_streams(now)

    def _loader_state(self) -> dict[str, Any] | None:
        read = getattr(self._loader, "state_dict", None)
        return read() if read is not None else None


def _skip(iterator: Iterator[Any], count: int) -> None:
    """Pass over batches; only their indices where the loader works in this process."""
    indices = getattr(iterator, "_sampler_iter", None)
    works_here = getattr(iterator, "_num_workers", None) == 0
    for _ in range(count):
        next(indices if indices is not None and works_here else iterator)
