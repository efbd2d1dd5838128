"""What is looked at in place is what the tensors hold now, whatever was put under their names since the last look."""

import itertools

import pytest
import torch

from lastgood.training.rank.leaves import cut
from lastgood.training.rank.snapshot import SnapshotWriter, load_snapshot
from lastgood.training.rank.state import Trainable, capture_streams, digest_state, raw_bytes
from lastgood.training.rank.views import LiveViews
from lastgood.training.rundir import RunDir

WIDTH = 40


class Tagged(torch.Tensor):
    """A type that may stand for other bytes than it lies on."""


def fresh(like):
    return torch.randn(like.shape).to(like.dtype)


def flipped(tensor):
    """One bit, in place where the tensor lies plainly in memory."""
    plain = tensor.data.resolve_neg().contiguous()
    plain.view(torch.uint8).view(-1)[7] ^= 4
    return plain


def on_another_storage(tensor):
    """The same tensor object from here on looks at other memory."""
    other = fresh(tensor)
    with torch.no_grad():
        tensor.set_(other)
    return tensor.data


CHANGES = {
    "nothing": lambda t: t.data,
    "a bit": flipped,
    "new data": fresh,
    "another storage": on_another_storage,
    "another order, in the same place": lambda t: t.data.t(),
    "negated, in the same place": lambda t: torch._neg_view(t.data),
    "gaps": lambda t: torch.randn(WIDTH, 2 * WIDTH).to(t.dtype)[:, ::2],
    "one value everywhere": lambda t: torch.ones(1, 1, dtype=t.dtype).expand(WIDTH, WIDTH),
}


def made(dtype=torch.float32):
    model = torch.nn.Linear(WIDTH, WIDTH, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, WIDTH, dtype=dtype)).sum().backward()
    optimizer.step()
    return Trainable(model, optimizer)


def written(writer, trainable, step, run):
    """Publish, hold against the digest of the slow look, and read back."""
    expected = digest_state(*trainable.tensors(), capture_streams())
    found = writer.write(trainable, step=step, generation=1, streams=capture_streams(), position={})
    assert found == expected
    if writer._stripe_count == 1:
        loaded = load_snapshot(run, 0, step)
        for name, tensor in trainable.tensors()[0].items():
            assert torch.equal(loaded.tensors[name], tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stripes", [1, 3])
@pytest.mark.parametrize("target", ["parameter", "moment"])
def test_a_tensor_that_was_replaced_is_noticed(tmp_path, target, stripes, dtype):
    """Each change after each other one: the look before it may have been in place or not."""
    run, trainable = RunDir.create(tmp_path / "run", ranks=1), made(dtype)
    writer = SnapshotWriter(run, 0, stripe_count=stripes)
    weight = trainable.model.weight
    state = trainable.optimizer.state[weight]
    steps = itertools.count()
    for first, second in itertools.product(CHANGES.values(), repeat=2):
        for change in (first, second):
            if target == "parameter":
                weight.data = change(weight)
            else:
                state["exp_avg"] = change(state["exp_avg"])
            written(writer, trainable, next(steps), run)


def test_a_conjugate_in_the_same_place_is_noticed(tmp_path):
    run, trainable = RunDir.create(tmp_path / "run", ranks=1), made()
    writer = SnapshotWriter(run, 0)
    state = trainable.optimizer.state[trainable.model.weight]
    state["phase"] = torch.randn(8, dtype=torch.complex64)
    written(writer, trainable, 0, run)
    state["phase"] = state["phase"].conj()
    written(writer, trainable, 1, run)


def test_views_are_used_again_only_where_nothing_moved():
    tensors = [torch.randn(300), torch.zeros(0), torch.tensor(1.0)]
    sizes = [t.numel() * t.element_size() for t in tensors]
    pieces = cut(tuple(sizes)).pieces
    views = LiveViews(pieces, sizes)
    before = list(views.contents(tensors))
    assert [bytes(a) for a in before] == [
        bytes(raw_bytes(tensors[p.tensor])[p.start : p.end]) for leaf in pieces for p in leaf
    ]
    assert all(a is b for a, b in zip(before, views.contents(tensors), strict=True))
    tensors[0] = tensors[0].clone()
    after = views.contents(tensors)
    assert [a is b for a, b in zip(before, after, strict=True)] == [False, False, True]


@pytest.mark.parametrize(
    "strange",
    [
        torch.randn(20, 2).t(),
        torch.randn(40).as_subclass(Tagged),
        torch.empty(40, device="meta"),
        torch._neg_view(torch.randn(40)),
    ],
    ids=["strided", "subclass", "elsewhere", "negated"],
)
def test_what_does_not_lie_plainly_in_memory_is_not_looked_at_in_place(strange):
    views = LiveViews(cut((160, 160)).pieces, (160, 160))
    assert views.contents([torch.randn(40), torch.randn(40)]) is not None
    assert views.contents([torch.randn(40), strange]) is None
