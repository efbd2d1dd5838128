"""Capture and restore of everything that a step depends on: the oracle is the undisturbed object itself."""

import copy
import copyreg
import io
import pickle
import random
from functools import reduce

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lastgood.training.rank.state import (
    RandomStreams,
    Trainable,
    capture_streams,
    digest_state,
    digest_streams,
    digest_tensors,
    fits,
    largest_difference,
    pack,
    plan_layout,
    raw_bytes,
    restore_streams,
    unpack,
)


class Tied(torch.nn.Module):
    """One weight under two names, a frozen one, one that no loss reaches, an empty one, and buffers of three kinds."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 6)
        self.outer = torch.nn.Linear(6, 6)
        self.outer.weight = self.inner.weight
        self.norm = torch.nn.BatchNorm1d(6)
        self.frozen = torch.nn.Parameter(torch.randn(3), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.randn(3))
        self.empty = torch.nn.Parameter(torch.zeros(0, 4))
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.register_buffer("position_ids", torch.arange(5).expand((1, -1)))

    def forward(self, x):
        return self.outer(self.norm(torch.relu(self.inner(x))))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def amsgrad(parameters):
    return torch.optim.Adam(parameters, lr=1e-2, amsgrad=True)


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True)


def tensor_rate(parameters):
    """A learning rate that is a tensor, as compiled optimizers want it: a scheduler changes it in place."""
    return torch.optim.AdamW(parameters, lr=torch.tensor(1e-2))


def two_groups(parameters):
    first, *others = parameters
    return torch.optim.RMSprop([{"params": [first], "lr": 1e-3}, {"params": others}], lr=1e-2)


class Remembering(torch.optim.SGD):
    """Keeps plain values beside tensors: a list that it changes in place, and a number that comes and goes."""

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state.setdefault("history", []).append(float(parameter.grad.sum()))
                if len(state["history"]) % 2:
                    state["odd"] = len(state["history"])
                    state["odd_tensor"] = parameter.detach().clone()
                else:
                    state.pop("odd", None)
                    state.pop("odd_tensor", None)


def remembering(parameters):
    return Remembering(parameters, lr=1e-2)


OPTIMIZERS = [adamw, amsgrad, plain_sgd, momentum, tensor_rate, two_groups, remembering]


def make(optimizer=adamw, *, dtype=torch.float32, model=Tied):
    torch.manual_seed(1)
    module = model().to(dtype)
    made = optimizer(list(module.parameters()))
    return Trainable(module, made, torch.optim.lr_scheduler.StepLR(made, 2, gamma=0.5))


def train(trainable, steps):
    dtype = next(trainable.model.parameters()).dtype
    for _ in range(steps):
        trainable.optimizer.zero_grad()
        trainable.model(torch.randn(8, 6, dtype=dtype)).square().mean().backward()
        trainable.optimizer.step()
        trainable.scheduler.step()


def captured(trainable):
    """What a snapshot holds: copies of the tensors and the pickled rest."""
    replicated, private = trainable.tensors()
    plain = torch.contiguous_format
    tensors = {n: t.clone(memory_format=plain) for n, t in (replicated | private).items()}
    return tensors, unpack(pack(trainable.values()))


def digests(trainable):
    return digest_state(*trainable.tensors(), capture_streams())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_bit_for_bit_after_a_restore(optimizer, dtype):
    trainable = make(optimizer, dtype=dtype)
    train(trainable, 3)
    state, streams = captured(trainable), capture_streams()
    train(trainable, 3)
    expected = digests(trainable)
    trainable.load(*state)
    restore_streams(streams)
    train(trainable, 3)
    assert expected == digests(trainable)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_state_can_be_loaded_many_times(optimizer):
    """The passes after a restore load one state again and again; none of them may change it."""
    trainable = make(optimizer)
    train(trainable, 3)
    state, streams = captured(trainable), capture_streams()
    seen = []
    for _ in range(3):
        trainable.load(*state)
        restore_streams(streams)
        train(trainable, 2)
        seen.append((digests(trainable), repr(trainable.values())))
    assert seen == [seen[0]] * 3


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_spare_that_never_took_a_step_becomes_the_lost_rank(optimizer):
    trainable, spare = make(optimizer), make(optimizer)
    train(trainable, 3)
    state, streams = captured(trainable), capture_streams()
    spare.load(*state)
    assert digests(trainable) == digests(spare)
    train(trainable, 2)
    restore_streams(streams)
    train(spare, 2)
    assert digests(trainable) == digests(spare)
    assert trainable.scheduler.state_dict() == spare.scheduler.state_dict()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_initial_state_has_no_optimizer_state_and_restores_to_none(optimizer):
    trainable = make(optimizer)
    state, streams = captured(trainable), capture_streams()
    train(trainable, 2)
    expected = digests(trainable)
    trainable.load(*state)
    assert not any(len(s) for s in trainable.optimizer.state.values())
    restore_streams(streams)
    train(trainable, 2)
    assert expected == digests(trainable)


def test_what_an_optimizer_dropped_since_does_not_stay_behind():
    trainable = make(remembering)
    train(trainable, 2)
    state = captured(trainable)
    train(trainable, 1)
    weight = trainable.model.inner.weight
    assert "odd" in trainable.optimizer.state[weight]
    trainable.load(*state)
    assert not {"odd", "odd_tensor"} & set(trainable.optimizer.state[weight])


def test_a_restore_keeps_every_object_in_its_place():
    """DDP, schedulers and the user's variables hold references; memory stays where it is."""
    trainable = make(tensor_rate)
    train(trainable, 2)
    state = captured(trainable)
    train(trainable, 1)
    objects = [*trainable.model.parameters(), *trainable.model.buffers()]
    objects += [v for s in trainable.optimizer.state.values() for v in s.values()]
    rate = trainable.optimizer.param_groups[0]["lr"]
    before = [(id(o), o.data_ptr()) for o in (*objects, rate)]
    trainable.load(*state)
    objects = [*trainable.model.parameters(), *trainable.model.buffers()]
    objects += [v for s in trainable.optimizer.state.values() for v in s.values()]
    rate = trainable.optimizer.param_groups[0]["lr"]
    assert before == [(id(o), o.data_ptr()) for o in (*objects, rate)]


def test_gradients_of_the_abandoned_step_are_dropped():
    trainable = make()
    train(trainable, 1)
    state = captured(trainable)
    train(trainable, 1)
    trainable.load(*state)
    assert all(p.grad is None for p in trainable.model.parameters())


def test_parameters_are_replicated_and_buffers_private():
    trainable = make()
    train(trainable, 1)
    replicated, private = trainable.tensors()
    assert {n for n in replicated if n.startswith("model.")} == {
        "model.inner.weight", "model.inner.bias", "model.outer.bias", "model.norm.weight", "model.norm.bias",
        "model.frozen", "model.unused", "model.empty",
    }  # fmt: skip
    assert set(private) == {
        "buffer.norm.running_mean", "buffer.norm.running_var", "buffer.norm.num_batches_tracked",
        "buffer.mask", "buffer.position_ids",
    }  # fmt: skip
    assert not any("unused" in name for name in replicated if name.startswith("optim."))


def test_a_buffer_changes_the_private_digest_and_leaves_the_replica_digest():
    trainable = make()
    before = digests(trainable)
    trainable.model.norm.running_mean[0] += 1
    after = digests(trainable)
    assert before.replica == after.replica
    assert before.private != after.private


def test_a_parameter_that_only_the_optimizer_knows_is_part_of_the_state():
    """A learnable temperature outside the model: a spare would start with its own initial value."""
    trainable = make()
    outside = torch.nn.Parameter(torch.ones(2))
    trainable.optimizer.add_param_group({"params": [outside]})
    state = captured(trainable)
    before = digests(trainable)
    with torch.no_grad():
        outside += 1
    assert before.replica != digests(trainable).replica
    trainable.load(*state)
    assert torch.equal(torch.ones(2), outside)


def test_a_spare_lays_out_optimizer_state_as_the_lost_rank_did():
    """Kernels choose their path by memory format, so a channels_last weight needs channels_last moments."""

    def conv():
        return torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def one():
        model = conv()
        return Trainable(model, adamw(model.parameters()))

    trainable, spare = one(), one()
    trainable.model(torch.randn(2, 3, 8, 8)).mean().backward()
    trainable.optimizer.step()
    spare.load(*captured(trainable))
    moments = trainable.optimizer.state[trainable.model.weight]["exp_avg"]
    taken_over = spare.optimizer.state[spare.model.weight]["exp_avg"]
    assert moments.stride() == taken_over.stride()
    assert torch.equal(moments, taken_over)


def test_scaler_and_extras_travel_with_the_state():
    class Counter:
        def __init__(self):
            self.seen = []

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]

    model = torch.nn.Linear(2, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    trainable = Trainable(model, adamw(model.parameters()), None, scaler, {"counter": Counter()})
    trainable.extra["counter"].seen.append(1)
    scaler.scale(torch.ones(1))
    state = captured(trainable)
    for _ in range(2):
        trainable.load(*state)
        assert trainable.extra["counter"].seen == [1]
        assert scaler.get_scale() == 8.0
        trainable.extra["counter"].seen.append(2)
        scaler.update(new_scale=4.0)


# --- random streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [lambda: float(torch.rand(())), np.random.random, random.random],
    ids=["torch", "numpy", "python"],
)
def test_each_stream_repeats_and_each_shows_in_the_digest(draw):
    streams = capture_streams()
    before = digest_streams(streams)
    first = draw()
    assert before != digest_streams(capture_streams())
    restore_streams(streams)
    assert before == digest_streams(capture_streams())
    assert first == draw()


def test_a_half_used_normal_pair_is_part_of_numpys_stream():
    np.random.seed(5)  # noqa: NPY002
    np.random.standard_normal()  # noqa: NPY002
    streams = unpack(pack(capture_streams()))
    expected = [np.random.standard_normal() for _ in range(3)]  # noqa: NPY002
    restore_streams(streams)
    assert expected == [np.random.standard_normal() for _ in range(3)]  # noqa: NPY002


class PickledBefore(pickle.Pickler):
    """Pickles streams as every checkpoint before had them: the named tuple with its fields."""

    def reducer_override(self, value):
        if isinstance(value, RandomStreams):
            return copyreg.__newobj__, (RandomStreams, *value)
        return NotImplemented


def pickled_before(value):
    out = io.BytesIO()
    PickledBefore(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


class PickledWithArray(pickle.Pickler):
    """Pickles streams as checkpoints had them in between: numpy's words as an array."""

    def reducer_override(self, value):
        if isinstance(value, RandomStreams):
            make, (of_torch, _, *others) = value.__reduce__()
            return make, (of_torch, value.numpy, *others)
        return NotImplemented


def pickled_with_array(value):
    out = io.BytesIO()
    PickledWithArray(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


@pytest.mark.parametrize("pack", [pack, pickled_with_array, pickled_before])
def test_packed_streams_are_read_back_as_they_were_also_from_an_older_checkpoint(pack):
    random.gauss(0, 1)  # so that there is half a pair
    streams = capture_streams()._replace(cuda=(torch.arange(16, dtype=torch.uint8),))
    found = unpack(pack({"streams": streams, "again": [streams]}))["streams"]
    assert type(found) is RandomStreams
    assert found.python == streams.python
    assert digest_streams(found) == digest_streams(streams)
    assert torch.equal(found.cuda[0], streams.cuda[0])
    restore_streams(found._replace(cuda=()))
    assert random.getstate() == streams.python
    assert torch.equal(torch.get_rng_state(), streams.torch)
    assert digest_streams(capture_streams()._replace(cuda=streams.cuda)) == digest_streams(streams)


# --- digests ----------------------------------------------------------------------------------------


def test_the_digest_of_streams_is_one_that_older_checkpoints_hold():
    """Each stream in its own form: bytes as bytes, everything else as Python writes it."""
    random.gauss(0, 1)
    for _ in range(2):  # the second time with the same words and another half pair
        streams = capture_streams()
        parts = [
            p.tobytes() if isinstance(p, np.ndarray) else repr(p).encode() for p in streams.numpy
        ]
        raw = [streams.torch.numpy().tobytes(), *parts, repr(streams.python).encode()]
        assert xxhash.xxh3_128_digest(b"".join(raw)) == digest_streams(streams)
        random.gauss(0, 1)


def xor_of_words(tensor):
    return reduce(lambda a, b: a ^ b, tensor.view(torch.int32).tolist(), 0)


@given(
    pair=st.tuples(st.integers(0, 63), st.integers(0, 63)).filter(lambda p: p[0] != p[1]),
    bit=st.integers(0, 31),
)
def test_the_digest_sees_every_pair_of_flips_that_an_xor_misses(pair, bit):
    tensor = torch.linspace(-1, 1, 64)
    flipped = tensor.clone()
    mask = 1 << bit if bit < 31 else -(2**31)
    for index in pair:
        flipped.view(torch.int32)[index] ^= mask
    assert xor_of_words(tensor) == xor_of_words(flipped)
    assert digest_tensors({"a": tensor}) != digest_tensors({"a": flipped})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last),
        torch.randn(4, 6).t(),
        torch.randn(8).to(torch.bfloat16),
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.arange(5).expand(2, 5),
        torch.randn(3, dtype=torch.complex64),
        torch.randn(10)[::2],
    ],
    ids=[
        "channels_last",
        "transposed",
        "bf16",
        "scalar",
        "empty",
        "bool",
        "expanded",
        "complex",
        "strided",
    ],
)
def test_bytes_are_those_of_the_values_in_order_whatever_the_memory_format(tensor):
    plain = tensor.contiguous().clone(memory_format=torch.contiguous_format)
    assert bytes(raw_bytes(plain)) == bytes(raw_bytes(tensor))
    assert plain.numel() * plain.element_size() == len(raw_bytes(tensor))


def test_a_layout_fits_only_the_tensors_that_it_was_planned_for():
    replicated, private = (
        {"a": torch.zeros(3), "b": torch.zeros(0)},
        {"c": torch.zeros((), dtype=torch.int64)},
    )
    layout = plan_layout(replicated, private)
    assert fits(layout, replicated, private)
    assert [e.offset for e in (*layout.replicated, *layout.private)] == [0, 64, 64]
    assert layout.data_bytes == 128
    for other in (
        {"a": torch.zeros(3)},
        {"a": torch.zeros(4), "b": torch.zeros(0)},
        {"a": torch.zeros(3, dtype=torch.float16), "b": torch.zeros(0)},
        {"b": torch.zeros(0), "a": torch.zeros(3)},
    ):
        assert not fits(layout, other, private)
    assert not fits(layout, replicated, {})


def test_thousands_of_parameters_are_laid_out_one_after_the_other():
    tensors = {f"p{i}": torch.zeros(i % 7) for i in range(5000)}
    layout = plan_layout(tensors, {})
    ends = [e.offset + e.size_bytes for e in layout.replicated]
    assert all(
        end <= following.offset for end, following in zip(ends, layout.replicated[1:], strict=False)
    )
    assert all(e.offset % 64 == 0 for e in layout.replicated)


# --- tolerance --------------------------------------------------------------------------------------


def test_a_difference_is_relative_to_the_largest_magnitude_of_its_tensor():
    wanted = {"a": torch.tensor([1.0, -8.0]), "b": torch.tensor([0.5])}
    found = {"a": torch.tensor([1.5, -8.0]), "b": torch.tensor([0.5])}
    assert largest_difference(found, wanted) == 0.5 / 8
    assert largest_difference(wanted, wanted) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_value_that_is_no_number_is_infinitely_far_wherever_it_stands(bad, names):
    """A NaN in one tensor must not be forgotten at the next one."""
    wanted = {name: torch.tensor([1.0]) for name in names}
    found = copy.deepcopy(wanted)
    found["a"][0] = bad
    found["b"][0] = 1.001
    assert largest_difference(found, wanted) == float("inf")


def test_what_cannot_be_compared_is_infinitely_far():
    one = torch.ones(2)
    assert largest_difference({}, {"a": one}) == float("inf")
    assert largest_difference({"a": one, "b": one}, {"a": one}) == float("inf")
    assert largest_difference({"a": torch.ones(3)}, {"a": one}) == float("inf")


def test_truth_values_counts_complex_and_empty_tensors_are_compared_as_well():
    assert largest_difference({"a": torch.tensor([True])}, {"a": torch.tensor([False])}) == 1
    assert largest_difference({"a": torch.tensor(3)}, {"a": torch.tensor(4)}) == 0.25
    assert largest_difference({"a": torch.zeros(0)}, {"a": torch.zeros(0)}) == 0
    assert largest_difference({"a": torch.tensor([1 + 1j])}, {"a": torch.tensor([1 + 0j])}) == 1


class Growing(torch.nn.Module):
    """A history that grows by a row a step, one that appears late, and one that is dropped."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.inner = torch.nn.Module()
        self.inner.register_buffer("history", torch.zeros(1, 2))
        self.register_buffer("late", None)
        self.register_buffer("dropped", torch.ones(3))

    def step(self, rows):
        for _ in range(rows):
            self.inner.history = torch.cat([self.inner.history, torch.rand(1, 2)])
        self.late, self.dropped = torch.rand(4), None


@pytest.mark.parametrize("rows", [1, 3])
def test_buffers_that_grow_appear_or_are_dropped_come_back_as_they_were(rows):
    torch.manual_seed(3)
    model, fresh = Growing(), Growing()
    saved_in, loaded_in = (Trainable(m, adamw(m.parameters())) for m in (model, fresh))
    model.step(rows)
    replicated, private = saved_in.tensors()
    kept = {name: tensor.clone() for name, tensor in (replicated | private).items()}
    loaded_in.load(kept, saved_in.values())
    assert torch.equal(fresh.inner.history, model.inner.history)
    assert torch.equal(fresh.late, model.late)
    assert fresh.dropped is None
    # Loaded a second time it is the same state, and the live buffer shares no memory with what was loaded.
    fresh.inner.history += 1
    loaded_in.load(kept, saved_in.values())
    assert torch.equal(fresh.inner.history, model.inner.history)


def test_a_buffer_of_a_larger_shape_is_not_filled_by_broadcasting():
    model, wider = Growing(), Growing()
    wider.inner.history = torch.rand(4, 2)
    saved, loaded = (
        Trainable(model, adamw(model.parameters())),
        Trainable(wider, adamw(wider.parameters())),
    )
    replicated, private = saved.tensors()
    loaded.load(replicated | private, saved.values())
    assert wider.inner.history.shape == (1, 2)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_every_generator_that_numpy_can_be_given_is_part_of_the_state(kind):
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(kind(3))
    try:
        began = capture_streams()
        drawn = np.random.random(5).tolist()  # noqa: NPY002
        assert digest_streams(capture_streams()) != digest_streams(began)
        restore_streams(pickle.loads(pickle.dumps(began)))
        assert digest_streams(capture_streams()) == digest_streams(began)
        assert np.random.random(5).tolist() == drawn  # noqa: NPY002
    finally:
        np.random.set_bit_generator(before)
