"""CPU time of `lastgood --help`, against the 150 ms that the project allows itself.

Run with the environment's Python: `.venv/bin/python bench/startup.py`. Prints the smallest and the median
of a number of fresh processes (user + system time, so that a busy neighbour counts for little), and exits
1 when the smallest is above the target.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

TARGET_MS = 150.0
ROUNDS = 12
CODE = "from lastgood.cli.main import main; raise SystemExit(main(['--help']))"


def cpu_ms() -> float:
    """Return the CPU time of one process in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CODE], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> int:
    """Measure and compare."""
    rounds = [cpu_ms() for _ in range(ROUNDS)]
    print(
        f"lastgood --help: {min(rounds):.0f} ms CPU at best, {statistics.median(rounds):.0f} ms median, "
        f"n = {ROUNDS}, measured; target {TARGET_MS:.0f} ms"
    )
    return 0 if min(rounds) <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
