"""How fast logs come in on this machine, in rows per CPU second with the durable ledger included: JSON, no claims.

    python bench/import/import_logs.py [--lines N] [--folder DIR] [-o FILE]

Three logs are made and imported, each into a ledger of its own: a kernel log in which one line of a thousand is about
the driver (what a month of a host looks like), one in which every line is (what a storm looks like), and finished jobs
as `sacct -P` prints them. Beside them stands the plain way to do the first one, a loop with one pattern over the lines,
without times, ids, counts or a ledger. CPU seconds are of this process alone; wall time depends on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import sys
import tempfile
from pathlib import Path

from lastgood.base.clock import SystemClock
from lastgood.base.rng import stream
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options

CLOCK = SystemClock()
CODES = (13, 31, 43, 45, 48, 63, 74, 79, 94, 119, 154)
PLAIN = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-f:.]+)\): (\d+)")


def kernel_log(path: Path, *, lines: int, every: int) -> Path:
    """A log of 64 hosts with four lines a second; each `every`-th line is an Xid."""
    random = stream(1, "bench", "kernel", str(every))
    with path.open("w", encoding="utf-8") as file:
        for n in range(lines):
            s = n // 4
            stamp = f"2026-{11 - s // 2_000_000:02d}-{1 + s // 86_400 % 28:02d}T{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}.{n % 4 * 250_000:06d}+00:00"
            said = (
                f"NVRM: Xid (PCI:0000:{random.choice(('41', '18', 'a1'))}:00): {random.choice(CODES)}, "
                f"pid={random.randrange(1_000, 99_999)}, name=python3, Ch {random.randrange(64):08x}, errorString CTX SWITCH TIMEOUT"
                if n % every == 0
                else f"mlx5_core 0000:5e:00.0: Port module event: module {n % 9}, Cable plugged in to the port"
            )
            file.write(f"{stamp} gpu-{n % 64:04d} kernel: {said}\n")
    return path


def job_table(path: Path, *, lines: int) -> Path:
    """Finished jobs with the columns that the documentation asks for."""
    random = stream(1, "bench", "sacct")
    columns = "JobIDRaw|JobName|State|ExitCode|Submit|Start|End|Restarts|NNodes|NodeList|AllocTRES"
    with path.open("w", encoding="utf-8") as file:
        file.write(columns + "\n")
        for n in range(lines):
            begin = 1_790_000_000 + 40 * n
            state = random.choice(("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED by 1001"))
            file.write(
                f"{n}|train-{n % 50}|{state}|0:0|{begin - 60}|{begin}|{begin + random.randrange(60, 90_000)}|0|16"
                f"|gpu-[{n % 50 * 16:04d}-{n % 50 * 16 + 15:04d}]|gres/gpu=128\n"
            )
    return path


def measure(path: Path, folder: Path, format_name: str) -> dict[str, object]:
    """Rows and events per CPU second of one import."""
    before, began_us = os.times(), CLOCK.monotonic_us()
    result = import_files(
        [path], ledger=folder / f"{path.stem}.db", format=format_name, options=Options(zone="UTC")
    )
    after, wall_s = os.times(), (CLOCK.monotonic_us() - began_us) / 1e6
    cpu_s = after.user + after.system - before.user - before.system
    total = result.total
    return {
        "log": path.stem,
        "bytes": path.stat().st_size,
        "rows": total.read,
        "accepted": total.accepted,
        "events": total.events_new,
        "cpu_s": round(cpu_s, 3),
        "wall_s": round(wall_s, 3),
        "rows_per_cpu_s": round(total.read / cpu_s),
        "events_per_cpu_s": round(total.events_new / cpu_s),
        "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def plain_loop(path: Path) -> dict[str, object]:
    """The same log with one pattern and nothing else."""
    before = os.times()
    rows = found = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            rows += 1
            found += PLAIN.search(line) is not None
    after = os.times()
    cpu_s = after.user + after.system - before.user - before.system
    return {
        "log": path.stem,
        "rows": rows,
        "accepted": found,
        "rows_per_cpu_s": round(rows / cpu_s),
    }


def main() -> int:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lines", type=int, default=1_000_000, help="lines of the quiet kernel log"
    )
    parser.add_argument("--folder", type=Path, help="where the logs and ledgers are made")
    parser.add_argument("-o", "--output", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        quiet = kernel_log(folder / "quiet.log", lines=arguments.lines, every=1_000)
        storm = kernel_log(folder / "storm.log", lines=arguments.lines // 10, every=1)
        jobs = job_table(folder / "jobs.psv", lines=arguments.lines // 20)
        measured = [
            measure(quiet, folder, "kernel"),
            measure(storm, folder, "kernel"),
            measure(jobs, folder, "slurm_jobs"),
        ]
        plain = plain_loop(quiet)
    ratio = measured[0]["rows_per_cpu_s"] / plain["rows_per_cpu_s"]  # type: ignore[operator]
    result = {
        "machine": {
            "cpu_count": os.cpu_count(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
        "imports": measured,
        "plain_loop": plain,
        "quiet_over_plain_loop": round(ratio, 2),
    }
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if arguments.output is not None:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
