"""The data position: which batch belongs to which step, also after a rewind.

Batch k is what step k consumes. A loader that has `state_dict` and `load_state_dict` (torchdata's
StatefulDataLoader) is asked for its position. A plain DataLoader is rebuilt by seeded skip-ahead: its iterator is
created again under the random state in which the epoch began (that of its own generators included), and as many batches are
passed over as were used. Where the loader reads a map-style dataset in this process, only the samplers are advanced.
A loader that is its own iterator, such as a generator, cannot start over: it is made anew.

What skip-ahead cannot repeat: a sampler that draws from a global stream in the middle of an epoch, and random
augmentation in `persistent_workers`, whose streams outlive the epoch. Such a loader needs `state_dict`.

The last few batches are kept with the random state behind each, so a rank that survived does not fetch them again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from lastgood.base.errors import BadInput
from lastgood.training.rank.batch import full_copy, shared_copy, tensor_versions
from lastgood.training.rank.collectives import collective_count
from lastgood.training.rank.skipping import skip_batches
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
    generators: tuple[torch.Tensor, ...] = ()
    """State of the loader's own generators when the epoch began."""


class _Kept(NamedTuple):
    batch: Any
    versions: tuple[int, ...]
    """How often each tensor had been changed before the step got the batch."""
    streams: RandomStreams
    after: Position


class EndOfEpoch(Exception):
    """The loader has no more batches in this epoch."""


class Feed:
    """Hands out the batch of a step, in order or again."""

    def __init__(self, make: Callable[[int, int], Iterable[Any]], *, rank: int, world: int) -> None:
        """Build the loader for a rank; in a spare when it takes one over, or is expected to."""
        self._make = lambda: call_loader_function(make, rank, world)
        before = collective_count()
        self._loader = self._make()
        self.has_met_peers = collective_count() != before
        """True when a collective of the whole group was begun while the loader function ran."""
        self.on_meeting: Callable[[], None] | None = None
        """Called once, when a collective of the whole group was begun while the loader gave a batch; None to look no more."""
        self._was_opened = False
        self._copies_tensors = False
        """True once a step was seen to change its batch in place."""
        self._iterator: Iterator[Any] | None = None
        states = tuple(g.get_state() for g in _generators(self._loader))
        self._position = Position(0, 0, None, None, states)
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._newest_step = 0

    @property
    def may_draw_anew(self) -> bool:
        """True when nobody knows the random streams of the loader's processes once an epoch is over."""
        has_position = hasattr(self._loader, "state_dict") and hasattr(
            self._loader, "load_state_dict"
        )
        return _persists(self._loader) and not has_position

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
        if kept is not None and kept.after.epoch > self._position.epoch:
            raise EndOfEpoch
        if kept is not None and tensor_versions(kept.batch) == kept.versions:
            restore_streams(kept.streams)
            self._position = kept.after
            return self._copied(kept.batch)
        if (
            kept is not None
        ):  # the step changed it in place: fetch it afresh, and keep copies from now on
            self._copies_tensors = True
            self._kept.clear()
            self._iterator = None
        begun = collective_count() if self.on_meeting is not None else None
        try:
            batch = self._next()
        finally:
            if self.on_meeting is not None and collective_count() != begun:
                tell, self.on_meeting = self.on_meeting, None
                tell()
        before = self._position
        self._position = before._replace(
            offset=before.offset + 1, loader_state=self._loader_state()
        )
        self._newest_step = step
        self._kept[step] = _Kept(batch, tensor_versions(batch), capture_streams(), self._position)
        while len(self._kept) > KEPT_BATCHES:
            self._kept.popitem(last=False)
        return self._copied(batch)

    def _next(self) -> Any:
        if self._iterator is None:
            self._open()
        assert self._iterator is not None
        try:
            return ask_loader(next, self._iterator)
        except StopIteration:
            raise EndOfEpoch from None

    def _copied(self, batch: Any) -> Any:
        return full_copy(batch) if self._copies_tensors else shared_copy(batch)

    def next_epoch(self) -> None:
        """Start over at the first batch of the next epoch."""
        if self._position.offset == 0:
            raise BadInput(
                "the loader gave no batch",
                where="lastgood.start(loader=...)",
                found="an epoch without a single batch",
                needs="at least one batch on every rank",
            )
        epoch = self._position.epoch + 1
        if not any(kept.after.epoch >= epoch for kept in self._kept.values()):
            self._iterator = None  # else it stands in a later epoch already, behind what is kept
        self._position = Position(epoch, 0, None, None)

    def _open(self) -> None:
        position = self._position
        set_epoch = getattr(getattr(self._loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            ask_loader(set_epoch, position.epoch)
        # Opening draws seeds that the undisturbed run did not draw here: the streams are put back each time.
        now = capture_streams()
        is_first, self._was_opened = not self._was_opened, True
        is_again = not is_first and (position.epoch == 0 or position.offset)
        if is_again and (
            _is_one_shot(self._loader) or (position.epoch == 0 and _persists(self._loader))
        ):
            self._loader = self._make()
            restore_streams(now)
        if is_first and position.epoch and _persists(self._loader):
            # Its first opening draws a seed, later ones do not: the undisturbed run opened it in epoch 0.
            ask_loader(iter, self._loader)
            restore_streams(now)
        if position.loader_state is not None and hasattr(self._loader, "load_state_dict"):
            ask_loader(self._loader.load_state_dict, position.loader_state)
            self._iterator = ask_loader(iter, self._loader)
            restore_streams(now)
            return
        generators = _generators(self._loader)
        for generator, state in zip(generators, position.generators, strict=False):
            generator.set_state(state)
        if position.epoch_streams is None:
            states = tuple(generator.get_state() for generator in generators)
            self._position = position._replace(epoch_streams=now, generators=states)
            self._iterator = ask_loader(iter, self._loader)
            return
        restore_streams(position.epoch_streams)
        self._iterator = ask_loader(iter, self._loader)
        ask_loader(skip_batches, self._iterator, position.offset, self._loader)
        restore_streams(now)

    def _loader_state(self) -> dict[str, Any] | None:
        read = getattr(self._loader, "state_dict", None)
        return ask_loader(read) if read is not None else None


def ask_loader(call: Callable[..., Any], *args: Any) -> Any:
    """Call a part of the user's loader: this frame in a trace says that the loader raised, and not the step."""
    return call(*args)


def call_loader_function(make: Callable[[int, int], Iterable[Any]], rank: int, world: int) -> Any:
    """Call the user's loader function: this frame in a trace says that it raised."""
    return make(rank, world)


def warm_up() -> None:
    """Read from a loader of nothing: the first one of a process loads its parts, which a recovery would wait for."""
    for _ in DataLoader(range(1), generator=torch.Generator()):  # type: ignore[bad-argument-type]
        pass


def _is_one_shot(loader: Iterable[Any]) -> bool:
    """True for a loader that is its own iterator."""
    return getattr(loader, "__next__", None) is not None


def _persists(loader: Iterable[Any]) -> bool:
    """True for a loader whose processes outlive an epoch: it makes its iterator once and resets it afterwards."""
    return bool(getattr(loader, "persistent_workers", False)) and isinstance(loader, DataLoader)


def _generators(loader: Iterable[Any]) -> list[torch.Generator]:
    """The generators that a loader draws from besides the global streams, each once."""
    sampler, batch_sampler = (
        getattr(loader, "sampler", None),
        getattr(loader, "batch_sampler", None),
    )
    owners = (loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
