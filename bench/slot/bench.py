"""What the status page costs a rank: CPU nanoseconds of each call, and of all that one step makes.

    python bench/slot/bench.py [--repeats N] [-o FILE]

Every figure is CPU time of the thread over a batch of calls, divided by their number; percentiles are over batches.
A step of `lastgood run` with one gradient bucket makes the calls of `a step`, in that order.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lastgood.signals.reading import Phase, StepReport
from lastgood.training.slot import StatusSlot

COMPUTE, SNAPSHOT, BETWEEN = Phase.COMPUTE, Phase.SNAPSHOT, Phase.BETWEEN
CALLS = 200
GOAL_NS = 2000


def calls_of(slot: StatusSlot) -> dict[str, Callable[[], None]]:
    """Each call by name, as a rank makes it."""
    report = StepReport(
        rank=0, step=7, digest="0123456789abcdef" * 2, loss=1.5, grad_norm=0.25,
        local_nonfinite=False, self_us=400_000, step_us=500_000,
    )  # fmt: skip

    def a_step() -> None:
        slot.enter(COMPUTE, step=7)
        slot.count_launch(is_last=True)
        slot.count_completion()
        slot.enter(SNAPSHOT)
        slot.set_published(7)
        slot.publish(report, done_wall_us=1_000_000)
        slot.enter(BETWEEN)

    return {
        "enter": lambda: slot.enter(COMPUTE),
        "enter with its step": lambda: slot.enter(COMPUTE, step=7),
        "count_launch": lambda: slot.count_launch(is_last=True),
        "count_completion": slot.count_completion,
        "set_published": lambda: slot.set_published(7),
        "publish": lambda: slot.publish(report, done_wall_us=1_000_000),
        "a step": a_step,
    }


def nanoseconds(call: Callable[[], None], repeats: int) -> list[float]:
    """CPU nanoseconds of one call, batch by batch, in order of size."""
    found = []
    for _ in range(repeats):
        began = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        found.append((time.thread_time_ns() - began) / CALLS)
    return sorted(found)


def main() -> int:
    """Measure everything and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("-o", "--output", help="write the JSON here instead of stdout")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        slot = StatusSlot(Path(name) / "w0", create=True)
        rows = []
        for label, call in calls_of(slot).items():
            values = nanoseconds(call, arguments.repeats)
            at = {
                f"p{q}": round(values[min(len(values) - 1, len(values) * q // 100)])
                for q in (50, 95, 99)
            }
            rows.append({"call": label, "ns": at, "batches": len(values), "calls_a_batch": CALLS})
        slot.close()
    found = {
        "rows": rows,
        "goal_ns_a_step": GOAL_NS,
        "load": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    text = json.dumps(found, indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
