"""How often ranks are left waiting when the sockets of their group are cut (docs/design/006); raw rows, a table.

    python bench/mechanisms/cut.py -o cut.jsonl [--trials 40] [--seed 1]
    python bench/mechanisms/cut.py --table -o bench/results/cut.jsonl

Four processes form a group over the loopback and launch three reductions; one of them launches fewer and leaves its
sockets open, or is killed. Around the launch the others cut their sockets, each on a thread of its own: at once
(`Group.cut`), or once the looks have found them quiet (`Group.revoke`). The ways take turns, with the same draws. Who
still waits after two seconds hangs. Takes about a second a trial, and two more for each hang.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import wait as wait_for_lines
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.base.rng import stream

WORLD, REDUCTIONS = 4, 3
LIMIT_S, READY_LIMIT_S, TRIES = 2.0, 60, 3
APART_S = 0.03
"""From the last rank's being ready to the launch: all of them have been told by then."""
SIZES_MB = (0.25, 1.0, 8.0)
"""The size of each reduction is one of them."""
BEFORE_S, SPAN_S, SPAN_S_PER_MB = 0.001, 0.003, 0.00125
"""The cut is drawn from a moment before the launch to so long behind that; the reductions move their bytes meanwhile."""
SEEN_S = 0.003
"""From a SIGKILL to the cut, as in a recovery."""
WAYS = {"cut": "cut at once", "looks": "cut once it is quiet"}
LEAVINGS = {"stays": "leaves its sockets open", "killed": "is killed"}


class Trial(NamedTuple):
    """What is drawn for a trial; the moments are seconds behind the launch."""

    leaving: str
    leaver: int
    launched: int
    """Reductions that the leaver takes part in, where it is not killed."""
    mb: float
    cut_s: float


def main() -> int:
    """Measure, unless only the table is wanted; then print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("cut.jsonl"))
    parser.add_argument("--trials", type=int, default=40, help="of each way and leaving")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of who leaves")
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    options = parser.parse_args()
    if not options.table:
        with options.output.open("w") as file:
            for row in measured(options.trials, options.seed):
                file.write(json.dumps(row) + "\n")
                file.flush()
    print(table([json.loads(line) for line in options.output.read_text().splitlines()]))
    return 0


def drawn(seed: int, number: int, leaving: str) -> Trial:
    """The same for both ways."""
    random = stream(seed, "bench", "cut", leaving, number)
    mb = random.choice(SIZES_MB)
    return Trial(
        leaving=leaving,
        leaver=random.randrange(WORLD),
        launched=random.randrange(REDUCTIONS),
        mb=mb,
        cut_s=(SPAN_S + SPAN_S_PER_MB * mb) * random.random() - BEFORE_S,
    )


def measured(trials: int, seed: int) -> Iterable[dict[str, Any]]:
    """One row a trial."""
    import torch

    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    facts = {
        "seed": seed,
        "cores": os.cpu_count(),
        "linux": platform.release(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
    for number in range(trials):
        for leaving in LEAVINGS:
            trial = drawn(seed, number, leaving)
            for way in WAYS:
                found = tried(trial, way)
                load = os.getloadavg()[0]
                yield {
                    "way": way,
                    "number": number,
                    **trial._asdict(),
                    **found,
                    "load": load,
                } | facts


def tried(trial: Trial, way: str) -> dict[str, Any]:
    """What became of the ranks that did not leave; a group that could not be formed is tried again."""
    for _ in range(TRIES):
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
            Ranks(trial, way, folder) as ranks,
        ):
            if ranks.are_ready():
                return ranks.broken()
    raise RuntimeError(f"no group of {WORLD} came up in {TRIES} tries")


class Ranks:
    """Four processes of one trial; they end with the block. They are forked, since torch takes seconds to import."""

    def __init__(self, trial: Trial, way: str, folder: str) -> None:
        """Start nothing yet."""
        self._trial = trial
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(WORLD)]
        self._lines = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(
                target=be_rank,
                args=(rank, trial, way, Path(folder) / "store", theirs),
                daemon=True,
            )
            for rank, (_, theirs) in enumerate(pipes)
        ]

    def __enter__(self) -> Ranks:
        """Start them."""
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them, however far they came."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def are_ready(self) -> bool:
        """Whether all of them stand in one group."""
        heard = heard_from(self._lines, READY_LIMIT_S)
        return len(heard) == WORLD and all(heard.values())

    def broken(self) -> dict[str, Any]:
        """Let them launch and cut, and see who is freed."""
        trial = self._trial
        began_ns = time.monotonic_ns() + int(APART_S * 1e9)
        for line in self._lines:
            line.send(began_ns)
        cut_ns = began_ns + int(trial.cut_s * 1e9)
        pid = self._processes[trial.leaver].pid
        if trial.leaving == "killed" and pid is not None:
            sleep_until(cut_ns - int(SEEN_S * 1e9))
            os.kill(pid, signal.SIGKILL)
        living = [line for rank, line in enumerate(self._lines) if rank != trial.leaver]
        heard = heard_from(living, (cut_ns - time.monotonic_ns()) / 1e9 + LIMIT_S)
        return outcome_of([heard.get(line) for line in living], cut_ns=cut_ns)


def heard_from(lines: Sequence[Any], limit_s: float) -> dict[Any, Any]:
    """The first word of each that says one in time."""
    heard: dict[Any, Any] = {}
    deadline = time.monotonic() + limit_s
    while len(heard) < len(lines) and (left_s := deadline - time.monotonic()) > 0:
        for line in wait_for_lines([line for line in lines if line not in heard], left_s):
            heard[line] = line.recv()
    return heard


def outcome_of(words: Sequence[tuple[bool, int] | None], *, cut_ns: int) -> dict[str, Any]:
    """How many hang, how many had an error, and when the last of the others was freed."""
    freed = [word for word in words if word is not None]
    return {
        "hung": len(words) - len(freed),
        "raised": sum(has_raised for has_raised, _ in freed),
        "freed_ms": round(max((at - cut_ns) / 1e6 for _, at in freed), 3) if freed else None,
    }


def be_rank(rank: int, trial: Trial, way: str, store: Path, line: Any) -> None:
    """In a process of its own: join, launch, and say when the wait is over."""
    import torch
    import torch.distributed as dist

    from lastgood.training.rank.group import Group

    signal.alarm(2 * READY_LIMIT_S)  # the kernel ends it then, should nobody else
    group = Group()
    try:
        group.join(generation=1, rank=rank, world=WORLD, store=store)
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        line.send(False)
        return
    gradients = [
        torch.ones(int(trial.mb * 250_000)) for _ in range(REDUCTIONS)
    ]  # of four bytes each
    line.send(True)
    began_ns = line.recv()
    stays = rank == trial.leaver and trial.leaving == "stays"
    if stays:
        gradients = gradients[: trial.launched]
    else:
        end = group.revoke if way == "looks" else group.cut
        at = began_ns + int(trial.cut_s * 1e9)
        threading.Thread(target=lambda: (sleep_until(at), end(1)), daemon=True).start()
    sleep_until(began_ns)
    has_raised = False
    try:
        for work in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
            work.wait()
    except RuntimeError:
        has_raised = True
    line.send((has_raised, time.monotonic_ns()))
    time.sleep(READY_LIMIT_S)  # with its sockets as they are, until it is killed


def sleep_until(at_ns: int) -> None:
    """On the clock that all processes share."""
    time.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Hangs, and how soon ranks are free, for each way of cutting and of leaving."""
    if not rows:
        return "Not measured yet."
    lines = ["| one of four ranks | sockets are | trials with a hang | ms until the last is free |"]
    lines.append("|---|---|---|---|")
    for leaving, left in LEAVINGS.items():
        for way, words in WAYS.items():
            found = [row for row in rows if (row["leaving"], row["way"]) == (leaving, way)]
            if found:
                hangs = f"{sum(row['hung'] > 0 for row in found)} of {len(found)}"
                freed = spread(row["freed_ms"] for row in found if not row["hung"])
                lines.append(f"| {left} | {words} | {hangs} | {freed} |")
    loads, first = [row["load"] for row in rows], rows[0]
    sizes = ", ".join(f"{mb:g}" for mb in SIZES_MB[:-1]) + f" or {SIZES_MB[-1]:g}"
    notes = (
        f"Behind the cut, medians (smallest to largest); {REDUCTIONS} reductions of {sizes} MB.\n"
        f"Load average {min(loads):.1f} to {max(loads):.1f} on {first['cores']} cores; "
        f"Linux {first['linux']}, Python {first['python']}, torch {first['torch']}."
    )
    return "\n".join([*lines, "", notes])


def spread(values: Iterable[float | None]) -> str:
    """`4.0 (3.1 to 9.8)`."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return "none was"
    return f"{statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})"


if __name__ == "__main__":
    sys.exit(main())
