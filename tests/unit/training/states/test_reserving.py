"""Room for the snapshots is taken before anybody trains, or the run is refused with both numbers."""

import os
import subprocess

import pytest

from lastgood.base.errors import Refused
from lastgood.training.rundir import RunDir
from lastgood.training.states import reserving
from lastgood.training.states.catalogue import read_headers, read_snapshot_header, slot_candidates
from lastgood.training.states.reserving import reserve_snapshots, snapshot_bytes


@pytest.fixture
def run(tmp_path):
    made = RunDir.create(tmp_path / "run", ranks=2)
    yield made
    made.remove()


def test_every_file_has_its_full_size_and_holds_no_state(run):
    reserve_snapshots(run, ranks=2, state_bytes=1_000_000, stripes=1)
    each = snapshot_bytes(1_000_000, stripes=1)
    for rank in range(2):
        for path in run.snapshots(rank):
            assert path.stat().st_blocks * 512 >= each
            assert read_snapshot_header(path) is None
    assert len(run.snapshots(0)) == 3
    assert slot_candidates(read_headers(run, world=2), world=2) == ()


def test_stripes_need_their_share(run):
    reserve_snapshots(run, ranks=2, state_bytes=1_000_000, stripes=2)
    assert run.snapshots(0)[0].stat().st_size < 600_000


def test_snapshots_that_are_there_keep_every_byte(run):
    path = run.snapshot(0, 0)
    path.write_bytes(b"x" * 10_000)
    reserve_snapshots(run, ranks=2, state_bytes=1_000, stripes=1)
    assert path.read_bytes()[:10_000] == b"x" * 10_000


def test_too_little_room_is_refused_with_what_is_needed_found_and_to_be_typed(run, monkeypatch):
    class Little:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda _: Little)
    with pytest.raises(Refused) as caught:
        reserve_snapshots(run, ranks=2, state_bytes=1_000_000, stripes=1)
    text = str(caught.value)
    whole = snapshot_bytes(1_000_000, stripes=1) * 2 * 3
    assert f"({whole} bytes)" in text
    assert "(40960 bytes)" in text
    assert "mount -o remount,size=" in text
    assert "--shm-size" in text
    assert run.snapshots(0) == []


def test_room_that_goes_away_while_it_is_taken_is_refused_too(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(Refused, match="No space left on device"):
        reserve_snapshots(run, ranks=2, state_bytes=1_000_000, stripes=1)


def test_a_real_file_system_that_is_too_small_refuses(tmp_path):
    folder = tmp_path / "shm"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        run = RunDir.create(folder / "run", ranks=4)
        with pytest.raises(Refused, match=r"no room for the snapshots: found .* free"):
            reserve_snapshots(run, ranks=4, state_bytes=100_000, stripes=1)
        reserve_snapshots(run, ranks=1, state_bytes=100_000, stripes=1)
        run.remove()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_room_for_other_things_is_named():
    assert snapshot_bytes(0, stripes=1) == 4096 + reserving.OTHER_BYTES
