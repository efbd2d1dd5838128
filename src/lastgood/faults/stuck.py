"""Ways for a step to get stuck: real ones, each in a function whose name shows in a stack dump.

None of them returns. The rank cannot answer any more, so what is known of it comes from the kernel, from
its slot, and from stacks that are read from outside.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path

from lastgood.faults.spec import FaultKind

_RELEASE = 'while kill -0 "$0" 2>/dev/null; do sleep 0.1; done; exec 3<>"$1"'
"""Lets the child of `wait_in_the_kernel` begin, and end, once its parent is gone: no process is left behind."""


def get_stuck(kind: FaultKind) -> None:
    """Never return, in the way of that kind."""
    match kind:
        case FaultKind.SPIN:
            hold_interpreter_lock()
        case FaultKind.SPIN_THREAD:
            threading.Thread(target=hold_interpreter_lock, name="spinning", daemon=True).start()
            wait_for_interpreter_lock()
        case FaultKind.DEADLOCK:
            take_lock_twice()
        case FaultKind.KERNEL_WAIT:
            wait_in_the_kernel()
        case _:
            raise AssertionError(f"{kind} does not stick")


def hold_interpreter_lock() -> None:
    """Spin in C without ever giving the interpreter lock up, so that no other thread runs Python again."""
    deque(itertools.repeat(None), maxlen=0)


def wait_for_interpreter_lock() -> None:
    """Ask for the lock until another thread has it for good."""
    while True:
        pass


def take_lock_twice() -> None:
    """Wait for oneself; the interpreter lock is free meanwhile, so the other threads of the process go on."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_in_the_kernel() -> None:
    """Sit in uninterruptible sleep: a spawning process waits for its child to begin, and the child opens a pipe
    that nobody writes. The interpreter lock is held all the time.
    """
    live_files = os.environ.get(
        "LASTGOOD_RUN_DIR"
    )  # they go away with the run, whoever ends the child first
    pipe = Path(tempfile.mkdtemp(prefix="lastgood-wait-", dir=live_files)) / "pipe"
    os.mkfifo(pipe, 0o600)
    subprocess.Popen(
        ["/bin/sh", "-c", f'{_RELEASE}; rm -r "${{1%/*}}"', str(os.getpid()), str(pipe)]
    )
    blocked = (os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[blocked])
