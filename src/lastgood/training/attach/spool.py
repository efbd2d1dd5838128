"""The spool of one host: event lines with a checksum each, in segments, synced before the write counts.

```
SPOOL/HOST/RUN-a1-PID-0.jsonl     {"crc":"9c2e41aa","event":{...}}
```

One process of a host writes it, and it only appends, so the folder may lie on shared storage. A kill can cut the last
line of a segment; that line's checksum does not fit, the reader says so, and nothing else is lost.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

from lastgood.ledger.event import Event, encode_event

SEGMENT_BYTES_MAX = 8 << 20
SUFFIX = ".jsonl"
_HEAD = b'{"crc":"'
_MIDDLE = b'","event":'


def frame(event: Event) -> bytes:
    """One line: the checksum is over the exact bytes of the event."""
    data = encode_event(event)
    return b"%s%08x%s%s}\n" % (_HEAD, zlib.crc32(data), _MIDDLE, data)


class SpoolEvents:
    """Appends events; takes the place of a ledger writer in a recorder."""

    def __init__(self, folder: Path, *, name: str) -> None:
        """Make the folder (only its owner may read it); the first segment is made with the first event."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._number = 0
        self._descriptor = -1
        self._bytes = 0
        self.lost_count = 0
        """Events that a full or failing disk did not take."""

    def submit(self, event: Event) -> None:
        """Write one event and sync it. A disk that fails costs the event, is said once, and stops nobody's training."""
        line = frame(event)
        try:
            if self._descriptor < 0 or self._bytes + len(line) > SEGMENT_BYTES_MAX:
                self._open()
            written = os.write(self._descriptor, line)
            os.fdatasync(self._descriptor)
            self._bytes += written
            if written != len(line):
                self._close_segment()  # the next event begins a segment of its own, behind no half line
                self._lose("the disk is full")
        except OSError as error:
            self._lose(error.strerror or str(error))

    def close(self) -> None:
        """Close the segment."""
        self._close_segment()

    def _open(self) -> None:
        self._close_segment()
        path = self._folder / f"{self._name}-{self._number}{SUFFIX}"
        self._number += 1
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._bytes = 0

    def _close_segment(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lose(self, why: str) -> None:
        self.lost_count += 1
        if self.lost_count == 1:
            sys.stderr.write(f"lastgood: the spool {self._folder} cannot be written: {why}\n")


def attempts_of(folder: Path, run: str) -> int:
    """The highest attempt of a run that a host's spool holds; 0 when it holds none."""
    found = 0
    for path in folder.glob(f"{run}-a*{SUFFIX}"):
        number = path.name.removeprefix(f"{run}-a").partition("-")[0]
        found = max(found, int(number) if number.isdigit() else 0)
    return found
