"""How long the goodput of one log takes: ml-goodput-measurement's calculator, and import + partition here.

    python -m bench.goodput.speed [--steps N] [-o FILE]

One run of N steps of 10 s with a restart every thousand steps, the same entries for both, in this process, in CPU
seconds. The library keeps its entries in memory and computes from them; we write a durable ledger and read it back,
so the two parts are shown apart. Raw JSON, no claims; nothing here transfers to another machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.goodput.seven_cases import BEGAN, JOB, STEP_S, Case, Entry, Writer, by_library
from lastgood.base.clock import ManualClock
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.store import open_store
from lastgood.ledger.walltime import WallTime, partition

RESTART_EVERY = 1_000
BACK = 10
"""Steps that run again after each restart."""
OUTAGE_S = 600


def made(step_count: int) -> Case:
    """A run with a restart every thousand steps, ten of which run again."""
    one, at_s, first = Writer(), 0.0, 0
    entries: list[Entry] = []
    while first < step_count:
        last = min(first + RESTART_EVERY, step_count) - 1
        entries += [one.start(at_s), *one.steps(first, last, at_s)]
        at_s += STEP_S * (last - first + 1) + OUTAGE_S
        first = last + 1 if last + 1 >= step_count else last + 1 - BACK
    entries.append(one.end(at_s - OUTAGE_S))
    return Case(name="speed", title="", entries=tuple(entries), work_s=step_count * STEP_S, wall_s=at_s - OUTAGE_S)  # fmt: skip


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it returned, and its CPU seconds."""
    began = time.process_time()
    return call(), time.process_time() - began


def ours(case: Case, folder: Path) -> tuple[WallTime, float, float]:
    """The partition, and the CPU seconds of the import and of the partition."""
    path = folder / "log.jsonl"
    path.write_text("\n".join(case.lines()) + "\n", encoding="utf-8")
    clock = ManualClock(round(BEGAN.timestamp() * 1_000_000) + 10**15)
    ledger = folder / "ledger"
    _, import_s = timed(lambda: import_files([path], ledger=ledger, format="goodput", clock=clock))
    with open_store(ledger, create=False) as store:
        as_of_us = clock.wall_us()
        wall, partition_s = timed(
            lambda: partition(store.events(run=JOB), run=JOB, as_of_us=as_of_us)
        )
    return wall, import_s, partition_s


def main() -> int:
    """Prints or writes one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    case = made(given.steps)
    with tempfile.TemporaryDirectory() as folder:
        wall, import_s, partition_s = ours(case, Path(folder))
    entries = len(case.entries)
    found: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "entries": entries,
        "truth_percent": 100 * case.work_s / (case.wall_s or 1),
        "lastgood": {
            "percent": 100 * wall.productive_us / wall.window_us,
            "import_cpu_s": import_s,
            "partition_cpu_s": partition_s,
            "entries_per_cpu_s": entries / (import_s + partition_s),
        },
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ml_goodput_measurement.src.goodput  # noqa: F401
    except ImportError:
        found["ml-goodput-measurement"] = "not installed"
    else:
        said, library_s = timed(lambda: by_library(case))
        found["ml-goodput-measurement"] = {"said": said, "cpu_s": library_s, "entries_per_cpu_s": entries / library_s}  # fmt: skip
        found["cpu_ratio"] = library_s / (import_s + partition_s)
    found["rss_max_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    text = json.dumps(found, indent=1)
    if given.output:
        given.output.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
