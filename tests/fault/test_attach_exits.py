"""The codes with which an attached job ends, with real processes: errors that come back, peers that die, damaged snapshots."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.training_drill import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.nightly]
JOB = Path(__file__).with_name("attached_job.py")


def start(
    folder: Path, *arguments: str, rank: int = 0, world: int = 1, **extra: str
) -> subprocess.Popen[str]:
    env = {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "LASTGOOD_SPOOL": str(folder / "spool"),
        "LASTGOOD_RUN": f"{folder.name}-{os.getpid()}", **extra,
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, str(JOB), *arguments], env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def text_of(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / "spool").rglob("*.jsonl")))


@pytest.mark.timeout(600)
def test_the_same_error_for_the_third_time_asks_not_to_be_requeued(tmp_path):
    codes = []
    for attempt in ("1", "2", "3"):
        job = start(tmp_path, "--raise-at", "2", MASTER_PORT=free_port(), LASTGOOD_ATTEMPT=attempt)
        said, _ = job.communicate(timeout=150)
        codes.append(job.returncode)
        assert "ValueError: a batch that nobody expected" in said
    assert codes == [1, 1, 93]
    assert "the same error ended this run 3 times" in said
    wait_until(lambda: text_of(tmp_path).count('"kind":"run.end"') == 3, limit_s=100)
    assert '"exit_code":93' in text_of(tmp_path)


@pytest.mark.timeout(600)
def test_a_rank_whose_peer_died_asks_to_be_requeued_and_the_dead_one_is_named(tmp_path):
    port = free_port()
    jobs = [start(tmp_path, rank=rank, world=2, MASTER_PORT=port) for rank in range(2)]
    try:
        wait_until(lambda: '"kind":"step"' in text_of(tmp_path))
        jobs[1].send_signal(signal.SIGKILL)
        jobs[0].communicate(timeout=150)
        assert jobs[0].returncode == 75
        wait_until(lambda: '"kind":"run.end"' in text_of(tmp_path), limit_s=100)
        assert "rank 1 (r1) ended: without a word: killed, or crashed below Python" in text_of(
            tmp_path
        )
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


@pytest.mark.timeout(600)
def test_a_damaged_snapshot_is_passed_over_for_the_older_one(tmp_path):
    kept = tmp_path / "kept"
    options = ("--snapshot-every", "5", "--snapshot-dir", str(kept))
    first = start(tmp_path, *options, "--steps", "12", MASTER_PORT=free_port())
    first.communicate(timeout=150)
    assert first.returncode == 0
    (newest,) = kept.rglob("step-10.pt")
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    second = start(tmp_path, *options, "--steps", "12", MASTER_PORT=free_port())
    said, _ = second.communicate(timeout=150)
    assert second.returncode == 0
    assert "snapshot of step 10 is damaged" in said
    assert "rank 0 begins after step 5" in said


@pytest.mark.timeout(600)
def test_a_rank_that_waits_for_the_group_to_form_ends_of_sigterm_at_once(tmp_path):
    job = start(tmp_path, world=2, MASTER_PORT=free_port())  # its peer never comes
    try:
        live = f"lastgood-attach-{os.getuid()}-{tmp_path.name}-{os.getpid()}-*/ranks/0.json"
        wait_until(lambda: any(Path("/dev/shm").glob(live)), limit_s=100)
        job.send_signal(signal.SIGTERM)
        assert job.wait(100) == -signal.SIGTERM
    finally:
        job.kill()
        job.communicate()


@pytest.mark.timeout(600)
def test_a_rank_that_waits_for_a_stopped_peer_ends_of_sigterm_once_that_is_known(tmp_path):
    port = free_port()
    jobs = [start(tmp_path, rank=rank, world=2, MASTER_PORT=port) for rank in range(2)]
    try:
        wait_until(lambda: '"kind":"step"' in text_of(tmp_path))
        jobs[1].send_signal(signal.SIGSTOP)
        wait_until(lambda: '"kind":"incident.open"' in text_of(tmp_path), limit_s=100)
        jobs[0].send_signal(signal.SIGTERM)
        assert jobs[0].wait(100) == -signal.SIGTERM
    finally:
        for job in jobs:  # all of them first: the watcher holds their output until none is left
            job.kill()
        for job in jobs:
            job.communicate()
