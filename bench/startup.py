"""What starting costs: CPU time of `lastgood --help`, and the check of the ledger in front of `lastgood run`.

Run with the environment's Python: `.venv/bin/python bench/startup.py`. Prints the smallest and the median
of a number of fresh processes (user + system time, so that a busy neighbour counts for little), and exits
1 when the smallest is above the target.

The check goes on in a child beside the imports of a run, so its cost is wall time: from the start of the process to
where the ledger would be opened, without a ledger and with one, in turns.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET_MS = 150.0
ROUNDS = 12
EVENT_COUNT = 10_000
CODE = "from lastgood.cli.main import main; raise SystemExit(main(['--help']))"
RUN_CODE = """
import time
began_s = time.perf_counter()
import os, sys
from lastgood.cli import main, run
def at_the_ledger(check, view):
    check()
    print(time.perf_counter() - began_s, flush=True)
    os._exit(0)
run._require_held = at_the_ledger
main.main(["run", "--ledger", sys.argv[1], sys.argv[2]])
"""
SCRIPT = "import lastgood\nlastgood.start()\n"


def cpu_ms() -> float:
    """Return the CPU time of one process in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CODE], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def run_ms(ledger: Path, script: Path) -> float:
    """Return the wall time from the first line of a `lastgood run` to where it would open its ledger."""
    said = subprocess.run(
        [sys.executable, "-c", RUN_CODE, ledger, script], stdout=subprocess.PIPE, check=True
    )
    return 1000 * float(said.stdout)


def make_ledger(path: Path) -> None:
    """Write steps, as a run does."""
    from lastgood.base.clock import SystemClock
    from lastgood.ledger.event import new_event
    from lastgood.ledger.store import open_store

    clock = SystemClock()
    with open_store(path) as store:
        for first in range(0, EVENT_COUNT, 250):
            store.append([
                new_event(
                    "step", clock=clock, run="r", attempt=1,
                    body={"first": n, "last": n, "began_us": clock.wall_us(), "ended_us": [clock.wall_us()] * 20},
                )
                for n in range(first, first + 250)
            ])  # fmt: skip
        store.seal()


def measure_check() -> None:
    """Print what the check of a ledger adds to the start of a run."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, script = Path(folder, "ledger.db"), Path(folder, "train.py")
        make_ledger(ledger)
        script.write_text(SCRIPT)
        pairs = [
            (run_ms(Path(folder, "none.db"), script), run_ms(ledger, script)) for _ in range(ROUNDS)
        ]
    without, with_ledger = (statistics.median(side) for side in zip(*pairs, strict=True))
    more = statistics.median(b - a for a, b in pairs)
    print(
        f"lastgood run up to its ledger: {without:.0f} ms without one, {with_ledger:.0f} ms with one of "
        f"{EVENT_COUNT:,} events, {more:+.0f} ms median of pairs, n = {ROUNDS}, measured"
    )


def main() -> int:
    """Measure and compare."""
    rounds = [cpu_ms() for _ in range(ROUNDS)]
    print(
        f"lastgood --help: {min(rounds):.0f} ms CPU at best, {statistics.median(rounds):.0f} ms median, "
        f"n = {ROUNDS}, measured; target {TARGET_MS:.0f} ms"
    )
    measure_check()
    return 0 if min(rounds) <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
