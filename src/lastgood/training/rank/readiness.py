"""What a rank has ready before its first pass: done while others leave or read, so that nobody waits for it later."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.training.rank.addresses import write_addresses
from lastgood.training.rank.exclusive import holds_exclusive
from lastgood.training.rank.fitting import refuse_other_model

if TYPE_CHECKING:
    from lastgood.training.rank.ahead import ReadAhead
    from lastgood.training.rank.generation import Generation
    from lastgood.training.rank.snapshot import LoadedState


class Readiness:
    """Which state the live objects of a rank have already, and what else was done for it."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._in_place: LoadedState | None = None
        self._is_told_where = False
        """True once it was written where the parameters lie; objects that stay lie there for good."""
        self._has_noted = False
        """True once this process has said whether it holds what only one can hold."""
        self._is_first_step_due = False
        """True from the join until the first step there is over, and looked at."""
        self.has_stepped = False
        """Set when a step was accepted."""
        self._is_frozen = False
        """True while Python's garbage collector leaves out what there was when this rank left or got ready."""
        self._is_script_frozen = gc.get_freeze_count() > 0
        """True where the script has left out something itself."""

    def forget(self) -> None:
        """The live objects change from now on."""
        self._in_place = None

    def take(self, state: LoadedState) -> bool:
        """Tell, once, whether the live objects have this state and nothing of the script ran since."""
        in_place, self._in_place = self._in_place, None
        return state is in_place

    def get(self, state: LoadedState) -> None:
        """Do what is left to do with the state that is restored, and needs no peer."""
        generation = self._generation
        if state is self._in_place:
            return
        if not self._has_noted:
            self._note_exclusive()
        if generation.replica.is_made_anew:
            return
        if not self._is_told_where:
            self.tell_where()
        if generation.replica.is_built:
            return  # what a state is loaded into may be changed behind the join
        refuse_other_model(generation.trainable, state)
        generation.trainable.load(state.tensors, state.values)
        self._in_place = state

    def get_early(self, ahead: ReadAhead, rank: int) -> None:
        """The same with the state that will probably be restored; what goes wrong here is told when it is needed."""
        likely = ahead.likely(rank)
        if likely is not None:
            with suppress(Exception):
                self.get(likely)

    def tell_where(self) -> None:
        """Write where the parameters lie; for whoever injects faults."""
        link = self._generation.link
        self._is_told_where = True
        with suppress(OSError):
            write_addresses(link.run.addresses(link.worker), self._generation.trainable.model)

    def freeze(self) -> None:
        """Leave out of garbage collection what there is: to go through a model and a sampler's list takes ms."""
        # A model that is made anew leaves an old one behind, which has to be found.
        if not self._is_script_frozen and not self._generation.replica.is_made_anew:
            self._is_frozen = True
            gc.freeze()

    def joined(self) -> None:
        """A generation begins; scripts open ports and devices up to the end of their first step in it."""
        if not self._has_noted or (self._is_first_step_due and self.has_stepped):
            self._note_exclusive()
        self._is_first_step_due, self.has_stepped = True, False

    def look_behind_first_step(self) -> None:
        """Say what the script holds by now, once nobody waits for its first step any more."""
        if self._is_first_step_due and self.has_stepped:
            self._is_first_step_due = False
            self._note_exclusive()
            self._thaw()

    def _note_exclusive(self) -> None:
        self._has_noted = True
        link = self._generation.link
        link.slot.note_exclusive(holds_exclusive(but=link.group.sockets))

    def _thaw(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            gc.unfreeze()
        else:
            self._is_script_frozen = gc.get_freeze_count() > 0
