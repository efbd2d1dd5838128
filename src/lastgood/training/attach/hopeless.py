"""A stop behind a step needs a step: where none will come any more, SIGTERM ends the process as it does without us.

A handler of Python runs when the main thread comes back to Python, which a rank that waits in a collective for a dead
or stopped peer does not do; the launcher then kills it half a minute later. Python can be told to write a byte when a
signal comes, whatever its main thread does: a thread waits for that byte, and for the word that nothing moves.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

LOOK_S = 0.1


def end_where_no_step_comes(is_broken: Callable[[], bool]) -> bool:
    """Start the thread, from the main thread; False where somebody else has the byte, and then nothing changes.

    Args:
        is_broken: True while an incident is open: a rank ended, or the ranks are known to wait for one.
    """
    heard, told = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)
        return False
    # A forked child shares the pipe: what it is sent is not meant for this process.
    os.register_at_fork(after_in_child=_stay_silent)
    threading.Thread(
        target=_wait, args=(heard, is_broken), name="lastgood-term", daemon=True
    ).start()
    return True


def _stay_silent() -> None:
    with suppress(ValueError):  # forked by another thread of the script that is not the main one
        signal.set_wakeup_fd(-1)


def _wait(heard: int, is_broken: Callable[[], bool]) -> None:
    while signal.SIGTERM not in os.read(heard, 512):
        pass
    never = threading.Event()
    while not is_broken():  # until then a step may still come, and the process leaves behind it
        never.wait(LOOK_S)
    # `signal.signal` is for the main thread only; this is what it would do.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)
