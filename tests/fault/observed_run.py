"""`lastgood run` on the plain job as a real process, and what its ledger says while it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from lastgood.base.clock import SystemClock
from lastgood.base.errors import LedgerError
from lastgood.ledger.event import Event
from lastgood.ledger.store import open_store
from lastgood.training.rundir import default_root

JOB = Path(__file__).with_name("plain_job.py")


class ObservedRun:
    """One started command."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        ranks: int,
        options: tuple[str, ...] = (),
        script: Path = JOB,
    ) -> None:
        self.ledger = folder / "ledger.db"
        self.log = folder / "command.log"
        self.run_id = f"{folder.name}-{os.getpid()}"
        self._out = self.log.open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(ranks),
                "--run-id", self.run_id, "--ledger", str(self.ledger),
                "--log-dir", str(folder / "logs"), *options, str(script), *arguments,
            ],
            stdout=self._out, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def events(self) -> list[Event]:
        if not self.ledger.exists():
            return []
        try:
            with open_store(self.ledger, create=False) as store:
                return list(store.events())
        except LedgerError:  # it is just being made
            return []

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event.kind == kind]

    def wait_for(self, condition: Callable[[list[Event]], object], *, limit_s: float = 120) -> None:
        clock = SystemClock()
        until_us = clock.monotonic_us() + int(limit_s * 1e6)
        while not condition(self.events()):
            assert clock.monotonic_us() < until_us, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            clock.sleep_us(100_000)

    def pid_of(self, rank: int) -> int:
        return int(self.of("attempt.start")[-1].body["pids"][str(rank)])

    def signal_rank(self, rank: int, number: int) -> None:
        os.kill(self.pid_of(rank), number)

    def end(self, *, limit_s: float = 60) -> int:
        return self.process.wait(timeout=limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process behind, also when a test failed half way: the second signal ends the ranks."""
        self._out.close()
        for _ in range(2):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=3)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(default_root(self.run_id), ignore_errors=True)  # what a killed one leaves


def steps_done(events: list[Event]) -> int:
    """Newest step that the ledger knows."""
    return max((e.body["last"] for e in events if e.kind == "step"), default=0)
