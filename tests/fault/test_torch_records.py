"""The formats of torchrun and of the flight recorder, written by the installed torch itself and read back.

Differential: torch is the oracle of what its own files look like. The samples in `tests/samples` are ours and may be wrong
in the same way as the reader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.store import open_store

pytest.importorskip("torch")
pytestmark = [pytest.mark.nightly, pytest.mark.fault, pytest.mark.timeout(400)]

LAST_US = 1_795_000_000_000_000


def torch_python(code: str, folder: Path, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, "TZ": "UTC", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    return result.stdout


def imported(folder: Path, paths: list[Path], **options):
    ledger = folder / "ledger.db"
    result = import_files(paths, ledger=ledger, options=Options(**options), clock=ManualClock(LAST_US))  # fmt: skip
    with open_store(ledger, create=False) as store:
        return result, [e for e in store.events() if "coverage" not in e.body]


def test_the_summary_that_torch_prints_is_read(tmp_path):
    printed = torch_python(
        """
        import json
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
        open("error.json", "w").write(json.dumps({"message": {"message": "ValueError: bad", "extraInfo": {
            "py_callstack": "Traceback (most recent call last):\\n  File x\\nValueError: bad\\n", "timestamp": "1793601290"}}}))
        failures = {
            3: ProcessFailure(local_rank=3, pid=103, exitcode=-15, error_file="none"),
            1: ProcessFailure(local_rank=1, pid=101, exitcode=1, error_file="error.json"),
        }
        print(ChildFailedError("train.py", failures))
        """,
        tmp_path,
    )
    log = tmp_path / "console.log"
    log.write_text(printed)
    result, events = imported(tmp_path, [log], zone="UTC")
    assert result.files[0].format == "elastic"
    told = {e.ranks: (e.role, e.body["exit_code"], e.body["pid"]) for e in events}
    assert told == {(1,): ("initiating", 1, 101), (3,): ("teardown", -15, 103)}
    root = next(e for e in events if e.ranks == (1,))
    assert root.t_occurred_us == 1_793_601_290_000_000
    assert root.body["message"] == "ValueError: bad"


def test_the_error_file_that_torch_writes_is_read(tmp_path):
    torch_python(
        """
        from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
        try:
            raise MemoryError("CUDA out of memory")
        except MemoryError as error:
            ErrorHandler().record_exception(error)
        """,
        tmp_path,
        TORCHELASTIC_ERROR_FILE=str(tmp_path / "error.json"),
    )
    result, (event,) = imported(tmp_path, [tmp_path / "error.json"])
    assert result.total.inferred_times == 0
    assert (event.symptom, event.class_) == ("out_of_memory", "fail_stop")


def test_the_events_that_torch_serialises_are_read(tmp_path):
    printed = torch_python(
        """
        from torch.distributed.elastic.events import Event, EventSource, NodeState, RdzvEvent
        print(Event("torchelastic.worker.status.FAILED", EventSource.WORKER, 1793601290123, {"global_rank": 2, "hostname": "a"}))
        print(RdzvEvent("join", "run", "TimeoutError: late", "b", 7, NodeState.FAILED))
        """,
        tmp_path,
    )
    log = tmp_path / "events.jsonl"
    log.write_text(printed)
    result, events = imported(tmp_path, [log])
    assert (result.total.accepted, result.total.rejected_count) == (2, 0)
    assert {e.domain[0].id for e in events} == {"a", "b"}


GLOO = """
import os, sys, torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
for _ in range(3):
    dist.all_reduce(torch.ones(4))
if rank == 0:
    dist.all_reduce(torch.ones(4), async_op=True)  # rank 1 never calls it
open(f"trace_{rank}", "wb").write(c10d._dump_fr_trace())
text = c10d._dump_fr_trace_json()
open(f"json_trace_{rank}.json", "wb").write(text if isinstance(text, bytes) else text.encode())
os._exit(0)
"""


def test_dumps_that_torch_writes_show_which_rank_did_not_call(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(GLOO)
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank)], cwd=tmp_path, env=environment)
        for rank in (0, 1)
    ]
    try:
        assert [rank.wait(timeout=150) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    for kind in ("trace", "json_trace"):
        folder = tmp_path / kind
        folder.mkdir()
        for path in tmp_path.glob(f"{kind}_*"):
            path.rename(folder / path.name)
        result, events = imported(folder, [folder / p.name for p in sorted(folder.iterdir())])
        assert [f.format for f in result.files] == ["nccl_flight"] * 2
        suspects = [(e.ranks, e.body["why"]) for e in events if e.role == "initiating"]
        assert suspects == [((1,), "behind")]
        state = json.dumps([e.body["groups"] for e in events if e.role == "context"])
        assert "gloo:all_reduce" in state
