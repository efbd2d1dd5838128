"""Shards: private, captured and restored bit for bit, and never compared between ranks."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from lastgood.base.errors import Refused
from lastgood.training.rank import shards
from lastgood.training.rank.checkpoint import load_checkpoint, write_checkpoint
from lastgood.training.rank.snapshot import SnapshotWriter, load_snapshot
from lastgood.training.rank.state import Trainable, capture_streams, digest_state
from lastgood.training.rundir import RunDir


@pytest.fixture(scope="module", autouse=True)
def mesh(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def make(mesh):
    """A sharded model beside a plain parameter, trained for some steps."""

    def made(*, seed=1, steps=2):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
        fully_shard(model[0], mesh=mesh)
        trainable = Trainable(model, torch.optim.AdamW(model.parameters(), lr=0.1))
        train(trainable, steps)
        return trainable

    return made


def train(trainable, steps):
    for step in range(steps):
        trainable.optimizer.zero_grad()
        inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
        trainable.model(inputs).square().sum().backward()
        trainable.optimizer.step()


def test_only_distributed_tensors_are_shards_and_each_is_under_its_own_name(make):
    replicated, private = make().tensors()
    assert {n for n in private if n.startswith("shard.")} == {
        f"shard.{n}" for n in (
            "model.0.weight", "model.0.bias", "optim.0.exp_avg", "optim.0.exp_avg_sq", "optim.1.exp_avg",
            "optim.1.exp_avg_sq",
        )
    }  # fmt: skip
    assert {"model.1.weight", "optim.0.step", "optim.2.exp_avg"} <= replicated.keys()
    assert not any(isinstance(t, DTensor) for t in (*replicated.values(), *private.values()))


def test_a_shard_enters_the_private_digest_and_no_other(make):
    trainable = make()
    before = digest_state(*trainable.tensors(), capture_streams())
    with torch.no_grad():
        shards.local_of(trainable.model[0].weight).view(-1)[0] += 1
    after = digest_state(*trainable.tensors(), capture_streams())
    assert after.replica == before.replica
    assert after.private != before.private


@pytest.mark.parametrize("is_fresh", [True, False], ids=["without state", "with state"])
def test_a_restored_state_goes_on_bit_for_bit(make, is_fresh):
    source = make(steps=2)
    kept = [{n: t.clone() for n, t in part.items()} for part in source.tensors()]
    values = source.values()
    train(source, 3)
    restored = make(seed=2, steps=0 if is_fresh else 4)
    restored.load(kept[0] | kept[1], values)
    again = digest_state(*restored.tensors(), capture_streams())
    assert again == digest_state(*kept, capture_streams())
    train(restored, 3)
    ends = [digest_state(*t.tensors(), capture_streams()) for t in (source, restored)]
    assert ends[0] == ends[1]


def test_a_shard_is_loaded_in_place(make):
    trainable = make()
    before = shards.local_of(trainable.model[0].weight).data_ptr()
    replicated, private = trainable.tensors()
    trainable.load({n: t.clone() for n, t in (replicated | private).items()}, trainable.values())
    assert shards.local_of(trainable.model[0].weight).data_ptr() == before


def test_a_state_of_the_optimizer_in_another_shape_is_refused(make):
    weight = make().model[0].weight
    with pytest.raises(Refused, match=r"found a shard of \(2,\) for one of \(5, 3\)"):
        shards.settled(None, torch.zeros(2), like=weight)


def test_snapshots_and_checkpoints_hold_the_shards_of_each_rank(make, tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=2)
    written = []
    for rank in range(2):
        trainable = make(seed=1)
        with torch.no_grad():
            shards.local_of(trainable.model[0].weight).fill_(rank)
        written.append(trainable)
        SnapshotWriter(run, rank).write(
            trainable, step=2, generation=1, streams=capture_streams(), position={"feed": rank}
        )
    states = [load_snapshot(run, rank, 2) for rank in range(2)]
    assert states[0].digests.replica == states[1].digests.replica
    write_checkpoint(tmp_path / "step-000000002", states)
    for rank in range(2):
        found = load_checkpoint(str(tmp_path / "step-000000002"), rank=rank, step=2)
        assert found.digests == states[rank].digests
        assert found.tensors["shard.model.0.weight"].unique().tolist() == [rank]
        assert shards.holds_shards(found.tensors)


def test_where_nothing_is_sharded_nothing_changes():
    plain = {"a": torch.zeros(1)}
    assert shards.split(plain) == (plain, {})
    assert shards.local_of(plain["a"]) is plain["a"]
    assert shards.name_of("a", plain["a"]) == "a"
    assert not shards.holds_shards(plain)
