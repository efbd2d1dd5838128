"""Whatever is half written, foreign or gone in a run directory reads as nothing and never raises."""

import json
import struct

import pytest

from lastgood.faults.live_run import HEADER_BYTES, LiveRun, Member, snapshot_of


def write_snapshot(path, *, step: int, data: bytes, header: dict | None = None):
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"step": step, "bytes": len(data), "data_offset": HEADER_BYTES} | (header or {})
    path.write_bytes((json.dumps(fields) + "\n").encode().ljust(HEADER_BYTES) + data)


def state(**changes) -> str:
    fields = {"generation": 2, "phase": "running", "spares_parked": 1, "slots_dir": "slots",
              "ranks": {"0": {"worker": "w0", "pid": 11}, "1": {"worker": "w4", "pid": 12}}}  # fmt: skip
    return json.dumps(fields | changes)


def test_the_state_of_a_run_is_read(tmp_path):
    (tmp_path / "state.json").write_text(state())
    read = LiveRun(tmp_path).state()
    assert (read.generation, read.phase, read.spares_parked, read.is_over) == (
        2,
        "running",
        1,
        False,
    )
    assert read.ranks == {0: Member(worker="w0", pid=11), 1: Member(worker="w4", pid=12)}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", state(ranks=3), state(ranks={"x": {"worker": "w", "pid": 1}}),
                                  state(generation=None), state(ranks={"0": {"pid": 4}}), state(ranks={"0": 7})])  # fmt: skip
def test_a_state_that_is_no_state_reads_as_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert LiveRun(tmp_path).state() is None


def test_a_rank_without_a_process_is_not_listed(tmp_path):
    (tmp_path / "state.json").write_text(state(ranks={"0": {"worker": "w0", "pid": None}}))
    assert LiveRun(tmp_path).state().ranks == {}


def test_progress_is_read_by_rank_and_unknown_beyond_the_file(tmp_path):
    (tmp_path / "progress.bin").write_bytes(struct.pack("<3q", 7, -1, 9) + b"\x00")
    run = LiveRun(tmp_path)
    assert [run.published_step(rank) for rank in range(4)] == [7, -1, 9, None]
    assert LiveRun(tmp_path / "none").published_step(0) is None


def test_snapshots_come_newest_first_and_incomplete_ones_not_at_all(tmp_path):
    (tmp_path / "state.json").write_text(state())
    slots = tmp_path / "slots" / "1"
    write_snapshot(slots / "state.0", step=6, data=b"x" * 50)
    write_snapshot(slots / "state.1", step=8, data=b"x" * 50)
    write_snapshot(slots / "state.2", step=7, data=b"x" * 50)
    run = LiveRun(tmp_path)
    assert [snapshot.step for snapshot in run.snapshots(1)] == [8, 7, 6]
    write_snapshot(slots / "state.1", step=-1, data=b"x" * 50)  # being written
    write_snapshot(slots / "state.2", step=9, data=b"x" * 50, header={"bytes": 51})  # cut
    assert [snapshot.step for snapshot in run.snapshots(1)] == [6]
    assert run.snapshots(0) == []


def test_slots_may_lie_elsewhere(tmp_path):
    elsewhere = tmp_path / "shm"
    write_snapshot(elsewhere / "0" / "state.2", step=3, data=b"x")
    (tmp_path / "state.json").write_text(state(slots_dir=str(elsewhere)))
    assert [snapshot.step for snapshot in LiveRun(tmp_path).snapshots(0)] == [3]


@pytest.mark.parametrize("raw", [b"", b"\n", b"{}\n", b'{"step":1}\n', b"\xff" * 5000])
def test_a_file_that_is_no_snapshot_is_none(tmp_path, raw):
    (tmp_path / "state.0").write_bytes(raw)
    assert snapshot_of(tmp_path / "state.0") is None


def test_parameters_are_read_and_a_worker_name_is_no_path(tmp_path):
    (tmp_path / "addresses").mkdir()
    listed = {"parameters": [{"name": "w", "address": 4096, "bytes": 16, "dtype": "torch.float32"}]}
    (tmp_path / "addresses" / "w0.json").write_text(json.dumps(listed))
    (tmp_path / "w9.json").write_text(json.dumps(listed))
    run = LiveRun(tmp_path)
    assert [(p.name, p.address, p.size_bytes) for p in run.parameters("w0")] == [("w", 4096, 16)]
    assert run.parameters("../w9") == []
    assert run.parameters("w1") == []
