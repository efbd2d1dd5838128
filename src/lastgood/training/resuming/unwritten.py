"""Events that found no room in the ledger until their run ended: saved elsewhere, and put in by the next run.

They lie in shared memory, one canonical event a line behind a line that names their ledger. The next `lastgood run`
with that ledger writes them first, with their own ids and times, and deletes the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.base.errors import LedgerError
from lastgood.ledger.event import decode_event, encode_event
from lastgood.training.rundir import shared_base

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lastgood.ledger.event import Event
    from lastgood.ledger.writer import LedgerWriter

_PREFIX = "lastgood-unwritten-"


def save_unwritten(events: Iterable[Event], *, ledger: Path, run_id: str) -> Path:
    """Save events that could not be written; returns the file. Raises OSError where there is no room either."""
    path = shared_base() / f"{_PREFIX}{run_id}-{os.getpid()}.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        head = {"ledger": str(ledger.resolve()), "run": run_id}
        out.write(json.dumps(head).encode() + b"\n")
        for event in events:
            out.write(encode_event(event) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    return path


def find_unwritten(ledger: Path | None = None) -> list[Path]:
    """Return the saved files of this user, of one ledger only where it is named."""
    found = []
    for path in sorted(shared_base().glob(f"{_PREFIX}*.jsonl")):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            with path.open("rb") as lines:
                of = json.loads(lines.readline())["ledger"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if ledger is None or of == str(ledger.resolve()):
            found.append(path)
    return found


def put_unwritten(ledger: Path, writer: LedgerWriter) -> int:
    """Write what earlier runs had to save; returns how many events. A file that cannot be written stays.

    A line that is cut, by whatever ended its writer, is the last one of its file: what stands before it counts.
    """
    count = 0
    for path in find_unwritten(ledger):
        events = []
        with path.open("rb") as lines:
            next(lines)
            for line in lines:
                try:
                    events.append(decode_event(line.rstrip(b"\n")))
                except (LedgerError, ValueError):
                    break
        try:
            writer.append(events)
        except TimeoutError:
            continue  # no room yet: they wait in memory, and the file stays; their ids keep them from being there twice
        path.unlink(missing_ok=True)
        count += len(events)
    return count
