"""How the ledger bears many imported events on this machine: raw JSON, no claims.

    python bench/ledger/scale.py [--events N] [--folder DIR] [-o FILE]

Imports made-up driver lines (850 bytes each as stored, ids in random order) in batches of 2,000, imports them again
(every one is known), verifies, reads them as columns, folds them, exports and reads the export. Events are made before
the clock starts, batch by batch. Nothing here transfers to another disk; CPU seconds are steadier than wall time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lastgood.base.clock import SystemClock
from lastgood.contract.taxonomy import TAXONOMY_ID
from lastgood.ledger.columns import fold_table, read_events
from lastgood.ledger.event import Domain, Event, Source
from lastgood.ledger.grouping import REPORT_RULE
from lastgood.ledger.parquet_export import export_parquet
from lastgood.ledger.place import storage_kind
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger

BATCH = 2_000
BEGIN_US = 1_700_000_000_000_000
GOALS = {"import": 25_000, "verify": 200_000}
"""Events per CPU second, with everything that belongs to it."""


def a_line(number: int) -> Event:
    """What the importer of kernel logs makes of one Xid line, in size and shape."""
    host = f"node{number * 7919 % 5000:05}"
    raw = hashlib.sha256(str(number).encode()).hexdigest()
    return Event(
        kind="observation",
        id=f"c-{raw[:40]}",
        t_occurred_us=BEGIN_US + number * 7_000_000,
        t_observed_us=BEGIN_US + number * 7_000_000,
        class_="fail_stop",
        taxonomy=TAXONOMY_ID,
        symptom="device_error",
        cause="gpu.memory",
        cause_status="supported",
        role="initiating",
        domain=(Domain(kind="host", id=host), Domain(kind="device", id=f"{host}/0000:3b:00")),
        source=Source(importer="xid", version="1", locator=f"kern.log#{number}", raw_sha256=raw),
        body={
            "mapping": "xid/1@sha256:" + "0" * 64,
            "code": "48",
            "label": "Xid 48",
            "text": "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python, DBE (double bit error)",
        },
    )


def spent() -> tuple[float, float]:
    """CPU and wall seconds so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime, time.perf_counter()


def timed(name: str, count: int, work: Callable[[], object]) -> dict:
    """One row: what the work took."""
    cpu, wall = spent()
    work()
    now_cpu, now_wall = spent()
    return row(name, count, now_cpu - cpu, now_wall - wall)


def row(name: str, count: int, cpu_s: float, wall_s: float) -> dict:
    """One measurement."""
    return {
        "path": name,
        "events": count,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "events_per_cpu_s": count / cpu_s,
        "events_per_wall_s": count / wall_s,
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def measure_import(name: str, path: Path, count: int) -> dict:
    """Imports the events; making them is not counted."""
    cpu = wall = 0.0
    with open_store(path) as store:
        for first in range(0, count, BATCH):
            batch = [a_line(number) for number in range(first, min(count, first + BATCH))]
            before_cpu, before_wall = spent()
            store.import_events(batch)
            now_cpu, now_wall = spent()
            cpu, wall = cpu + now_cpu - before_cpu, wall + now_wall - before_wall
    return row(name, count, cpu, wall)


def measure_fold(path: Path) -> dict:
    """Folds the table of the ledger; reading it is not counted."""
    table = read_events(path)
    return timed("fold", len(table), lambda: fold_table(table, REPORT_RULE))


def main() -> int:
    """Measure everything and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the ledger is made; default: a temporary folder")
    parser.add_argument("-o", "--output", help="write the JSON here instead of stdout")
    arguments = parser.parse_args()
    count = arguments.events
    load = [os.getloadavg()]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        path = Path(name) / "ledger.db"
        rows = [
            measure_import("import", path, count),
            measure_import("import again", path, min(count, 100_000)),
            timed("verify", count, lambda: verified(path)),
        ]
        size = path.stat().st_size
        rows.append(timed("read as columns", count, lambda: read_events(path)))
        rows.append(measure_fold(path))
        rows.append(timed("export", count, lambda: export_parquet(path, Path(name) / "out")))
        rows.append(timed("read the export", count, lambda: read_events(Path(name) / "out")))
        exported = sum(file.stat().st_size for file in (Path(name) / "out").iterdir())
        fs_type = storage_kind(Path(name)).fs_type
    load.append(os.getloadavg())
    found = {
        "rows": rows,
        "goals": GOALS,
        "bytes": size,
        "exported_bytes": exported,
        "load_before_and_after": load,
        "at_us": SystemClock().wall_us(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "fs_type": fs_type,
    }
    text = json.dumps(found, indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def verified(path: Path) -> None:
    """A check that must hold."""
    result = verify_ledger(path)
    assert result.ok, result.reason


if __name__ == "__main__":
    sys.exit(main())
