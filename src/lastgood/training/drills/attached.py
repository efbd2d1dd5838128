"""A job of two hosts under a launcher that is not lastgood's: its ranks call `lastgood.attach()` and nothing watches them
but the process that this starts on each host.

Two names for one machine stand for the two hosts, as in the example for Slurm: each has its ranks and its own spool.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lastgood.base.clock import SystemClock
from lastgood.training.observe.outsiders import Outsiders
from lastgood.training.observe.rank import MASTER_ADDR, free_port
from lastgood.training.observe.supervisor import job_code
from lastgood.training.rundir import RunDir

HOSTS = ("host-a", "host-b")
POLL_US = 100_000
WRITTEN_US_MAX = 60_000_000
"""How long the process of a host may take to write how its ranks ended."""


class AttachedJob:
    """The ranks of one job, the first half of them on the first host."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        run_id: str,
        ranks: int,
        on_turn: Callable[[], None] | None,
    ) -> None:
        """Start them all. Every host has the same number of ranks."""
        self.spool, self.live, self._logs = folder / "spool", folder / "live", folder / "logs"
        self._on_turn, self._clock = on_turn, SystemClock()
        for path in (self.live, self._logs):
            path.mkdir()
        self._outsiders = Outsiders(RunDir(self.live))
        port, each = free_port(), ranks // len(HOSTS)
        common = {
            **os.environ, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(each), "MASTER_ADDR": MASTER_ADDR,
            "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            "LASTGOOD_SPOOL": str(self.spool.resolve()), "LASTGOOD_RUN": run_id, "LASTGOOD_ATTEMPT": "1",
        }  # fmt: skip
        self._ranks: list[subprocess.Popen[bytes]] = []
        for rank in range(ranks):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank % each), "NODE_NAME": HOSTS[rank // each]}  # fmt: skip
            with self._log(rank).open("wb") as log:
                self._ranks.append(
                    subprocess.Popen(
                        [sys.executable, *command],
                        env={**common, **place},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        members = {rank: (f"r{rank}", child.pid) for rank, child in enumerate(self._ranks)}
        self._outsiders.say_members(1, members)

    def finish(self, *, limit_us: int) -> int | None:
        """Wait for the end of all ranks and of their spools: the code of the job, None when it took too long."""
        until_us = self._clock.monotonic_us() + limit_us
        while any(child.poll() is None for child in self._ranks):
            if self._clock.monotonic_us() > until_us:
                return None
            self._turn()
            self._outsiders.say_numbers([_newest_step(self._records())] * len(self._ranks))
        until_us = self._clock.monotonic_us() + WRITTEN_US_MAX
        while not _is_written(self._records()) and self._clock.monotonic_us() < until_us:
            self._turn()
        return job_code([child.returncode for child in self._ranks], None)

    @property
    def said(self) -> str:
        """What the ranks wrote to their terminals."""
        return "".join(self._log(r).read_text(errors="replace") for r in range(len(self._ranks)))

    def close(self) -> None:
        """Leave no rank behind."""
        for child in self._ranks:
            child.kill()
            child.wait()

    def _turn(self) -> None:
        if self._on_turn is not None:
            self._on_turn()
        self._clock.sleep_us(POLL_US)

    def _log(self, rank: int) -> Path:
        return self._logs / f"rank{rank}.log"

    def _records(self) -> list[dict[str, Any]]:
        """The whole lines of all spools."""
        texts = [path.read_text(errors="replace") for path in sorted(self.spool.rglob("*.jsonl"))]
        lines = [line for text in texts for line in text.split("\n")[:-1]]
        return [json.loads(line)["event"] for line in lines]


def _newest_step(records: Sequence[dict[str, Any]]) -> int:
    return max((r["body"]["last"] for r in records if r["kind"] == "step"), default=-1)


def _is_written(records: Sequence[dict[str, Any]]) -> bool:
    """Whether every host has written the last thing that it writes."""
    ended = [r for r in records if "exit_codes" in r.get("body", {})]
    return len(ended) == len(HOSTS) and any(r["kind"] == "run.end" for r in records)
