"""What a fleet report over many events costs: raw JSON, no claims.

    python bench/statistics/fleet_report.py [--events N] [--nodes N] [--months N] [--folder DIR] [-o FILE]

Writes a made-up export (see `made_fleet.py`: no ledger stands behind it), then measures in a fresh process, phase by
phase, CPU seconds and the largest resident memory so far: read with its manifest checked, fold under the rule of
reports, every study, the section. Then the whole command in another process, page and charts included. `--keep` leaves the export in --folder for a second run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = {"cpu_s": 20.0, "rss_bytes": 2_000_000_000}
"""For 10,000,000 events."""


def usage() -> dict[str, float]:
    """CPU seconds and the largest memory of this process so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": own.ru_utime + own.ru_stime, "rss_bytes": own.ru_maxrss * 1024}


def measure(folder: Path) -> dict:
    """The phases of one report."""
    phases: dict[str, dict] = {}
    before = usage()["cpu_s"]

    def done(name: str, **more: object) -> None:
        nonlocal before
        now = usage()
        phases[name] = {"cpu_s": now["cpu_s"] - before, "rss_bytes": now["rss_bytes"], **more}
        before = now["cpu_s"]

    from lastgood.evidence.rates_records import RatesQuestion, fleet_records
    from lastgood.evidence.rates_report import covered_files, fleet_section
    from lastgood.evidence.rates_study import study_fleet
    from lastgood.ledger.columns import read_events

    done("import modules")
    table = read_events(folder)
    done("read", events=len(table))
    records = fleet_records(table, RatesQuestion())
    done("fold and exposure", incidents=len(records.incidents), rule=records.rule)
    del table
    studies = study_fleet(records)
    done("studies")
    files = covered_files(records.coverage, folder.name)
    section = fleet_section(studies, files)
    done("section", parts=len(section.parts))
    total = usage()
    return {"phases": phases, **total}


def measure_command(folder: Path) -> dict:
    """The whole command, page with its charts included, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "lastgood.cli.main", "report", "--ledger", str(folder)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*command, "--html", f"{name}/page.html"], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "command": "lastgood report --html",
        "cpu_s": cpu_s,
        "rss_bytes": after.ru_maxrss * 1024,
    }


def main() -> int:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--months", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where the export is made; default: a temporary folder")
    parser.add_argument("--keep", action="store_true", help="use and leave the export in --folder")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", help="write the JSON here instead of stdout")
    arguments = parser.parse_args()
    if arguments.measure:
        sys.stdout.write(json.dumps(measure(Path(arguments.measure))))
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        kept = arguments.keep and arguments.folder
        folder = Path(arguments.folder if kept else name) / f"made-{arguments.events}"
        if not folder.exists():
            from made_fleet import make_export

            make_export(
                folder,
                events=arguments.events,
                nodes=arguments.nodes,
                months=arguments.months,
                seed=arguments.seed,
            )
        size = sum(path.stat().st_size for path in folder.iterdir())
        began = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, __file__, "--measure", str(folder)], check=True, stdout=subprocess.PIPE
        )
        found = json.loads(answer.stdout) | {
            "command": measure_command(folder),
            "wall_s": time.perf_counter() - began,
            "events": arguments.events,
            "nodes": arguments.nodes,
            "months": arguments.months,
            "bytes": size,
            "goal": GOAL,
            "load": os.getloadavg(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "data": "made up, written as Parquet by the bench itself: no ledger behind it",
        }
    text = json.dumps(found, indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
