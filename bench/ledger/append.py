"""How fast the ledger appends and verifies on this machine: raw JSON, no claims.

    python bench/ledger/append.py [--events N] [--verified N] [--folder DIR] [-o FILE]

Appends one by one (each waits for the disk), in groups of 32 and 256, and through the writer's thread from four
submitters; then verifies a ledger that is large enough for the opening of it not to count. Wall figures are those of
this disk under its present load; events per CPU second are steadier. Nothing here transfers to another disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lastgood.base.clock import SystemClock
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.place import storage_kind
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.ledger.writer import LedgerWriter

CLOCK = SystemClock()
Append = Callable[[Path, list[Event], list[int]], None]


def some_events(count: int) -> list[Event]:
    """Events of the size of a step chunk of a small run."""
    return [
        new_event(
            "step",
            clock=CLOCK,
            run="bench",
            attempt=1,
            versions={"torch": "2.13.0"},
            body={"first": number, "last": number, "began_us": number, "ended_us": [number + 1]},
        )
        for number in range(count)
    ]


def one_by_one(path: Path, events: list[Event], waits_us: list[int]) -> None:
    """Each event waits for the disk alone."""
    with open_store(path) as store:
        for event in events:
            began = CLOCK.monotonic_us()
            store.append([event])
            waits_us.append(CLOCK.monotonic_us() - began)


def in_groups(size: int) -> Append:
    """So many submissions share a commit."""

    def append(path: Path, events: list[Event], waits_us: list[int]) -> None:
        with open_store(path) as store:
            for at in range(0, len(events), size):
                began = CLOCK.monotonic_us()
                store.append_groups([[event] for event in events[at : at + size]])
                waits_us.append(CLOCK.monotonic_us() - began)

    return append


def through_the_writer(path: Path, events: list[Event], waits_us: list[int]) -> None:
    """Four threads submit single events; a wait is from submission to durable."""

    def submit(part: list[Event]) -> None:
        for event in part:
            began = CLOCK.monotonic_us()
            writer.submit(event).add_done_callback(
                lambda _, began=began: waits_us.append(CLOCK.monotonic_us() - began)
            )

    with LedgerWriter(path) as writer:
        threads = [threading.Thread(target=submit, args=(events[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush(120)


def measure(name: str, path: Path, count: int, append: Append) -> dict:
    """One row: wall and CPU time of appending so many events this way."""
    events, waits_us = some_events(count), []
    cpu, wall = cpu_s(), time.perf_counter()
    append(path, events, waits_us)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    waits_us.sort()
    return {
        "path": name,
        "events": count,
        "wall_s": wall,
        "cpu_s": cpu,
        "events_per_wall_s": count / wall,
        "events_per_cpu_s": count / cpu,
        "commit_us_p50": waits_us[len(waits_us) // 2],
        "commit_us_p99": waits_us[len(waits_us) * 99 // 100],
    }


def measure_verify(path: Path) -> dict:
    """One row: wall and CPU time of verifying a ledger."""
    cpu, wall = cpu_s(), time.perf_counter()
    result = verify_ledger(path)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    assert result.ok, result.reason
    return {
        "path": "verify",
        "events": result.size,
        "bytes": path.stat().st_size,
        "wall_s": wall,
        "cpu_s": cpu,
        "events_per_wall_s": result.size / wall,
        "events_per_cpu_s": result.size / cpu,
    }


def cpu_s() -> float:
    """CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Measure everything and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--verified", type=int, default=200_000)
    parser.add_argument("--folder", help="where the ledgers are made; default: a temporary folder")
    parser.add_argument("-o", "--output", help="write the JSON here instead of stdout")
    arguments = parser.parse_args()
    count = arguments.events
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        rows = [
            measure("one by one", folder / "one.db", max(1, count // 40), one_by_one),
            measure("groups of 32", folder / "g32.db", max(32, count // 4), in_groups(32)),
            measure("groups of 256", folder / "g256.db", count, in_groups(256)),
            measure("writer thread, 4 submitters", folder / "w.db", count, through_the_writer),
        ]
        verified = folder / "verified.db"
        measure("groups of 1,024", verified, arguments.verified, in_groups(1024))
        rows.append(measure_verify(verified))
        storage = storage_kind(folder)
    import apsw

    found = {
        "rows": rows,
        "at_us": CLOCK.wall_us(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "fs_type": storage.fs_type,
    }
    text = json.dumps(found, indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
