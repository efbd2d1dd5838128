"""The name of a launch that nobody named, where its hosts share nothing but torchrun's store.

The folder in which a torchrun of one host keeps its errors differs on each host, and a port may come back in another
job. The store of the launch is the same for all its ranks, lives as long as the launch does, and is there before the
group is: whoever asks first writes the word down, and all others read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from lastgood.base.clock import SystemClock
from lastgood.training.attach.place import NamedBy, Place, has_agent_store, named_in_store

if TYPE_CHECKING:
    from torch.distributed import TCPStore

KEY = "lastgood/launch"
CONNECT_S_MAX = 30


class Agreeing(Protocol):
    """What is asked of a store."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set a key that holds what is expected (nothing, when that is empty); returns what it holds then."""
        ...


def name_launch(
    place: Place,
    environ: Mapping[str, str],
    *,
    connect: Callable[[str, int], Agreeing] | None = None,
) -> Place:
    """The place with the name that all ranks of the launch agree on; unchanged where it has one or no store answers."""
    is_named = place.named_by in {NamedBy.JOB, NamedBy.LAUNCH}
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT", "")
    if is_named or not has_agent_store(environ) or not address or not port.isdecimal():
        return place
    try:
        store = (connect or _connect)(address, int(port))
        word = store.compare_set(KEY, "", f"{SystemClock().wall_us():x}")
    except (RuntimeError, ValueError, OSError) as error:
        sys.stderr.write(f"lastgood: the store of the launch did not answer: {error}\n")
        return place
    return named_in_store(place, word.decode(errors="replace"))


def _connect(address: str, port: int) -> TCPStore:
    from torch.distributed import TCPStore

    limit = timedelta(seconds=CONNECT_S_MAX)
    return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
