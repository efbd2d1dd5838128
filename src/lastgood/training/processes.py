"""The processes of a run: start them, hear them, end them. Nothing here decides anything."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.clock import SystemClock
from lastgood.training.control import Channel, Hello, ToSupervisor
from lastgood.training.life_lock import LifeLock, code_of_ending
from lastgood.training.resuming.leftovers import note_session
from lastgood.training.slot import StatusSlot
from lastgood.training.starter import starter_note

if TYPE_CHECKING:
    from lastgood.training.options import RunOptions
    from lastgood.training.rundir import RunDir

SPARE_NICENESS = 10
"""Steps of niceness that a spare is given: its start must not slow the ranks that train."""
NICENESS_MAX = 19
"""The kernel takes anything above it for it."""


class WorkerProcess:
    """One worker: the process, the socket to it and its status page."""

    def __init__(self, name: str, *, options: RunOptions, run: RunDir, is_spare: bool) -> None:
        """Start the process; its status page exists before it does."""
        self.name = name
        self.slot = StatusSlot(run.status(name), create=True)
        self._life = LifeLock(run.status(name))
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours, ToSupervisor)
        self._log = _open_log(options.log_dir, name)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lastgood.training.rank.worker",
                str(options.script),
                *options.arguments,
            ],
            env=_environment(name, options, run, channel=theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT if self._log is not None else None,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self.process.pid
        self.started_us = SystemClock().monotonic_us()
        note_session(run, self.pid)
        if is_spare and can_take_niceness_back():
            self.set_niceness(own_niceness() + SPARE_NICENESS)
        self.pidfd = os.pidfd_open(self.pid)
        self.golden: str | None = None
        self.versions: dict[str, str] = {}
        self.is_ready = False
        """True once the script has reached lastgood.start."""
        self._has_let_go = self._has_ended = False
        self._early_code: int | None = None

    @property
    def exit_code(self) -> int | None:
        """None until its end was heard; negative = ended by that signal.

        Known while the kernel still takes the process apart, unless it holds a device, a port or a lock that its
        successor may need. The kernel is asked only about a process that is known to end: this is read many times a turn.
        """
        if self._early_code is not None:
            # Where SIGCHLD is ignored, subprocess says 0 of every child that is gone.
            return self._early_code
        code = self.process.poll() if self._has_ended else None
        if code is None and self._has_let_go and not self.slot.holds_exclusive:
            code = self._early_code = code_of_ending(self.pid)
        return code

    @property
    def is_gone(self) -> bool:
        """True once the kernel has given back everything that the process held."""
        return self.process.poll() is not None

    @property
    def early_notices(self) -> tuple[int, ...]:
        """What becomes readable when the process has begun to end; `pidfd` does when it is gone."""
        return self._life.notices

    def hear_early_notice(self) -> None:
        """It was heard, and is not given again."""
        self._has_let_go = True
        self._life.close()

    def hear_end(self) -> None:
        """Its `pidfd` has become readable."""
        self._has_ended = True

    def introduce(self, hello: Hello) -> None:
        """Take in what the worker says of itself when it has come up."""
        self.golden, self.versions = hello.golden, hello.versions
        self._life.watch()

    def set_niceness(self, value: int) -> None:
        """Set it for every thread, since Linux counts niceness by thread."""
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), value)

    def note(self, text: str) -> None:
        """Write a line into the worker's own log, where it has one: who reads it there was not at the terminal."""
        if self._log is not None:
            with suppress(OSError):
                self._log.write(f"lastgood: {text}\n".encode())
                self._log.flush()

    def kill(self) -> None:
        """SIGKILL, since a stopped or spinning process ignores SIGTERM."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def close(self) -> None:
        """Release what belongs to an ended process."""
        with suppress(OSError):
            os.close(self.pidfd)
        self._life.close()
        self.channel.close()
        if self._log is not None:
            self._log.close()


@cache
def can_take_niceness_back() -> bool:
    """Tell whether the kernel lets this user lower a niceness again: without, a spare would train niced for good.

    Tried on a thread of its own, which ends with the answer: neither root nor a capability is a sure sign in a container.
    """
    found: list[bool] = []

    def probe() -> None:
        thread, own = threading.get_native_id(), own_niceness()
        try:
            os.setpriority(os.PRIO_PROCESS, thread, own + 1)
            # At the end of the scale the line above changed nothing, so one step is taken back from there.
            os.setpriority(os.PRIO_PROCESS, thread, min(own, NICENESS_MAX - 1))
        except OSError:
            found.append(False)
        else:
            found.append(True)

    prober = threading.Thread(target=probe)
    prober.start()
    prober.join()
    return found[0]


def own_niceness() -> int:
    """The niceness of the process, which is what its ranks have."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def _environment(name: str, options: RunOptions, run: RunDir, *, channel: int) -> dict[str, str]:
    """The environment of a worker: torchrun's, less what only a rank can know."""
    found = {
        key: value
        for key, value in os.environ.items()
        if key not in {"RANK", "LOCAL_RANK", "GROUP_RANK"}
    }
    found.update(
        LASTGOOD_WORKER=name,
        LASTGOOD_RUN_DIR=str(run.root),
        LASTGOOD_CHANNEL=str(channel),
        **starter_note(),
        WORLD_SIZE=str(options.ranks),
        LOCAL_WORLD_SIZE=str(options.ranks),
        TORCHELASTIC_RUN_ID=options.run_id,
        MASTER_ADDR="127.0.0.1",
        GLOO_SOCKET_IFNAME="lo",
    )
    # As torchrun does: several ranks on one host share its cores.
    found.setdefault("OMP_NUM_THREADS", "1")
    if options.log_dir is not None:
        found["LASTGOOD_OWN_LOG"] = "1"
    if options.tape is not None:
        found["LASTGOOD_FAULT_TAPE"] = str(options.tape)
    return found


def _open_log(folder: Path | None, name: str):  # noqa: ANN202 - a binary file or nothing
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{name}.log").open("ab")


def describe_exit(code: int) -> str:
    """Say how a process ended, as a person would."""
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"
    return f"exited with code {code}"
