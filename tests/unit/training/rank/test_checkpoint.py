"""A durable checkpoint is restored whole or refused, whatever happened to its files."""

import contextlib
import json
import os
import subprocess

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.training.rank import checkpoint
from lastgood.training.rank.checkpoint import load_checkpoint, write_checkpoint
from lastgood.training.rank.snapshot import SnapshotMismatch, SnapshotWriter, load_snapshot
from lastgood.training.rank.state import Trainable, capture_streams
from lastgood.training.rundir import RunDir
from lastgood.training.states.checkpoints import list_checkpoints, read_mark


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.empty = torch.nn.Parameter(torch.zeros(0, 2))
        self.brief = torch.nn.Parameter(torch.randn(3).to(torch.bfloat16))


def write_rank(run, rank):
    torch.manual_seed(3)
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters())
    (model.norm(model.layer(torch.ones(2, 4))).sum() + model.brief.sum()).backward()
    optimizer.step()
    model.norm.running_mean += rank  # buffers are each rank's own
    torch.manual_seed(rank)
    SnapshotWriter(run, rank).write(
        Trainable(model, optimizer),
        step=6,
        generation=1,
        streams=capture_streams(),
        position={"feed": rank},
    )


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    run = RunDir.create(tmp_path_factory.mktemp("run") / "run", ranks=2)
    for rank in (0, 1):
        write_rank(run, rank)
    return run, [load_snapshot(run, rank, 6) for rank in (0, 1)]


@pytest.fixture(scope="module")
def written(states, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "step-000000006"
    write_checkpoint(path, states[1], published_us=5)
    return path


def test_each_rank_reads_back_what_it_had(states, written):
    for rank, state in enumerate(states[1]):
        found = load_checkpoint(str(written), rank=rank, step=6)
        assert found.digests == state.digests
        assert found.tensors.keys() == state.tensors.keys()
        assert all(torch.equal(t, found.tensors[n]) for n, t in state.tensors.items())
        assert [t.dtype for t in state.tensors.values()] == [
            t.dtype for t in found.tensors.values()
        ]
        assert found.position == {"feed": rank}
        assert torch.equal(state.streams.torch, found.streams.torch)


def test_it_is_listed_with_what_the_supervisor_needs(states, written):
    (found,) = list_checkpoints(written.parent, world=2)
    assert (found.step, found.digest, found.published_us) == (6, states[1][0].digests.replica, 5)
    assert not written.with_name("step-000000006.partial").exists()


def is_refused(path):
    try:
        for rank in (0, 1):
            load_checkpoint(str(path), rank=rank, step=6)
    except SnapshotMismatch:
        return True
    return False


@settings(max_examples=60)
@given(data=st.data())
def test_a_changed_byte_in_any_file_is_found(written, data):
    """Also in what torch puts around the tensors, and in the pickled metadata, which is never read when changed."""
    files = sorted(f for f in written.rglob("*") if f.is_file())
    assert len(files) >= 3
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(changed)
        assert is_refused(written), file.name
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("name", [".metadata", "lastgood.json", "__0_0.distcp"])
@pytest.mark.parametrize("way", ["missing", "empty", "cut"])
def test_a_torn_checkpoint_is_refused(written, name, way):
    file = written / name
    whole = file.read_bytes()
    try:
        if way == "missing":
            file.unlink()
        else:
            file.write_bytes(b"" if way == "empty" else whole[: len(whole) // 2])
        assert is_refused(written)
    finally:
        file.write_bytes(whole)
    assert not is_refused(written)


def test_another_step_rank_or_place_is_refused(written, tmp_path):
    for locator, rank, step in [(written, 0, 7), (written, 2, 6), (tmp_path / "nowhere", 0, 6)]:
        with pytest.raises(SnapshotMismatch):
            load_checkpoint(str(locator), rank=rank, step=step)


def test_ranks_that_do_not_hold_the_same_state_make_no_checkpoint(states, tmp_path):
    first, second = states[1]
    other = second._replace(digests=second.digests._replace(replica="00"))
    with pytest.raises(SnapshotMismatch, match="same state"):
        write_checkpoint(tmp_path / "step-000000006", [first, other])
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_does_not_read_back_gets_no_name(states, tmp_path, monkeypatch):
    def broken(*_args, **_kwargs):
        raise SnapshotMismatch(6, "the disk lies")

    monkeypatch.setattr(checkpoint, "load_checkpoint", broken)
    with pytest.raises(SnapshotMismatch):
        write_checkpoint(tmp_path / "step-000000006", states[1])
    assert list_checkpoints(tmp_path, world=2) == ()


def test_a_second_checkpoint_of_the_same_step_replaces_the_first(states, tmp_path):
    path = tmp_path / "step-000000006"
    for published_us in (1, 2):
        write_checkpoint(path, states[1], published_us=published_us)
    assert read_mark(path)["published_us"] == 2


def test_the_helper_answers_copied_and_written_and_survives_a_bad_request(
    states, tmp_path, monkeypatch, capsys
):
    run, _ = states
    good = {
        "run_dir": str(run.root),
        "world": 2,
        "step": 6,
        "path": str(tmp_path / "step-000000006"),
    }
    bad = good | {"step": 5}
    monkeypatch.setattr("sys.stdin", [json.dumps(bad), json.dumps(good)])
    checkpoint.main()
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [a["kind"] for a in answers] == ["ready", "failed", "copied", "written"]
    assert not is_refused(tmp_path / "step-000000006")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root may mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk):
    with contextlib.suppress(OSError), (disk / "other").open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def make_read_only(disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [(fill, "No space left on device"), (make_read_only, "Read-only file system")],
)
def test_a_disk_that_takes_nothing_is_a_failed_checkpoint_in_the_words_of_the_kernel(
    states, small_disk, monkeypatch, capsys, break_it, words
):
    """And the older checkpoint beside it stays."""
    run, _ = states
    older = small_disk / "step-000000005"
    older.mkdir()
    (older / "data").write_text("kept")
    request = {
        "run_dir": str(run.root), "world": 2, "step": 6, "path": str(small_disk / "step-000000006"),
    }  # fmt: skip
    break_it(small_disk)
    monkeypatch.setattr("sys.stdin", [json.dumps(request)])
    checkpoint.main()
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [a["kind"] for a in answers] == ["ready", "copied", "failed"]
    assert words in answers[-1]["reason"]
    assert (older / "data").read_text() == "kept"
    assert not (small_disk / "step-000000006").exists()
