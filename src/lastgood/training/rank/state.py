"""The unit of state: parameters, optimizer, scheduler, scaler, random streams, data position and step, together.

Two kinds of bytes. *Replicated* ones (parameters and optimizer tensors) are equal on every data-parallel rank,
so their digest is compared across ranks. *Private* ones (buffers, shards, random streams, data position) belong to
one rank, so their digest is compared with that rank's own. Everything else that is not a tensor travels in a pickled
blob, which is read only after its bytes hashed to their digest.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import random
from array import array
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xxhash

from lastgood.training.rank import shards
from lastgood.training.rank.generators import numpy_generator, python_generator
from lastgood.training.rank.leaves import aligned, contents_of, cut, hash_leaves, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NUMPY_DTYPES = frozenset(
    {
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    }
)
"""Types that numpy has too: through it, the bytes of a tensor are had in half the time."""
_NUMPY, _PYTHON = numpy_generator(), python_generator()


class RandomStreams(NamedTuple):
    """The state of every random stream that a training script uses without asking."""

    torch: torch.Tensor
    numpy: Any
    python: tuple[Any, ...]
    cuda: tuple[torch.Tensor, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as plain bytes: torch makes an archive of each tensor, numpy one of each array."""
        of_torch, *of_cuda = (state.numpy().tobytes() for state in (self.torch, *self.cuda))
        of_numpy, of_python = _packed_numpy(self.numpy), _packed_python(self.python)
        return streams_from_bytes, (of_torch, of_numpy, of_python, of_cuda)


def streams_from_bytes(
    of_torch: bytes, of_numpy: Any, of_python: tuple[Any, bytes, Any], of_cuda: list[bytes]
) -> RandomStreams:
    """Return unpickled streams. Checkpoints name this function, older ones `RandomStreams` itself: both are read.

    In older ones numpy's words are an array.
    """
    version, words, gauss = of_python
    first, *cuda = (
        torch.frombuffer(bytearray(raw), dtype=torch.uint8) for raw in (of_torch, *of_cuda)
    )
    if isinstance(of_numpy, tuple) and isinstance(of_numpy[1], bytes):
        of_numpy = (of_numpy[0], np.frombuffer(of_numpy[1], np.uint32), *of_numpy[2:])
    return RandomStreams(first, of_numpy, (version, tuple(array("I", words)), gauss), tuple(cuda))


class _Remembered:
    """What a function makes of a tuple, kept for the last one: an unused generator gives the same tuple every time."""

    __slots__ = ("_known", "_make")

    def __init__(self, make: Callable[[tuple[Any, ...]], Any]) -> None:
        self._make = make
        self._known: tuple[tuple[Any, ...], Any] | None = None

    def __call__(self, of: tuple[Any, ...]) -> Any:
        known = self._known
        if known is None or known[0] is not of:
            self._known = known = (of, self._make(of))
        return known[1]


def _packed_numpy(state: Any) -> Any:
    """Return numpy's stream with its words as bytes; one of another kind is no tuple, and stays as it is."""
    if not isinstance(state, tuple):
        return state
    name, words, *others = state
    return name, words.astype(np.uint32, copy=False).tobytes(), *others


@_Remembered
def _packed_python(state: tuple[Any, ...]) -> tuple[Any, bytes, Any]:
    version, words, gauss = state
    return version, array("I", words).tobytes(), gauss


@_Remembered
def _text_of(state: tuple[Any, ...]) -> bytes:
    """Return Python's stream as text, which is slow to make."""
    return repr(state).encode()


def capture_streams() -> RandomStreams:
    """Return the state of the global random streams."""
    cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()
    return RandomStreams(torch.get_rng_state(), _NUMPY.state(), _PYTHON.state(), cuda)


def restore_streams(streams: RandomStreams) -> None:
    """Set the global random streams back."""
    torch.set_rng_state(streams.torch)
    np.random.set_state(streams.numpy)  # noqa: NPY002
    random.setstate(streams.python)
    if streams.cuda:
        torch.cuda.set_rng_state_all(list(streams.cuda))


class Entry(NamedTuple):
    """One tensor of the state and where it lies in a snapshot."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class Layout(NamedTuple):
    """Where every tensor lies in the row of all of them, the replicated ones first."""

    replicated: tuple[Entry, ...]
    private: tuple[Entry, ...]
    data_bytes: int

    @property
    def replicated_bytes(self) -> int:
        """Where the private tensors begin."""
        return self.private[0].offset if self.private else self.data_bytes


class Digests(NamedTuple):
    """Hex xxh3-128 digests of one state. Never XOR: paired flips cancel. Not a proof against tampering."""

    replica: str
    private: str


@dataclass(slots=True)
class Trainable:
    """The live objects that make up a rank's state."""

    model: torch.nn.Module
    optimizer: Any
    """A torch optimizer; None until there is one for the parameters of a model that is made anew."""
    scheduler: Any = None
    scaler: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further objects with `state_dict` and `load_state_dict`, by name."""

    def _parameters_of_optimizer(self) -> Iterator[tuple[int, torch.nn.Parameter]]:
        index = 0
        for group in self.optimizer.param_groups if self.optimizer is not None else ():
            for parameter in group["params"]:
                yield index, parameter
                index += 1

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return every parameter by name, also those that only the optimizer knows, such as a temperature of the loss."""
        found = {f"model.{name}": p for name, p in self.model.named_parameters()}
        inside = {id(parameter) for parameter in found.values()}
        for index, parameter in self._parameters_of_optimizer():
            if id(parameter) not in inside:
                found[f"outside.{index}"] = parameter
        return found

    def live_tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the replicated and the private tensors by name, in one stable order, to look at their bytes."""
        replicated: dict[str, torch.Tensor] = dict(self.parameters())
        for index, parameter in self._parameters_of_optimizer():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    replicated[f"optim.{index}.{key}"] = value
        replicated, private = shards.split(replicated)
        private |= {f"buffer.{name}": buffer for name, buffer in self.model.named_buffers()}
        return replicated, private

    def tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the same tensors to compute with: nothing follows their gradients."""
        replicated, private = self.live_tensors()
        return (
            {name: tensor.detach() for name, tensor in replicated.items()},
            {name: tensor.detach() for name, tensor in private.items()},
        )

    def values(self) -> dict[str, Any]:
        """Return everything that is not a tensor of its own: hyperparameters, scheduler, scaler, extras."""
        plain_state = {
            index: {
                k: v
                for k, v in self.optimizer.state.get(p, {}).items()
                if not isinstance(v, torch.Tensor)
            }
            for index, p in self._parameters_of_optimizer()
        }
        groups = [
            {k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups
        ]
        return {
            "optimizer_values": plain_state,
            "optimizer_groups": groups,
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "extra": {name: thing.state_dict() for name, thing in self.extra.items()},
        }

    def load(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        """Set the live objects to a state; existing tensors are overwritten in place, so nothing loses its identity."""
        # One state may be loaded several times, so nothing live may share a list or a tensor with it.
        values = copy.deepcopy(values)
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                shards.local_of(parameter).copy_(tensors[shards.name_of(name, parameter)])
                parameter.grad = None
            saved = {
                n.removeprefix("buffer."): t for n, t in tensors.items() if n.startswith("buffer.")
            }
            for name, _ in list(self.model.named_buffers()):
                if name not in saved:
                    self._set_buffer(name, None)
            for name, tensor in saved.items():
                self._set_buffer(name, tensor)
            self._load_optimizer(tensors, values)
        for thing, key in ((self.scheduler, "scheduler"), (self.scaler, "scaler")):
            if thing is not None and values[key] is not None:
                thing.load_state_dict(values[key])
        for name, thing in self.extra.items():
            thing.load_state_dict(values["extra"][name])

    def _set_buffer(self, name: str, saved: torch.Tensor | None) -> None:
        """A buffer that grows while training (a queue, a history) has another shape here: it is made anew.

        Never copied over another shape: broadcasting would fill it without a word.
        """
        owner, _, leaf = name.rpartition(".")
        buffers = self.model.get_submodule(owner)._buffers  # noqa: SLF001 - setattr would refuse nothing and check nothing
        live = buffers.get(leaf)
        if saved is None:
            buffers[leaf] = None
        elif live is not None and (live.shape, live.dtype) == (saved.shape, saved.dtype):
            live.copy_(saved)
        else:
            place = live if live is not None else next(self.model.parameters(), saved)
            buffers[leaf] = saved.detach().to(place.device, copy=True)

    def _load_optimizer(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        for group, saved in zip(
            self.optimizer.param_groups, values["optimizer_groups"], strict=True
        ):
            for key, value in saved.items():
                group[key] = _settled(group.get(key), value, like=None)
        keys: dict[int, dict[str, str]] = {}
        for name in tensors:
            bare = name.removeprefix(shards.SHARD)
            if bare.startswith("optim."):
                _, index, key = bare.split(".", 2)
                keys.setdefault(int(index), {})[key] = name
        for index, parameter in self._parameters_of_optimizer():
            plain = values["optimizer_values"].get(index, {})
            # Built anew in the saved order, which is the order of the digest; what was dropped since stays dropped.
            before = self.optimizer.state.pop(parameter, {})
            state = {
                key: (shards.settled if name.startswith(shards.SHARD) else _settled)(
                    before.get(key), tensors[name], like=parameter
                )
                for key, name in keys.get(index, {}).items()
            }
            if state or plain:
                self.optimizer.state[parameter] = state | plain


def _settled(current: Any, saved: Any, *, like: torch.Tensor | None) -> Any:
    """Return a saved value to put into the optimizer: the tensor that is there already, overwritten, if there is one.

    A new tensor gets the memory format of its parameter, as the optimizer would have made it: kernels choose their
    path by it.
    """
    if not isinstance(saved, torch.Tensor):
        return saved
    if not (
        isinstance(current, torch.Tensor)
        and current.shape == saved.shape
        and current.dtype == saved.dtype
    ):
        form = saved if like is None or like.shape != saved.shape else like
        current = torch.empty_like(form, dtype=saved.dtype)
    return current.copy_(saved)


def plan_layout(replicated: dict[str, torch.Tensor], private: dict[str, torch.Tensor]) -> Layout:
    """Return where each tensor goes."""
    offset = 0
    placed: list[tuple[Entry, ...]] = []
    for tensors in (replicated, private):
        entries = []
        for name, tensor in tensors.items():
            size = tensor.numel() * tensor.element_size()
            entries.append(Entry(name, tensor.dtype, tuple(tensor.shape), offset, size))
            offset += aligned(size)
        placed.append(tuple(entries))
    return Layout(placed[0], placed[1], offset)


def fits(
    layout: Layout, replicated: dict[str, torch.Tensor], private: dict[str, torch.Tensor]
) -> bool:
    """True when the live tensors are those of the layout (an optimizer creates its state in its first step)."""
    return all(
        len(entries) == len(tensors)
        and all(
            e.name == n and e.shape == t.shape and e.dtype == t.dtype
            for e, (n, t) in zip(entries, tensors.items(), strict=True)
        )
        for entries, tensors in ((layout.replicated, replicated), (layout.private, private))
    )


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor in host memory, without a copy where it is contiguous there."""
    if tensor.dtype not in _NUMPY_DTYPES:
        tensor = tensor.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return tensor.numpy(force=True).ravel().view(np.uint8).data


def digest_tensors(tensors: dict[str, torch.Tensor]) -> str:
    """Return the digest of the live tensors: the source, not the copy, so that a torn copy shows."""
    return join(leaf_digests(tensors))


def leaf_digests(tensors: dict[str, torch.Tensor]) -> list[bytes]:
    """Return the digest of each leaf of the tensors (see `leaves`)."""
    found = list(tensors.values())
    sizes = tuple(tensor.numel() * tensor.element_size() for tensor in found)
    pieces = cut(sizes).pieces
    live = contents_of(chain.from_iterable(pieces), lambda index: raw_bytes(found[index]))
    return hash_leaves(pieces, live)


def digest_streams(streams: RandomStreams) -> bytes:
    """Return bytes that are equal exactly when the random streams are."""
    digest = xxhash.xxh3_128(streams.torch.numpy().data)
    for part in _parts_of(streams.numpy):
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    digest.update(_text_of(streams.python))
    for state in streams.cuda:
        digest.update(raw_bytes(state))
    return digest.digest()


def _parts_of(state: Any) -> Iterator[Any]:
    """Go through numpy's stream: a tuple for its usual generator, nested dictionaries for any other."""
    if isinstance(state, tuple):
        yield from state
    elif isinstance(state, dict):
        for name, part in state.items():
            yield name
            yield from _parts_of(part)
    else:
        yield state


def digest_state(
    replicated: dict[str, torch.Tensor], private: dict[str, torch.Tensor], streams: RandomStreams
) -> Digests:
    """Return both digests of a state."""
    return Digests(digest_tensors(replicated), digest_private(private, streams))


def digest_private(private: dict[str, torch.Tensor], streams: RandomStreams) -> str:
    """Return the digest of what belongs to one rank."""
    own = xxhash.xxh3_128(digest_streams(streams))
    for tensor in private.values():
        own.update(raw_bytes(tensor))
    return own.hexdigest()


def pack(value: object) -> bytes:
    """Pickle the blob of a snapshot."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(raw: bytes) -> Any:
    """Read a blob back. Only ever called on bytes that this run wrote and that hashed to their digest."""
    return pickle.loads(raw)  # noqa: S301


def unpack_each(raw: bytes) -> list[Any]:
    """Read several packed values back that stand one behind the other; as trusted as `unpack`."""
    stream, found = io.BytesIO(raw), []
    while stream.tell() < len(raw):
        found.append(pickle.load(stream))  # noqa: S301
    return found


def largest_difference(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of any tensor, relative to that tensor's largest magnitude; inf where not comparable."""
    if found.keys() != wanted.keys():
        return math.inf
    worst = 0.0
    for name, right in wanted.items():
        left = found[name]
        if left.shape != right.shape:
            return math.inf
        if right.numel() == 0:
            continue
        wide = torch.complex128 if right.is_complex() or left.is_complex() else torch.float64
        scale = float(right.to(wide).abs().max()) or 1.0
        difference = float((left.to(wide) - right.to(wide)).abs().max()) / scale
        if not math.isfinite(difference):
            return math.inf  # at once: the next tensor must not make it forgotten
        worst = max(worst, difference)
    return worst
