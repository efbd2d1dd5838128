"""A snapshot is restored whole or not at all: any byte that changed is found, and a torn write leaves nothing."""

import os
import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.base.errors import RecoveryError
from lastgood.training.rank.snapshot import SnapshotMismatch, SnapshotWriter, load_snapshot
from lastgood.training.rank.state import Trainable, capture_streams, digest_state
from lastgood.training.rundir import RunDir
from lastgood.training.states.catalogue import (
    HEADER_BYTES,
    read_headers,
    read_snapshot_header,
    slot_candidates,
)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.empty = torch.nn.Parameter(torch.zeros(0))
        self.brief = torch.nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.last = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)


def make():
    torch.manual_seed(3)
    model = Small()
    return Trainable(model, torch.optim.AdamW(model.parameters()))


def train(trainable):
    out = trainable.model.norm(trainable.model.layer(torch.randn(4, 5)))
    image = trainable.model.last(torch.randn(1, 2, 4, 4))
    (out.square().sum() + image.sum() + trainable.model.brief.sum()).backward()
    trainable.optimizer.step()
    trainable.optimizer.zero_grad()


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", ranks=2)


def write(writer, trainable, step, generation=1):
    return writer.write(
        trainable,
        step=step,
        generation=generation,
        streams=capture_streams(),
        position={"feed": step},
    )


def test_what_is_read_back_is_what_was_live(run):
    trainable, writer = make(), SnapshotWriter(run, 0)
    for step in range(5):
        digests = write(writer, trainable, step)
        state = load_snapshot(run, 0, step)
        replicated, private = trainable.tensors()
        assert digests == state.digests == digest_state(replicated, private, capture_streams())
        assert all(torch.equal(t, state.tensors[n]) for n, t in (replicated | private).items())
        assert [t.dtype for t in (replicated | private).values()] == [
            t.dtype for t in state.tensors.values()
        ]
        assert state.position == {"feed": step}
        assert state.step == step
        train(trainable)


def test_three_states_are_kept_and_the_fourth_takes_the_oldest_place(run):
    trainable, writer = make(), SnapshotWriter(run, 0)
    for step in range(4):
        write(writer, trainable, step)
    for step in (1, 2, 3):
        load_snapshot(run, 0, step)
    with pytest.raises(SnapshotMismatch, match="holds another step"):
        load_snapshot(run, 0, 0)


def test_a_thousand_steps_hold_as_many_descriptors_as_one(run):
    trainable, writer = make(), SnapshotWriter(run, 0)
    for step in range(3):
        write(writer, trainable, step)
    before = len(os.listdir("/proc/self/fd"))
    for step in range(3, 40):
        write(writer, trainable, step)
    assert before == len(os.listdir("/proc/self/fd"))


# --- any changed byte is found ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One snapshot with optimizer state, and where its parts end."""
    run = RunDir.create(tmp_path_factory.mktemp("snapshot") / "run", ranks=1)
    trainable = make()
    train(trainable)
    write(SnapshotWriter(run, 0), trainable, 1)
    header = read_snapshot_header(run.snapshot(0, 1))
    return run, run.snapshot(0, 1).read_bytes(), header["blob_offset"] + header["blob_bytes"]


def refused(run, content):
    run.snapshot(0, 1).write_bytes(content)
    try:
        load_snapshot(run, 0, 1)
    except SnapshotMismatch:
        return True
    return False


@settings(max_examples=200)
@given(data=st.data())
def test_any_changed_byte_of_header_padding_data_gaps_or_blob_is_found(written, data):
    run, whole, end = written
    part = data.draw(st.sampled_from([(0, 600), (600, HEADER_BYTES), (HEADER_BYTES, end)]))
    at = data.draw(st.integers(part[0], part[1] - 1))
    mask = data.draw(st.integers(1, 255))
    changed = bytearray(whole)
    changed[at] ^= mask
    assert refused(run, bytes(changed)), f"byte {at} of {end} xor {mask}"


@given(data=st.data())
def test_a_cut_file_is_refused(written, data):
    run, whole, end = written
    length = data.draw(st.integers(0, end - 1))
    assert refused(run, whole[:length])


def test_the_unchanged_bytes_are_accepted(written):
    run, whole, _ = written
    assert not refused(run, whole)


def test_a_missing_file_is_a_mismatch_and_no_crash(run):
    with pytest.raises(SnapshotMismatch, match="state 7"):
        load_snapshot(run, 0, 7)


# --- publication ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies_at", ["digest_private", "_keep_and_hash", "pack"])
def test_a_writer_that_dies_in_the_middle_leaves_the_older_states_or_nothing(
    run, monkeypatch, dies_at
):
    """Death is an exception here; what matters is which bytes are in the file by then."""
    trainable, writer = make(), SnapshotWriter(run, 0)
    for step in range(3):
        write(writer, trainable, step)
    train(trainable)  # the layout changes, so views are made anew

    def death(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"lastgood.training.rank.snapshot.{dies_at}", death)
    with pytest.raises(KeyboardInterrupt):
        write(writer, trainable, 3)
    monkeypatch.undo()
    with pytest.raises(SnapshotMismatch):
        load_snapshot(run, 0, 3)
    if dies_at == "pack":  # nothing was touched yet
        load_snapshot(run, 0, 0)
    else:
        assert read_snapshot_header(run.snapshot(0, 3)) is None
    for step in (1, 2):
        load_snapshot(run, 0, step)


def test_a_changed_layout_leaves_no_byte_of_the_old_one_between_two_tensors(run):
    """Step 1 creates the optimizer's state, which moves the buffers; old bytes in a gap would look like damage."""
    trainable, writer = make(), SnapshotWriter(run, 0)
    for step in range(3):
        write(writer, trainable, step)
    train(trainable)
    for step in range(3, 6):
        write(writer, trainable, step)
        load_snapshot(run, 0, step)


def test_a_spare_writes_over_the_files_of_the_lost_rank(run):
    lost = make()
    train(lost)
    writer = SnapshotWriter(run, 0)
    for step in range(3):
        write(writer, lost, step)
    spare, spare_writer = make(), SnapshotWriter(run, 0)
    write(spare_writer, spare, 3, generation=2)
    load_snapshot(run, 0, 3)
    load_snapshot(run, 0, 2)


def test_full_shared_memory_is_an_error_with_the_place_and_the_size(run):
    """A limit on file size stands in for a full file system: both fail where the space is reserved."""
    trainable, writer = make(), SnapshotWriter(run, 0)
    write(writer, trainable, 0)
    before = run.snapshot(0, 0).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(RecoveryError, match=r"state\.1.*lastgood doctor"):
            write(writer, trainable, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert before == run.snapshot(0, 0).read_bytes()
    write(writer, trainable, 1)
    load_snapshot(run, 0, 1)


def test_a_file_that_somebody_cut_is_written_anew_by_the_next_worker(run):
    write(SnapshotWriter(run, 0), make(), 0)
    os.truncate(run.snapshot(0, 0), 100)
    write(SnapshotWriter(run, 0), make(), 3)
    load_snapshot(run, 0, 3)


def test_both_ranks_are_one_candidate_with_the_digest_that_was_published(run):
    for rank in (0, 1):
        write(SnapshotWriter(run, rank), make(), 4, generation=2)
    (candidate,) = slot_candidates(read_headers(run, world=2), world=2)
    assert (4, 2, load_snapshot(run, 1, 4).digests.replica) == (
        candidate.step,
        candidate.generation,
        candidate.digest,
    )
