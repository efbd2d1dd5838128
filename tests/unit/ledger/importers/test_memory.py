"""An import holds a block and a batch, whatever the size of the file: measured on 100 MB and more."""

import gzip
import json
import subprocess
import sys

import pytest

RSS_MB_MAX = 256
"""Half of it is the page cache that the ledger is given while it takes many events (128 MiB)."""
MEASURE = """
import json, re, sys
from pathlib import Path
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
total = import_files([sys.argv[1]], ledger=Path(sys.argv[2]), format=sys.argv[3], options=Options(zone="UTC")).total
# Not ru_maxrss: a process that was forked starts with the peak of its parent, here a test runner of any size.
rss_mb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"read": total.read, "new": total.events_new, "cut": total.cut_lines, "rss_mb": rss_mb}))
"""


def measured(path, format_name: str) -> dict:
    """In a process of its own: the peak of this one belongs to other tests."""
    command = [sys.executable, "-c", MEASURE, str(path), str(path.with_suffix(".db")), format_name]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def kernel_lines(count: int, *, every: int):
    for n in range(count):
        s = n // 100
        said = (
            f"NVRM: Xid (PCI:0000:41:00): 94, pid={n}, name=x"
            if n % every == 0
            else "usb 1-1: new high-speed device found, idVendor=1d6b, idProduct=0002"
        )
        yield f"2026-11-{1 + s // 86_400:02d}T{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}.{n % 100:02d}Z gpu-{n % 997:04d} kernel: {said}\n"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_kernel_log_of_a_hundred_megabytes(tmp_path):
    path = tmp_path / "kern.log"
    with path.open("w") as file:
        file.writelines(kernel_lines(1_000_000, every=20))
    assert path.stat().st_size > 100_000_000
    done = measured(path, "kernel")
    assert (done["read"], done["new"]) == (1_000_000, 50_001)
    assert done["rss_mb"] < RSS_MB_MAX


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_one_array_of_jobs_of_a_hundred_megabytes(tmp_path):
    """The file is one JSON array; the padding is what real dumps are full of."""
    path = tmp_path / "sacct.json"
    job = {
        "state": {"current": ["FAILED"], "reason": "None"}, "nodes": "gpu-[0001-0002]", "exit_code": {"return_code": 1},
        "time": {"submission": 1_790_000_000, "eligible": 1_790_000_000, "start": 1_790_000_100, "end": 1_790_000_200},
        "environment": "x" * 10_000,
    }  # fmt: skip
    with path.open("w") as file:
        file.write('{"meta": {}, "jobs": [\n')
        for n in range(10_500):
            file.write(("," if n else "") + json.dumps(job | {"job_id": n}) + "\n")
        file.write("]}\n")
    assert path.stat().st_size > 100_000_000
    done = measured(path, "slurm_jobs")
    assert done["read"] >= 10_500
    assert done["rss_mb"] < RSS_MB_MAX


def test_a_packed_line_of_a_gigabyte_without_an_end_is_cut(tmp_path):
    """A few kilobytes that unpack to 256 MB in one line here; the nightly test takes a gigabyte."""
    path = tmp_path / "kern.log.gz"
    bomb(path, megabytes=256)
    done = measured(path, "kernel")
    assert (done["cut"], done["read"], done["new"]) == (1, 2, 2)
    assert done["rss_mb"] < RSS_MB_MAX


@pytest.mark.nightly
def test_a_whole_gigabyte_is_cut_too(tmp_path):
    path = tmp_path / "kern.log.gz"
    bomb(path, megabytes=1_024)
    assert measured(path, "kernel")["rss_mb"] < RSS_MB_MAX


def bomb(path, *, megabytes: int) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(megabytes):
            file.write(b"\0" * 1_048_576)
        file.write(b"\n" + next(kernel_lines(1, every=1)).encode())
