"""End the step that the main thread is in once another rank is lost: what it still computes will be thrown away.

A signal to the main thread ends a blocking call, and its handler raises where the script stands. That is safe only
where any call may raise as well. So it looks at the frames: in the script's own code, and in whatever runs inside the
forward pass of a module, the step is ended; in Python's library, in torch's own state keeping, in this package, and
wherever something is being entered, left or deleted, it is not, and asked again a moment later.
"""

from __future__ import annotations

import _thread
import enum
import os
import signal
import sysconfig
import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import torch

import lastgood
from lastgood.base.clock import SystemClock

if TYPE_CHECKING:
    from types import FrameType

STEP_SIGNAL = signal.SIGRTMIN + 8
"""Next to the one for stacks; nothing else on Linux sends it."""
_ASK_US, _ASK_US_MAX = 1_000, 20_000
"""Asked again after so long, and after twice as long each time."""
_GUARDED = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__del__"})
"""Who is interrupted in these leaves something held that nobody lets go."""


class StepInterrupted(BaseException):
    """Another rank is lost, so this step counts for nothing. Taken by `with run.step()`; do not catch it."""


class Interruption:
    """Ends the step of the main thread, asked for by another thread."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._main: int | None = None
        """Identity of the thread that runs the steps; None where they are not to be interrupted."""
        self._body: FrameType | None = None
        """Where the block of the present step stands; None outside of one."""
        self._number = 0
        self._due = 0
        """The step that is to be ended."""

    def set_up(self) -> None:
        """Take the signal, on the main thread; a script that uses it itself is not interrupted."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(STEP_SIGNAL) is signal.SIG_DFL:
            signal.signal(STEP_SIGNAL, self._arrived)
            self._main = threading.get_ident()

    def begin_step(self, body: FrameType) -> None:
        """A step begins in the block of this frame."""
        self._number += 1
        self._body = body

    def end_step(self) -> None:
        """The block is left."""
        self._body = None

    def ask(self) -> None:
        """End the step that is under way, if any, from another thread; returns at once."""
        if self._main is None or self._body is None or not self._is_ours():
            return
        self._due = self._number
        signal.pthread_kill(self._main, STEP_SIGNAL)
        with suppress(RuntimeError):  # no more threads for this user: asked once only
            # Not a `Thread`: its start waits until it runs, and the connections wait for this thread.
            _thread.start_new_thread(self._insist, (self._main, self._number))

    def _insist(self, main: int, number: int) -> None:
        wait_us = _ASK_US
        while True:
            self._clock.sleep_us(wait_us)
            if self._body is None or not self._due == self._number == number or not self._is_ours():
                return
            signal.pthread_kill(main, STEP_SIGNAL)
            wait_us = min(2 * wait_us, _ASK_US_MAX)

    def _is_ours(self) -> bool:
        """False where the script took the signal for itself since: without a handler it would end the process."""
        return signal.getsignal(STEP_SIGNAL) == self._arrived

    def _arrived(self, _number: int, frame: FrameType | None) -> None:
        body = self._body
        if self._due != self._number or body is None or frame is None:
            return
        if may_raise(frame, body):
            self._due = 0  # once: a script that swallows it ends its step by itself
            raise StepInterrupted


class _Code(enum.Enum):
    """Whose code a frame runs."""

    SCRIPT = enum.auto()
    INSTALLED = enum.auto()
    """Packages, and the modules that come with torch."""
    GUARDED = enum.auto()
    """Ours, torch's own, Python's, or made at run time."""


def may_raise(frame: FrameType, body: FrameType) -> bool:
    """Tell whether an exception out of nothing in `frame`, called from `body`, leaves everything as a failed call would."""
    innermost = _code_of(frame.f_code.co_filename)
    if innermost is _Code.GUARDED:
        return False
    is_in_forward = False
    at: FrameType | None = frame
    while at is not body:
        if at is None:
            return False  # not called from there
        name, path = at.f_code.co_name, at.f_code.co_filename
        if name in _GUARDED or _is_of_python(path):
            return False
        is_in_forward = is_in_forward or at.f_code is _CALL_OF_MODULE
        at = at.f_back
    return innermost is _Code.SCRIPT or is_in_forward


_CALL_OF_MODULE = torch.nn.Module._call_impl.__code__  # noqa: SLF001 - every forward pass goes through it


_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_TORCH_MODULES = os.path.join(_TORCH, "nn", "")
_OURS = os.path.join(os.path.dirname(lastgood.__file__), "")
_PYTHON = tuple(os.path.join(sysconfig.get_path(p), "") for p in ("stdlib", "platstdlib"))


@cache
def _code_of(path: str) -> _Code:
    path = path if path.startswith("<") else os.path.abspath(path)
    if path.startswith(("<", _OURS)) or _is_of_python(path):
        return _Code.GUARDED
    if path.startswith(_TORCH):
        return _Code.INSTALLED if path.startswith(_TORCH_MODULES) else _Code.GUARDED
    return _Code.INSTALLED if _is_installed(path) else _Code.SCRIPT


@cache
def _is_of_python(path: str) -> bool:
    is_library = path.startswith(_PYTHON) and not _is_installed(path)
    return is_library or path.startswith("<frozen")


def _is_installed(path: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep))
