"""Two jobs that nobody named, each over two hosts of torchrun, in one spool folder: two runs, each with both its hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.store import open_store
from tests.fault.training_drill import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(500)]
SCRIPT = """
import lastgood, torch.distributed as dist
attached = lastgood.attach()
dist.init_process_group("gloo")
dist.barrier()
print("run", attached.place.run, flush=True)
dist.destroy_process_group()
"""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def launch(folder: Path) -> set[str]:
    """One launch over two hosts; the names that its ranks go by."""
    port, hosts = free_port(), []
    for number in (0, 1):
        env = {
            **os.environ, "NODE_NAME": f"host{number}", "LASTGOOD_SPOOL": str(folder / "spool"),
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number),
            "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port, str(folder / "job.py"),
        ]  # fmt: skip
        hosts.append(
            subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        )
    said = [host.communicate(timeout=220)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0]
    return {line.split()[1] for text in said for line in text.splitlines() if line.startswith("run ")}  # fmt: skip


def test_two_launches_over_two_hosts_are_two_runs(tmp_path):
    (tmp_path / "job.py").write_text(SCRIPT)
    names = [launch(tmp_path) for _ in range(2)]
    assert [len(found) for found in names] == [1, 1]
    assert names[0] != names[1]
    text = lambda: "".join(path.read_text() for path in (tmp_path / "spool").rglob("*.jsonl"))
    wait_until(lambda: text().count('"exit_codes"') == 4, limit_s=60)
    import_files([tmp_path / "spool"], ledger=tmp_path / "l.db", format="spool")
    with open_store(tmp_path / "l.db", create=False) as store:
        events = list(store.events())
    hosts = {(e.run, e.body["host"]) for e in events if isinstance(e.body.get("pids"), dict)}
    assert hosts == {(run, f"host{number}") for found in names for run in found for number in (0, 1)}  # fmt: skip
    assert {e.attempt for e in events if e.kind == "attempt.start"} == {1}
