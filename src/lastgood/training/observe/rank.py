"""One rank of a job whose script is not changed: its process, its status page, and torchrun's environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from lastgood.training.observe.ending import EndingNote, read_ending
from lastgood.training.observe.first_note import FirstNote, read_first_note
from lastgood.training.resuming.leftovers import note_session
from lastgood.training.slot import StatusSlot
from lastgood.training.starter import starter_note
from lastgood.training.teardown import code_of_end, code_of_leaver

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.training.options import RunOptions
    from lastgood.training.rundir import RunDir

MASTER_ADDR = "127.0.0.1"


class Attempt(NamedTuple):
    """One start of all ranks. Numbers are 1-based; the port is fresh each time, since a reused store knows dead peers."""

    number: int
    port: int
    restarts_max: int
    is_acting: bool


class ObservedRank:
    """A rank that this process started. Its name is that of its rank and attempt: no worker serves twice."""

    def __init__(self, rank: int, *, attempt: Attempt, options: RunOptions, run: RunDir) -> None:
        """Start the process; its status page exists before it does."""
        self.rank = rank
        self.name = f"r{rank}a{attempt.number}"
        self._run = run
        self.is_given_up = False
        """True when its script was through and the kernel does not let the killed process go."""
        self.slot = StatusSlot(run.status(self.name), create=True)
        self._log = None
        if options.log_dir is not None:
            options.log_dir.mkdir(parents=True, exist_ok=True)
            self._log = (options.log_dir / f"rank{rank}.log").open("ab")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lastgood.training.rank.observed",
                str(options.script),
                *options.arguments,
            ],
            env={
                **torchrun_environment(rank, options=options, attempt=attempt),
                "LASTGOOD_WORKER": self.name,
                "LASTGOOD_RUN_DIR": str(run.root),
                "LASTGOOD_SCRIPT": str(options.script.resolve()),
                "LASTGOOD_MODE": "act" if attempt.is_acting else "observe",
                "LASTGOOD_ATTEMPT": str(attempt.number),
                **starter_note(),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT if self._log is not None else None,
            start_new_session=True,
        )
        self.pid = self.process.pid
        if attempt.is_acting:  # a next start ends it; a rank that is only watched is left alone
            note_session(run, self.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative = ended by that signal before its script was through."""
        code = code_of_end(self.process.poll(), self.ending_path)
        return code_of_leaver(self.ending_path) if code is None and self.is_given_up else code

    @property
    def process_code(self) -> int | None:
        """The exit code that the kernel tells, wherever the process was when it ended."""
        return self.process.poll()

    @property
    def ending_path(self) -> Path:
        """The file of its word about its end."""
        return self._run.root / "endings" / self.name

    @property
    def ending(self) -> EndingNote | None:
        """What the rank said about its end, if it had the time to."""
        return read_ending(self.ending_path)

    @property
    def first_step(self) -> FirstNote | None:
        """What the rank says about its first step."""
        return read_first_note(self._run.root / "first" / self.name)

    def signal(self, number: int) -> None:
        """Pass a signal on to the rank and what it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the rank and what it started: a stopped or spinning process ignores anything else."""
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Release what belongs to an ended process."""
        self.slot.close()
        if self._log is not None:
            self._log.close()


def torchrun_environment(rank: int, *, options: RunOptions, attempt: Attempt) -> dict[str, str]:
    """The environment that torchrun gives to a rank of one node."""
    world = str(options.ranks)
    found = dict(os.environ)
    found.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=world,
        LOCAL_WORLD_SIZE=world,
        GROUP_RANK="0",
        GROUP_WORLD_SIZE="1",
        ROLE_NAME="default",
        ROLE_RANK=str(rank),
        ROLE_WORLD_SIZE=world,
        MASTER_ADDR=MASTER_ADDR,
        MASTER_PORT=str(attempt.port),
        TORCHELASTIC_RUN_ID=options.run_id,
        TORCHELASTIC_RESTART_COUNT=str(attempt.number - 1),
        TORCHELASTIC_MAX_RESTARTS=str(attempt.restarts_max),
        TORCHELASTIC_USE_AGENT_STORE="False",
    )
    for name, usual in (
        ("OMP_NUM_THREADS", "1"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("GLOO_SOCKET_IFNAME", "lo"),
    ):
        found.setdefault(name, usual)
    return found


def free_port() -> int:
    """A port that nobody uses now, chosen by the system."""
    with hold_port() as probe:
        return int(probe.getsockname()[1])


def hold_port() -> socket.socket:
    """Return a socket that keeps a port, chosen by the system, for a store that reuses addresses as torch's does.

    It never listens. Until rank 0 has imported torch and listens there, any other program of the host would be given a
    port that was free a moment ago, for a connection of its own, and the ranks would fail to form their group.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((MASTER_ADDR, 0))
    return probe
