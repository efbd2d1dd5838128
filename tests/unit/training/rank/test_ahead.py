"""What is read ahead is what a restore would read, and a wrong guess or an ill state costs nothing but time."""

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from lastgood.training.rank.ahead import ReadAhead
from lastgood.training.rank.feed import Feed
from lastgood.training.rank.snapshot import SnapshotMismatch, SnapshotWriter, load_snapshot
from lastgood.training.rank.state import Trainable, capture_streams, restore_streams
from lastgood.training.rundir import RunDir


def made_loader(rank, _world):
    """Shuffled and with random augmentation: position and streams both decide what a batch is."""
    items = torch.arange(40.0) + 100 * rank

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return len(items)

        def __getitem__(self, index):
            return items[index] + torch.rand(())

    return DataLoader(Noisy(), batch_size=4, shuffle=True)


class Trained:
    """One rank that has published the states 0 to 3, and the batch that each step took."""

    def __init__(self, run, rank, *, seed=5):
        torch.manual_seed(seed + rank)
        model = torch.nn.Linear(3, 3)
        trainable = Trainable(model, torch.optim.AdamW(model.parameters()))
        writer, feed = SnapshotWriter(run, rank), Feed(made_loader, rank=rank, world=2)
        self.batches = {}
        for step in range(4):
            if step:
                self.batches[step] = feed.batch(step)
                model(torch.randn(2, 3)).sum().backward()
                trainable.optimizer.step()
            position = {"feed": feed.position}
            writer.write(
                trainable, step=step, generation=1, streams=capture_streams(), position=position
            )


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", ranks=2)


@pytest.fixture
def trained(run):
    return [Trained(run, rank) for rank in range(2)]


def are_one(left, right):
    return left.digests == right.digests and all(
        torch.equal(tensor, right.tensors[name]) for name, tensor in left.tensors.items()
    )


def spoil(run, rank, step):
    with run.snapshot(rank, step).open("r+b") as out:
        out.seek(4096 + 5)
        byte = out.read(1)
        out.seek(4096 + 5)
        out.write(bytes([byte[0] ^ 1]))


@pytest.mark.usefixtures("trained")
def test_the_newest_state_and_the_one_before_it_are_read_once(run):
    ahead = ReadAhead(run)
    ahead.begin(rank=1, newest_step=3)
    newest, before = ahead.state(1, 3), ahead.state(1, 2)
    assert (newest.step, before.step) == (3, 2)
    assert are_one(newest, load_snapshot(run, 1, 3))
    assert ahead.state(1, 3) is newest
    ahead.forget()
    assert ahead.state(1, 3) is not newest


@pytest.mark.usefixtures("trained")
def test_another_rank_or_another_step_than_was_guessed_is_read_now(run):
    ahead = ReadAhead(run)
    ahead.begin(rank=1, newest_step=3)
    assert are_one(ahead.state(0, 3), load_snapshot(run, 0, 3))
    assert ahead.state(1, 1).step == 1


def test_a_state_that_was_published_again_since_is_not_taken_from_memory(run):
    Trained(run, 0)
    ahead = ReadAhead(run)
    ahead.begin(rank=0, newest_step=3)
    old = ahead.state(0, 3)
    Trained(run, 0, seed=77)
    ahead.begin(rank=0, newest_step=3)
    assert not are_one(ahead.state(0, 3), old)


@pytest.mark.usefixtures("trained")
def test_an_ill_state_is_told_where_it_is_needed(run):
    spoil(run, 1, 3)
    ahead = ReadAhead(run)
    ahead.begin(rank=1, newest_step=3)
    assert ahead.state(1, 2).step == 2
    with pytest.raises(SnapshotMismatch, match="state 3"):
        ahead.state(1, 3)


def test_a_spare_has_the_batch_that_the_lost_rank_took_and_leaves_its_streams_alone(run, trained):
    torch.manual_seed(12345)
    before = capture_streams()
    ahead = ReadAhead(run)
    ahead.prepare(made_loader, rank=1, world=2, newest_step=3)
    assert torch.equal(capture_streams().torch, before.torch)
    feed, state = ahead.feed_of(1), ahead.state(1, 2)
    assert ahead.feed_of(1) is None, "handed out once"
    # As the restore does it, whatever was opened ahead.
    restore_streams(state.streams)
    feed.seek(state.position["feed"], step=2)
    assert torch.equal(feed.batch(3), trained[1].batches[3])
    opened = capture_streams()

    restore_streams(state.streams)
    late = Feed(made_loader, rank=1, world=2)
    restore_streams(state.streams)
    late.seek(state.position["feed"], step=2)
    assert torch.equal(late.batch(3), trained[1].batches[3])
    assert torch.equal(opened.torch, capture_streams().torch)


@pytest.mark.usefixtures("trained")
def test_data_of_another_rank_than_the_spare_gets_is_dropped(run):
    ahead = ReadAhead(run)
    ahead.prepare(made_loader, rank=1, world=2, newest_step=3)
    assert ahead.feed_of(0) is None
    assert ahead.feed_of(1) is None


@pytest.mark.usefixtures("trained")
def test_a_loader_that_raises_ahead_leaves_the_telling_to_the_restore(run):
    def fails(_rank, _world):
        raise ValueError("no such file")

    ahead = ReadAhead(run)
    ahead.prepare(fails, rank=1, world=2, newest_step=3)
    assert ahead.feed_of(1) is None
    assert are_one(ahead.state(1, 3), load_snapshot(run, 1, 3))


def test_what_was_never_published_opens_nothing(run):
    ahead = ReadAhead(run)
    ahead.prepare(made_loader, rank=0, world=2, newest_step=3)
    assert ahead.feed_of(0) is None
    with pytest.raises(SnapshotMismatch):
        ahead.state(0, 3)


@pytest.mark.usefixtures("trained")
def test_a_loader_finds_its_rank_in_torch_before_there_is_a_group(run):
    """`get_rank() if is_initialized() else 0` would read the data of rank 0, and nothing would raise."""
    found = []

    def looks(rank, world):
        found.append((dist.get_rank() if dist.is_initialized() else 0, dist.get_world_size()))
        return made_loader(rank, world)

    ahead = ReadAhead(run)
    ahead.prepare(looks, rank=1, world=2, newest_step=3)
    assert found == [(1, 2)]
    assert ahead.feed_of(1) is not None
    assert not dist.is_initialized()


@pytest.mark.usefixtures("trained")
def test_a_loader_that_needs_its_peers_is_made_behind_the_join(run):
    def waits(rank, world):
        dist.barrier()
        return made_loader(rank, world)

    ahead = ReadAhead(run)
    ahead.prepare(waits, rank=1, world=2, newest_step=3)
    assert ahead.feed_of(1) is None
    assert not dist.is_initialized()


@pytest.mark.usefixtures("trained")
def test_data_that_could_not_be_opened_again_is_not_that_of_before(run):
    ahead = ReadAhead(run)
    ahead.prepare(made_loader, rank=1, world=2, newest_step=3)
    ahead.prepare(lambda _rank, _world: 1 / 0, rank=1, world=2, newest_step=3)
    assert ahead.feed_of(1) is None


@pytest.mark.usefixtures("trained")
def test_without_a_thread_the_states_are_read_when_they_are_needed(run, monkeypatch):
    def refuses(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuses)
    ahead = ReadAhead(run)
    ahead.begin(rank=1, newest_step=3)
    assert ahead.state(1, 3).step == 3
