"""How soon a SIGKILL is seen: by a lock, by the memory of the threads, by the descriptor (docs/design/006); raw rows.

    python bench/mechanisms/deaths.py -o deaths.jsonl [--kills 20] [--mb 300]
    python bench/mechanisms/deaths.py --table -o bench/results/deaths.jsonl

Processes with torch imported and so much memory touched are killed one after the other: first while the cores have
nothing else to do, then with a process on each of them that computes all the time. All is watched at once, in one
process, as the supervisor does; the memory every 0.2 ms once the lock is free, with the look of the supervisor itself. Takes about a minute.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lastgood.training.life_lock import LifeLock, code_of_ending, hold_life_lock
from lastgood.training.slot import StatusSlot

AT_ONCE = 5
"""Processes that are made together: each takes a few seconds of importing, and several hundred megabytes."""
APART_S, LOOK_S, LIMIT_S, START_LIMIT_S = 0.2, 0.0002, 10, 120
WAYS = {
    "lock": "the lock of its main thread comes free",
    "memory": "none of its threads has memory any more",
    "descriptor": "its process descriptor is readable",
}


def main() -> int:
    """Measure, unless only the table is wanted; then print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("deaths.jsonl"))
    parser.add_argument("--kills", type=int, default=20, help="with idle cores, and as many busy")
    parser.add_argument("--mb", type=int, default=300, help="megabytes that each touches")
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    parser.add_argument("--victim", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.victim:
        return be_victim(options.victim, options.mb)
    if not options.table:
        rows = [row for busy in (False, True) for row in measured(options.kills, options.mb, busy)]
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table([json.loads(line) for line in options.output.read_text().splitlines()]))
    return 0


def be_victim(page: Path, mb: int) -> int:
    """Hold the lock with all that memory, and wait to be killed."""
    import torch

    kept = torch.ones(mb * 250_000)  # of four bytes each
    if not hold_life_lock(page):
        return 3
    print("ready", flush=True)
    sys.stdin.read()
    return int(kept[0])


def measured(kills: int, mb: int, busy: bool) -> Iterable[dict[str, Any]]:
    """One row a kill; the cores are busy only while there is something to measure."""
    facts = {
        "cores": os.cpu_count(),
        "mb": mb,
        "linux": platform.release(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
    for first in range(0, kills, AT_ONCE):
        count = min(AT_ONCE, kills - first)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            pages = [Path(folder) / str(place) for place in range(count)]
            made = [Watched(page, mb) for page in pages]
            neighbours: list[subprocess.Popen[bytes]] = []
            try:
                for one in made:
                    one.wait_ready()
                if busy:
                    spin = [sys.executable, "-c", "while True: pass"]
                    neighbours += [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
                for one in made:
                    time.sleep(APART_S)
                    load = os.getloadavg()[0]
                    yield {"is_busy": busy, **one.killed(), "load": load, **facts}
            finally:
                for process in [*neighbours, *(one.process for one in made)]:
                    process.kill()
                    process.wait()


class Watched:
    """A process that will be killed, and what tells of it."""

    def __init__(self, page: Path, mb: int) -> None:
        """Make its page and its lock, then start it."""
        StatusSlot(page, create=True).close()
        self._lock = LifeLock(page)
        argv = [sys.executable, __file__, "--victim", str(page), "--mb", str(mb)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_ready(self) -> None:
        """Until it holds its lock with all its memory."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_LIMIT_S)
        if not ready or self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("a process that was to be killed did not come up with its lock")
        self._lock.watch()

    def killed(self) -> dict[str, float | None]:
        """Milliseconds from the signal until each of them tells of it; None for what did not come."""
        pid = self.process.pid
        descriptor = os.pidfd_open(pid)
        names = {descriptor: "descriptor", **dict.fromkeys(self._lock.notices, "lock")}
        poll, took_ms = select.poll(), dict[str, float | None].fromkeys(WAYS)
        for file in names:
            poll.register(file, select.POLLIN)
        began = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        while names and time.monotonic_ns() - began < LIMIT_S * 1_000_000_000:
            looks = took_ms["lock"] is not None and took_ms["memory"] is None
            ready = poll.poll(0 if looks else LIMIT_S * 1000)
            seen = [names.pop(file) for file, _ in ready]
            if looks and code_of_ending(pid) is not None:
                seen.append("memory")
            took_ms |= dict.fromkeys(seen, round((time.monotonic_ns() - began) / 1e6, 3))
            for file, _ in ready:
                poll.unregister(file)
            if looks:
                time.sleep(LOOK_S)
        os.close(descriptor)
        self._lock.close()
        return {f"{way}_ms": value for way, value in took_ms.items()}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What is seen when, with idle cores and with busy ones."""
    if not rows:
        return "Not measured yet."
    cores = rows[0]["cores"]
    kinds = {False: f"{cores} cores with nothing else to do", True: f"all {cores} cores busy"}
    lines = [f"| ms behind SIGKILL | {' | '.join(kinds.values())} |", "|---|---|---|"]
    for way, words in WAYS.items():
        cells = [
            spread(row[f"{way}_ms"] for row in rows if row["is_busy"] is busy) for busy in kinds
        ]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    loads, first = [row["load"] for row in rows], rows[0]
    counts = " and ".join(str(sum(row["is_busy"] is busy for row in rows)) for busy in kinds)
    notes = (
        f"Medians (smallest to largest), n = {counts}; torch imported and {first['mb']} MB touched.\n"
        f"Load average {min(loads):.1f} to {max(loads):.1f}; "
        f"Linux {first['linux']}, Python {first['python']}, torch {first['torch']}."
    )
    return "\n".join([*lines, "", notes])


def spread(values: Iterable[float | None]) -> str:
    """`28.5 (27.0 to 31.2)`, with those that did not come counted apart."""
    found = list(values)
    seen = sorted(value for value in found if value is not None)
    missed = (
        f", {len(found) - len(seen)} of {len(found)} not seen" if len(seen) < len(found) else ""
    )
    if not seen:
        return "not seen"
    return f"{statistics.median(seen):.1f} ({seen[0]:.1f} to {seen[-1]:.1f}){missed}"


if __name__ == "__main__":
    sys.exit(main())
