"""The states of numpy's and Python's global generators, read out again only where a byte of a generator changed.

Both are asked at every batch and every step, few scripts draw from them, and each makes hundreds of numbers to answer.
A generator keeps all of its state in its own memory. What that memory means is not looked at, only whether it is what
it was when the generator was asked last: a draw shows there, half of a pair that was used up, and a state that was set.
A generator of another kind, or one whose draws a trial does not find there, is asked every time.
"""

from __future__ import annotations

import ctypes
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_BYTES = 16
"""What CPython counts references in: it changes without a draw."""
_TWISTER_BYTES = 625 * 4
"""Of a Mersenne twister: its words and the place among them."""


class Memory(NamedTuple):
    """All that a generator knows: equal bytes and the very same object beside them mean an equal state."""

    held: bytes
    beside: object = None
    """Compared by identity: equal floats may differ in their sign."""

    def is_same(self, other: Memory | None) -> bool:
        """Whether nothing changed between the two looks."""
        return other is not None and self.held == other.held and self.beside is other.beside


class Steady:
    """A generator's state; while nothing was drawn, one and the same object."""

    __slots__ = ("_known", "_memory", "_read")

    def __init__(self, read: Callable[[], Any], memory: Callable[[], Memory | None]) -> None:
        """`memory` gives what is compared, or None where that would tell nothing."""
        self._read = read
        self._memory = memory
        self._known: tuple[Memory | None, Any] = (None, None)

    def state(self) -> Any:
        """Return the state as the generator itself gives it; not to be changed."""
        memory = self._memory()
        before, state = self._known  # at once: the control thread asks too
        if memory is not None and memory.is_same(before):
            return state
        state = self._read()
        # Whoever draws meanwhile, in another thread, must not have the old memory stand for the new state.
        is_whole = memory is not None and memory.is_same(self._memory())
        self._known = (memory, state) if is_whole else (None, None)
        return state


def _of_numpy(own: np.random.RandomState, generator: Any) -> Memory | None:
    if type(own) is not np.random.RandomState or type(generator) is not np.random.MT19937:
        return None
    words = ctypes.string_at(generator.ctypes.state_address, _TWISTER_BYTES)
    return Memory(words + _memory_of(own))


def _of_python(own: random.Random) -> Memory | None:
    return Memory(_memory_of(own), own.gauss_next) if type(own) is random.Random else None  # type: ignore[missing-attribute]


def _memory_of(thing: object) -> bytes:
    return ctypes.string_at(id(thing) + _HEAD_BYTES, type(thing).__basicsize__ - _HEAD_BYTES)


def _read_numpy() -> Any:
    is_usual = type(np.random.get_bit_generator()) is np.random.MT19937
    state: Any = np.random.get_state(legacy=is_usual)  # noqa: NPY002 - of any other it is a dictionary
    if isinstance(state, tuple):
        state[1].flags.writeable = False
    return state


def _shows_draws(memory: Callable[[], Memory | None], draw: Callable[[], Any]) -> bool:
    """Whether two draws show, the second of which may only use up what the first left over."""
    seen = [memory()]
    for _ in range(2):
        draw()
        seen.append(memory())
    return all(before is not None and not before.is_same(now) for before, now in pairwise(seen))


def numpy_generator() -> Steady:
    """The generator behind the functions of `numpy.random`."""
    own = getattr(np.random.get_state, "__self__", None)
    bits = np.random.MT19937(1)
    trial: Any = np.random.RandomState(bits)
    if not _shows_draws(lambda: _of_numpy(trial, bits), trial.standard_normal):
        return Steady(_read_numpy, lambda: None)
    return Steady(_read_numpy, lambda: _of_numpy(own, np.random.get_bit_generator()))  # type: ignore[bad-argument-type]


def python_generator() -> Steady:
    """The generator behind the functions of `random`."""
    own = getattr(random.getstate, "__self__", None)
    trial = random.Random(1)
    draws = (lambda: trial.gauss(0, 1), trial.random)
    if not all(_shows_draws(lambda: _of_python(trial), draw) for draw in draws):
        return Steady(random.getstate, lambda: None)
    return Steady(random.getstate, lambda: _of_python(own))  # type: ignore[bad-argument-type]
