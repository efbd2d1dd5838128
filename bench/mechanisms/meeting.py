"""What forming a group of four costs with torch's file store and with ours (docs/design/001); raw JSON lines, a table.

    python bench/mechanisms/meeting.py -o meeting.jsonl [--groups 40] [--seed 1]
    python bench/mechanisms/meeting.py --table -o bench/results/meeting.jsonl

Four processes form one group after the other through a fresh file, the stores in turn, once all at one moment and once
within 10 ms of each other, and do one all-reduce. Time runs from the last rank's coming to the last rank's being
ready; CPU time is that of one rank, all threads. Takes about half a minute.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.base.rng import stream

WORLD = 4
APART_S = 0.01
LIMIT_S, RUN_LIMIT_S = 60, 300
STORES = ("FileStore", "ours")
ARRIVALS = {"at once": 0.0, "within 10 ms": APART_S}
LAZY = "ours, TORCH_GLOO_LAZY_INIT"
"""Ranks that connect when they first speak to each other: torch reads the setting once a process."""
STAGES = {"formed": "group formed", "reduced": "and the first all-reduce done"}


class Times(NamedTuple):
    """One group as one rank had it: monotonic nanoseconds, and those of CPU time since it came."""

    came: int
    formed: int
    reduced: int
    formed_cpu: int
    reduced_cpu: int


def main() -> None:
    """Measure, unless only the table is wanted; then print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("meeting.jsonl"))
    parser.add_argument("--groups", type=int, default=40, help="of each kind")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which ranks come")
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    options = parser.parse_args()
    if not options.table:
        rows = [
            *measured(STORES, options.groups, options.seed),
            *measured((LAZY,), options.groups, options.seed),
        ]
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table([json.loads(line) for line in options.output.read_text().splitlines()]))


def measured(stores: Sequence[str], groups: int, seed: int) -> list[dict[str, Any]]:
    """The groups of these stores, formed in turn: one row for each store and way of coming."""
    facts = {
        "load": os.getloadavg()[0],
        "wall": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(WORLD, timeout=LIMIT_S), context.Queue()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        ranks = [
            context.Process(
                target=form_groups,
                args=(rank, stores, groups, seed, folder, barrier, found),
                daemon=True,
            )
            for rank in range(WORLD)
        ]
        for rank in ranks:
            rank.start()
        parts = [found.get(timeout=RUN_LIMIT_S) for _ in ranks]
        for rank in ranks:
            rank.join(LIMIT_S)
    return [
        {"store": store, "arrival": arrival, **columns([part[store, arrival] for part in parts])}
        | facts
        for store in stores
        for arrival in ARRIVALS
    ]


def form_groups(
    rank: int,
    stores: Sequence[str],
    groups: int,
    seed: int,
    folder: str,
    barrier: Any,
    found: Any,
) -> None:
    """In a process of its own: one rank of all groups."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    os.environ.pop("TORCH_GLOO_LAZY_INIT", None)
    if LAZY in stores:
        os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    import torch
    import torch.distributed as dist

    from lastgood.training.rank.meeting import Meeting

    torch.set_num_threads(1)
    times: dict[tuple[str, str], list[Times]] = {}
    for group in range(-2, groups):
        for arrival, apart_s in ARRIVALS.items():
            for store in stores:
                path = Path(folder) / f"{group} {arrival} {store}"
                wait_s = apart_s * stream(seed, "bench", "meeting", group, rank).random()
                barrier.wait()
                time.sleep(wait_s)
                came, cpu = time.monotonic_ns(), time.process_time_ns()
                meeting = (
                    dist.FileStore(str(path), WORLD) if store == "FileStore" else Meeting(path)
                )
                meeting.set_timeout(timedelta(seconds=LIMIT_S))
                dist.init_process_group("gloo", store=meeting, rank=rank, world_size=WORLD)
                formed, formed_cpu = time.monotonic_ns(), time.process_time_ns()
                dist.all_reduce(torch.ones(10))
                reduced, reduced_cpu = time.monotonic_ns(), time.process_time_ns()
                barrier.wait()
                dist.destroy_process_group()
                if group >= 0:  # the first groups of a process load what all of them need
                    times.setdefault((store, arrival), []).append(
                        Times(came, formed, reduced, formed_cpu - cpu, reduced_cpu - cpu)
                    )
    found.put(times)


def columns(parts: Sequence[Sequence[Times]]) -> dict[str, list[float]]:
    """Milliseconds of every group, and CPU milliseconds of every rank in every group."""
    made: dict[str, list[float]] = {}
    for stage in STAGES:
        made[f"{stage}_ms"] = [
            (max(getattr(r, stage) for r in ranks) - max(r.came for r in ranks)) / 1e6
            for ranks in zip(*parts, strict=True)
        ]
        made[f"{stage}_cpu_ms"] = [getattr(r, f"{stage}_cpu") / 1e6 for part in parts for r in part]
    return {name: [round(value, 3) for value in values] for name, values in made.items()}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Both stores side by side, and the lazy connections behind them."""
    if not rows:
        return "Not measured yet."
    by = {(row["store"], row["arrival"]): row for row in rows}
    names = [*STORES, LAZY]
    lines = [f"| ranks come | | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for arrival in ARRIVALS:
        for stage, words in STAGES.items():
            cells = [cell(by[name, arrival], stage) for name in names]
            lines.append(f"| {arrival} | {words} | {' | '.join(cells)} |")
    loads, first = [row["load"] for row in rows], rows[0]
    notes = (
        "Milliseconds, medians (smallest to largest) over "
        f"{len(first['formed_ms'])} groups of {WORLD} ranks; CPU time is the median of one rank.\n"
        f"Load average {min(loads):.1f} to {max(loads):.1f} on {first['cores']} cores; "
        f"Python {first['python']}, torch {first['torch']}."
    )
    return "\n".join([*lines, "", notes])


def cell(row: dict[str, Any], stage: str) -> str:
    """`4.0 (3.1 to 9.8), CPU 1.4`."""
    return f"{spread(row[f'{stage}_ms'])}, CPU {statistics.median(row[f'{stage}_cpu_ms']):.1f}"


def spread(values: Iterable[float]) -> str:
    """`4.0 (3.1 to 9.8)`."""
    found = sorted(values)
    return f"{statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})"


if __name__ == "__main__":
    sys.exit(main())
