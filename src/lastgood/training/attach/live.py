"""The live files of one host's ranks: where each rank says who it is, and where a stop is agreed upon.

```
<folder>/ranks/<local rank>.json   who serves it: rank, pid
<folder>/status/<local rank>       its status page
<folder>/endings, first, stacks    as in observe mode
<folder>/stop                      the step after which all ranks of this host stop, 0 for none; whether an incident is open
```
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = 4096
_PF_EXITING = 0x4
"""In the flags of `/proc/PID/stat`: set by the kernel before it closes anything of the process."""
_FOLDERS = ("ranks", "status", "endings", "first", "stacks")


class Joined(NamedTuple):
    """What a rank says about itself when it attaches."""

    rank: int
    pid: int


class LiveDir:
    """The folder; any rank of the host makes it, the watcher removes it."""

    def __init__(self, root: Path) -> None:
        """Make what is missing. Only the owner may read it."""
        self.root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _FOLDERS:
            (root / name).mkdir(exist_ok=True)

    def join(self, local_rank: int, joined: Joined) -> None:
        """Say who serves a local rank."""
        fresh = self.root / "ranks" / f".{local_rank}"
        fresh.write_text(json.dumps(joined._asdict()))
        fresh.replace(self.root / "ranks" / f"{local_rank}.json")

    def joined(self) -> dict[int, Joined]:
        """Who has joined so far, by local rank."""
        found = {}
        for path in (self.root / "ranks").glob("[0-9]*.json"):
            with suppress(OSError, ValueError, TypeError):
                found[int(path.stem)] = Joined(**json.loads(path.read_text()))
        return found

    def running_peers(self) -> list[int]:
        """Ranks of the other processes that have joined and are not on their way out, as the kernel sees them now."""
        others = (j for j in self.joined().values() if j.pid != os.getpid())
        return sorted(j.rank for j in others if _is_running(j.pid))

    def path(self, kind: str, local_rank: int) -> Path:
        """A rank's file of one kind."""
        return self.root / kind / str(local_rank)

    @property
    def stop_page(self) -> StopPage:
        """The page on which this host agrees about a stop."""
        return StopPage(self.root / "stop")


def _is_running(pid: int) -> bool:
    """A process that is being ended closes its sockets first, and its peers notice before it is gone."""
    try:
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return False
    return state not in {"Z", "X"} and not int(fields[5]) & _PF_EXITING


class StopPage:
    """Two words that all ranks of a host map: reading them each step costs nothing."""

    def __init__(self, path: Path) -> None:
        """Map the page, making it when it is not there."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("q")

    @property
    def step(self) -> int:
        """The last step before the stop; 0 while none is wanted."""
        return self._words[0]

    @step.setter
    def step(self, step: int) -> None:
        self._words[0] = step

    @property
    def is_broken(self) -> bool:
        """True while the watcher has an incident open: no step may ever come to stop behind."""
        return bool(self._words[1])

    @is_broken.setter
    def is_broken(self, is_broken: bool) -> None:
        self._words[1] = is_broken


def live_root(*, run: str, host: str, attempt: int) -> Path:
    """The folder of one host in one attempt: in shared memory, where a word costs nothing."""
    base = Path("/dev/shm")  # noqa: S108 - in a folder of mode 0700
    if not os.access(base, os.W_OK):
        base = Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 - as above
    return base / f"lastgood-attach-{os.getuid()}-{run}-{host}-a{attempt}"
