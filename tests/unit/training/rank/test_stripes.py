"""Replicas that share the work of keeping a state: each keeps a stripe and hashes everything; together they are whole."""

import os

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.training.rank.leaves import ALIGN_BYTES, LEAF_COUNT_MAX, PIECE_BYTES_MAX, cut
from lastgood.training.rank.snapshot import (
    SnapshotMismatch,
    SnapshotWriter,
    load_snapshot,
    load_world,
)
from lastgood.training.rank.state import Trainable, capture_streams, digest_state, digest_tensors
from lastgood.training.rundir import RunDir
from lastgood.training.states.catalogue import (
    HEADER_BYTES,
    read_headers,
    read_snapshot_header,
    seal_header,
    slot_candidates,
)

WORLD = 3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.empty = torch.nn.Parameter(torch.zeros(0))
        self.layer = torch.nn.Linear(70, 31)
        self.norm = torch.nn.BatchNorm1d(31)
        self.image = torch.nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
        self.brief = torch.nn.Parameter(torch.randn(777).to(torch.bfloat16))
        self.last = torch.nn.Parameter(torch.randn(5))


def replica(rank):
    """The same model on every rank, with buffers and random streams that differ."""
    torch.manual_seed(5)
    model = Model()
    trainable = Trainable(model, torch.optim.AdamW(model.parameters()))
    out = model.norm(model.layer(torch.randn(4, 70))).square().sum()
    out = out + model.image(torch.randn(1, 8, 4, 4)).square().sum() + model.last.sum()
    (out + model.brief.float().square().sum()).backward()
    trainable.optimizer.step()
    model.norm.running_mean += rank
    return trainable


def write_all(run, replicas, step, *, generation=1, striped=True):
    found = []
    for rank, trainable in enumerate(replicas):
        torch.manual_seed(100 + rank)
        writer = SnapshotWriter(run, rank, stripe_count=len(replicas) if striped else 1)
        position = {"feed": 10 * step + rank}
        streams = capture_streams()
        found.append(
            writer.write(
                trainable, step=step, generation=generation, streams=streams, position=position
            )
        )
    return found


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", ranks=WORLD)


@pytest.fixture(scope="module")
def replicas():
    return [replica(rank) for rank in range(WORLD)]


# --- how the state is cut -----------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 3_000_000), max_size=12),
    count=st.integers(1, 7),
)
def test_every_byte_is_in_one_piece_of_one_leaf_of_one_stripe(sizes, count):
    leaves = cut(tuple(sizes))
    row = 0
    starts = []
    for size in sizes:
        starts.append(row)
        row += -(-size // ALIGN_BYTES) * ALIGN_BYTES
    assert leaves.total_bytes == row
    assert len(leaves.pieces) <= LEAF_COUNT_MAX
    at = dict.fromkeys(range(len(sizes)), 0)
    for number, leaf in enumerate(leaves.pieces):
        for piece in leaf:
            assert at[piece.tensor] == piece.start < piece.end <= sizes[piece.tensor]
            assert piece.end - piece.start <= PIECE_BYTES_MAX
            assert piece.place == starts[piece.tensor] + piece.start
            first, last = piece.place, starts[piece.tensor] + piece.end - 1
            assert first // leaves.leaf_bytes == last // leaves.leaf_bytes == number
            at[piece.tensor] = piece.end
    assert at == dict(enumerate(sizes))
    stripes = [leaves.stripe(index, count) for index in range(count)]
    assert [s.start for s in stripes] == [0, *(s.end for s in stripes[:-1])]
    assert stripes[-1].end == row
    lengths = [s.end_leaf - s.first_leaf for s in stripes]
    assert sum(lengths) == len(leaves.pieces)
    assert max(lengths) - min(lengths) <= 1


def test_the_digest_is_the_hash_of_the_hashes_of_the_leaves():
    """2400 float32 are 9600 bytes: ten leaves of 1024 bytes, the last one short."""
    tensor = torch.arange(2400, dtype=torch.float32)
    raw = tensor.numpy().tobytes()
    leaves = b"".join(
        xxhash.xxh3_128_digest(raw[at : at + 1024]) for at in range(0, len(raw), 1024)
    )
    assert xxhash.xxh3_128_hexdigest(leaves) == digest_tensors({"a": tensor})


# --- written and read -----------------------------------------------------------------------------------


def test_every_rank_reads_the_whole_state_back_from_the_stripes_of_all(run, replicas):
    digests = write_all(run, replicas, 4)
    for rank, trainable in enumerate(replicas):
        state = load_snapshot(run, rank, 4)
        replicated, private = trainable.tensors()
        live = replicated | private
        assert list(live) == list(state.tensors)
        assert all(torch.equal(tensor, state.tensors[name]) for name, tensor in live.items())
        assert all(
            (t.dtype, t.shape) == (state.tensors[n].dtype, state.tensors[n].shape)
            for n, t in live.items()
        )
        torch.manual_seed(100 + rank)
        assert (
            state.digests == digests[rank] == digest_state(replicated, private, capture_streams())
        )
        assert state.position == {"feed": 40 + rank}
        assert torch.equal(state.streams.torch, torch.get_rng_state())


def test_stripes_and_whole_copies_have_one_digest_and_one_restored_state(run, replicas):
    striped = write_all(run, replicas, 1)
    whole = write_all(run, replicas, 2, striped=False)
    assert striped == whole
    one, other = load_snapshot(run, 1, 1).tensors, load_snapshot(run, 1, 2).tensors
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_rank_keeps_its_share_of_the_replicated_bytes_and_all_of_its_own(run, replicas):
    write_all(run, replicas, 1)
    write_all(run, replicas, 2, striped=False)
    for rank in range(WORLD):
        headers = [read_snapshot_header(run.snapshot(rank, step)) for step in (1, 2)]
        data = [h["bytes"] - h["blob_bytes"] for h in headers]
        own = sum(b.numel() * b.element_size() for b in replicas[rank].model.buffers())
        assert abs((data[0] - own) * WORLD - (data[1] - own)) < 5 * 1024
        assert (rank, WORLD) == (headers[0]["stripe"], headers[0]["stripes"])


def test_the_states_of_all_ranks_are_read_together(run, replicas):
    write_all(run, replicas, 1)
    for rank, state in enumerate(load_world(run, world=WORLD, step=1)):
        alone = load_snapshot(run, rank, 1)
        assert (alone.digests, alone.position) == (state.digests, state.position)
        assert all(torch.equal(tensor, state.tensors[n]) for n, tensor in alone.tensors.items())


def test_what_belongs_to_a_rank_may_have_another_shape_on_every_rank(run):
    """Shards do: no extent needs to divide by the number of ranks."""
    uneven = [replica(rank) for rank in range(WORLD)]
    for rank, trainable in enumerate(uneven):
        trainable.model.register_buffer("own", torch.arange(7.0 * rank))
    write_all(run, uneven, 3)
    together = load_world(run, world=WORLD, step=3)
    for rank in range(WORLD):
        for state in (together[rank], load_snapshot(run, rank, 3)):
            assert state.tensors["buffer.own"].tolist() == list(range(7 * rank))


def test_more_ranks_than_leaves_leave_some_with_an_empty_stripe(tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=4)
    small = [torch.nn.Linear(10, 40) for _ in range(4)]
    for other in small[1:]:
        other.load_state_dict(small[0].state_dict())
    replicas = [Trainable(m, torch.optim.SGD(m.parameters())) for m in small]
    write_all(run, replicas, 1)
    for rank in range(4):
        assert torch.equal(small[0].weight, load_snapshot(run, rank, 1).tensors["model.weight"])


# --- what must not be built upon --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory, replicas):
    """A striped state on disk, and the bytes of the file of rank 1 up to the end of what was written."""
    run = RunDir.create(tmp_path_factory.mktemp("stripes") / "run", ranks=WORLD)
    write_all(run, replicas, 1)
    path = run.snapshot(1, 1)
    header = read_snapshot_header(path)
    return run, path, path.read_bytes(), header


def is_refused(run, load):
    try:
        load(run)
    except SnapshotMismatch:
        return True
    return False


@settings(max_examples=150)
@given(data=st.data())
def test_a_changed_byte_in_a_stripe_makes_the_state_unusable_for_every_rank(written, data):
    run, path, whole, header = written
    stripe_end = header["blob_offset"] - 500  # the private tensors lie behind it
    at = data.draw(st.integers(0, HEADER_BYTES - 1) | st.integers(HEADER_BYTES, stripe_end))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    try:
        for rank in range(WORLD):
            assert is_refused(run, lambda r, rank=rank: load_snapshot(r, rank, 1)), f"byte {at}"
    finally:
        path.write_bytes(whole)
    assert load_snapshot(run, 0, 1).step == 1


@settings(max_examples=50)
@given(data=st.data())
def test_a_changed_byte_anywhere_is_found_by_its_rank_and_by_the_checkpoint(written, data):
    run, path, whole, header = written
    at = data.draw(st.integers(0, header["blob_offset"] + header["blob_bytes"] - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    try:
        assert is_refused(run, lambda r: load_snapshot(r, 1, 1))
        assert is_refused(run, lambda r: load_world(r, world=WORLD, step=1))
    finally:
        path.write_bytes(whole)


def test_the_message_names_the_rank_that_keeps_the_broken_stripe(run, replicas):
    write_all(run, replicas, 1)
    path = run.snapshot(2, 1)
    changed = bytearray(path.read_bytes())
    changed[HEADER_BYTES + 3] ^= 4
    path.write_bytes(changed)
    with pytest.raises(SnapshotMismatch, match="stripe 2 of 3, kept by rank 2"):
        load_snapshot(run, 0, 1)


@pytest.mark.parametrize("what", ["missing", "cut", "torn", "overwritten"])
def test_a_state_without_one_of_its_stripes_is_not_there(run, replicas, what):
    write_all(run, replicas, 1)
    write_all(run, replicas, 2)
    path = run.snapshot(1, 2)
    match what:
        case "missing":
            path.unlink()
        case "cut":
            os.truncate(path, HEADER_BYTES + 100)
        case "torn":  # its writer died before it published
            path.write_bytes(b" " * HEADER_BYTES + path.read_bytes()[HEADER_BYTES:])
        case "overwritten":
            write_all(run, replicas, 5)
            for rank in (0, 2):
                SnapshotWriter(run, rank, stripe_count=WORLD).write(
                    replicas[rank], step=2, generation=1, streams=capture_streams(), position={}
                )
    with pytest.raises(SnapshotMismatch, match="state 2"):
        load_snapshot(run, 0, 2)
    if what != "cut":  # a header does not show it
        assert [c.step for c in slot_candidates(read_headers(run, world=WORLD), world=WORLD)] == [1]
    assert load_snapshot(run, 0, 1).step == 1


@pytest.mark.parametrize(
    "change", [{"generation": 2}, {"stripe": 0}, {"stripes": 2}, {"digest": "ab"}]
)
def test_a_sound_stripe_of_another_state_does_not_belong_here(run, replicas, change):
    write_all(run, replicas, 1)
    path = run.snapshot(1, 1)
    header = read_snapshot_header(path)
    path.write_bytes(seal_header(header | change) + path.read_bytes()[HEADER_BYTES:])
    with pytest.raises(SnapshotMismatch, match="rank 1"):
        load_snapshot(run, 0, 1)
    assert slot_candidates(read_headers(run, world=WORLD), world=WORLD) == ()


def test_a_sound_stripe_of_another_replica_shows_in_the_digest_of_the_whole(run, replicas):
    """Rank 1 writes what another model holds, then says of it what the others say: only the whole contradicts."""
    published = write_all(run, replicas, 1)[0]
    other = replica(1)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter += 1
    SnapshotWriter(run, 1, stripe_count=WORLD).write(
        other, step=1, generation=1, streams=capture_streams(), position={}
    )
    path = run.snapshot(1, 1)
    forged = read_snapshot_header(path) | {"digest": published.replica}
    path.write_bytes(seal_header(forged) + path.read_bytes()[HEADER_BYTES:])
    assert [c.step for c in slot_candidates(read_headers(run, world=WORLD), world=WORLD)] == [1]
    for rank in range(WORLD):
        with pytest.raises(SnapshotMismatch, match="parameters and optimizer hash to"):
            load_snapshot(run, rank, 1)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_flipped_bit_in_any_replica_shows_whoever_keeps_that_stripe(run, place):
    """Rank 1 keeps the middle stripe; the bit is flipped in what ranks 0 and 2 keep."""
    replicas = [replica(rank) for rank in range(WORLD)]
    model = replicas[1].model
    tensor = model.layer.weight if place == "first" else model.last
    with torch.no_grad():
        tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1)
    digests = [d.replica for d in write_all(run, replicas, 1)]
    assert digests[0] == digests[2] != digests[1]
    assert slot_candidates(read_headers(run, world=WORLD), world=WORLD) == ()
    with pytest.raises(SnapshotMismatch):
        load_snapshot(run, 0, 1)
