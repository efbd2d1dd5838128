"""Independent random streams by name, so that one seed replays a whole run.

A stream's numbers depend on the seed and its names only: adding a stream, or drawing more from another,
changes nothing here. No code outside this file touches the module-level generators.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from lastgood.base.canonical import canonical_bytes

if TYPE_CHECKING:
    import numpy as np


def _derive(seed: int, names: tuple[str | int, ...]) -> bytes:
    # Canonical JSON keeps ("a", "b") and ("ab",), and 1 and "1", apart.
    return hashlib.sha256(canonical_bytes(["lastgood/rng/1", seed, list(names)])).digest()


def stream(seed: int, *names: str | int) -> random.Random:
    """Return a generator that depends on the seed and the names alone."""
    return random.Random(int.from_bytes(_derive(seed, names), "big"))


def numpy_stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the numpy generator (PCG64) of the same name; its numbers differ from `stream`'s."""
    import numpy as np

    words = [int(word) for word in np.frombuffer(_derive(seed, names), dtype=">u4")]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def philox_stream(seed: int, *names: str | int, replication: int = 0) -> np.random.Generator:
    """Return a counter-based generator: replication n of a stream can be drawn without drawing those before.

    The names choose the key, the replication the counter, so results depend neither on the number of workers nor
    on which of them took which replication. Each replication has 2**128 numbers to itself.
    """
    import numpy as np

    key = np.frombuffer(_derive(seed, names)[:16], dtype="<u8").astype(np.uint64)
    counter = np.array([0, 0, replication, 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))
