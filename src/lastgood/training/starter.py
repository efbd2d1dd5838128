"""The process that started this one: who it is, whether it is still there, and how to end with it.

A rank of a run that acts must not outlive its supervisor: the next start would run a second copy beside it. The kernel
ends it from the moment in which it asks to be ended so. Before that moment it asks nobody, hence two rules: to ask
before anything that takes time is imported, and to look afterwards whether there still is somebody to end with.
"""

from __future__ import annotations

import ctypes
import os
import signal

VARIABLE = "LASTGOOD_STARTER"
_PR_SET_PDEATHSIG = 1


def starter_note() -> dict[str, str]:
    """What a process that starts another one puts into its environment."""
    return {VARIABLE: str(os.getpid())}


def has_starter() -> bool:
    """True while the process that started this one is its parent; also where nobody noted who that is."""
    return os.environ.get(VARIABLE) in (None, str(os.getppid()))


def end_with_starter() -> None:
    """Have this process killed when the one that started it ends; it is killed at once when that one is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not has_starter():
        os.kill(os.getpid(), signal.SIGKILL)
