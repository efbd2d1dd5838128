"""The undisturbed twin: the same script in plain torch, without lastgood, for a bitwise comparison."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from lastgood.base.clock import SystemClock
from lastgood.base.errors import RecoveryError
from lastgood.base.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

POLL_US = 50_000


def run_plain(
    script: Path,
    arguments: Sequence[str],
    *,
    ranks: int,
    results: Sequence[Path],
    limit_us: int,
    on_turn: Callable[[], None] | None = None,
) -> None:
    """Run a script on all ranks with the environment that torchrun gives, until every result file is there.

    The end of the processes is not waited for: plain torch's own tear-down can hang on a loaded machine. What they
    write goes to `output.txt` beside the results, since those that are ended in it complain of each other.

    Raises:
        RecoveryError: when a rank fails or the time is up.
    """
    clock = SystemClock()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    output = results[0].parent / "output.txt"
    children = [
        _start(script, arguments, rank=rank, ranks=ranks, port=port, output=output)
        for rank in range(ranks)
    ]
    deadline_us = clock.monotonic_us() + limit_us
    try:
        while not all(path.exists() for path in results):
            codes = [child.poll() for child in children]
            if any(codes) or None not in codes or clock.monotonic_us() > deadline_us:
                raise RecoveryError(
                    "the plain twin did not finish",
                    where=str(script),
                    found=f"exit codes {codes}",
                    needs=f"a result of every rank within {format_duration(limit_us)}",
                    next=f"read what they wrote: {output}",
                )
            if on_turn is not None:
                on_turn()
            clock.sleep_us(POLL_US)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _start(
    script: Path, arguments: Sequence[str], *, rank: int, ranks: int, port: int, output: Path
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    # The bits depend on the number of threads, so both runs have the same.
    environment.setdefault("OMP_NUM_THREADS", "1")
    with output.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
