"""A file, or standard input, as rows: lines or JSON items, in constant memory, whatever the bytes are.

Logs come compressed, cut in the middle, in the wrong encoding and with lines of a gigabyte. Nothing here raises for
what the bytes hold: a bad character becomes U+FFFD and marks its line, a long line is cut and counted, a broken
archive ends the file early and says so (`problems`). A row keeps the bytes it came from, because its id is made of
them.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.ledger.importers.json_scan import Broken, Item, scan_items

__all__ = ["Broken", "Item", "Line", "Row", "Source", "json_items"]

BLOCK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
"""A longer line is cut: nothing that a person wrote is a megabyte long, and memory has to have a bound."""
CONTENT_BYTES_MAX = 256 << 20

_PACKED = {
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Line(NamedTuple):
    """One line of a log, without its line end. `number` counts from 1."""

    number: int
    raw: bytes
    text: str
    is_damaged: bool = False
    """True when some bytes were no UTF-8: they stand as U+FFFD in `text`."""


Row = Line | Item
"""What a format's parser is given: both have `number` and `raw`."""


class Source:
    """One input. Use it once: `lines()`, `blocks()`, `content()` or `json_items()` consume it; `head` does not."""

    def __init__(
        self,
        name: str,
        *,
        path: Path | None = None,
        stream: BinaryIO | None = None,
        label: str | None = None,
    ) -> None:
        """Opens nothing yet; give a path, or a stream that is already open (standard input)."""
        self.name = name
        """Without its folder: some formats read a host or a rank out of it."""
        self.label = (label or name).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        """What a person is told: with its folder, when two files of one import have the same name."""
        self.path = path
        self.problems: list[str] = []
        """Why the data ended early, if they did."""
        self.notes: list[str] = []
        self.damaged_line_count = 0
        self.cut_line_count = 0
        self.skipped_line_count = 0
        """Lines that `lines(containing=...)` did not hand out."""
        self.on_block: Callable[[], None] | None = None
        """Called after each block, for a progress bar."""
        self._given = stream
        self._file: BinaryIO | None = None
        self._reader: _Reader | None = None
        self._head: bytes | None = None
        self._read_count = 0

    @property
    def head(self) -> bytes:
        """The first 64 KiB after unpacking, without consuming them."""
        if self._head is None:
            self._head = self._read_head()
        return self._head

    @property
    def mtime_us(self) -> int | None:
        """When the file was last written; None for a stream."""
        try:
            return None if self.path is None else self.path.stat().st_mtime_ns // 1000
        except OSError:
            return None

    @property
    def size(self) -> int | None:
        """Bytes on disk (packed, if it is packed); None for a stream."""
        try:
            return None if self.path is None else self.path.stat().st_size
        except OSError:
            return None

    @property
    def is_pipe(self) -> bool:
        """True for what can be read once only: standard input, a named pipe, a terminal."""
        return self.path is None or not os.path.isfile(self.path)

    @property
    def position(self) -> int:
        """How many bytes on disk have been read, for a progress bar."""
        if self._file is None or self._file.closed:
            return self._read_count
        try:
            return self._file.tell()
        except OSError:
            return self._read_count

    def close(self) -> None:
        """Closes the file, if this object opened it."""
        if self._file is not None and self._file is not self._given:
            self._read_count = self.position
            self._file.close()

    def blocks(self) -> Iterator[bytes]:
        """The data in blocks of about a megabyte: unpacked, UTF-16 turned into UTF-8, without a byte order mark."""
        head = self.head
        if head:
            self._head = b""  # consumed: a second caller must not see it twice
            yield head
        assert self._reader is not None
        while block := self._reader.read(BLOCK_BYTES):
            self._read_count += len(block)
            yield block
            if self.on_block is not None:
                self.on_block()

    def lines(self, *, containing: Sequence[bytes] | None = None) -> Iterator[Line]:
        """The lines, in order; with `containing`, those with one of these byte strings.

        Skipped lines are counted (`skipped_line_count`). The first and the last line of each block always come, so
        that a format can tell which time the log covers without reading all of it.
        """
        number, rest, is_skipping = 0, b"", False
        for block in self.blocks():
            if is_skipping:
                end = block.find(b"\n")
                if end < 0:
                    continue
                block, is_skipping = block[end + 1 :], False
            data = rest + block
            end = data.rfind(b"\n")
            if end < 0:
                rest = data
                if len(rest) > LINE_BYTES_MAX:
                    number += 1
                    yield self._line(number, rest)
                    rest, is_skipping = b"", True
                continue
            rest = data[end + 1 :]
            if containing is None:
                for raw in data[:end].split(b"\n"):
                    number += 1
                    yield self._line(number, raw)
            else:
                yield from self._wanted_lines(data[:end], number, containing)
                number += data.count(b"\n")
        if rest and not is_skipping:
            yield self._line(number + 1, rest)

    def content(self, *, bytes_max: int = CONTENT_BYTES_MAX) -> bytes:
        """All of it at once, for small formats that cannot be read in pieces; no more than `bytes_max`.

        What lies beyond the bound is left out, and `problems` says so.
        """
        parts, total = [], 0
        for block in self.blocks():
            parts.append(block[: bytes_max - total])
            total += len(block)
            if total > bytes_max:
                self.problems.append(f"longer than {bytes_max:,} bytes: the rest is not read")
                break
        return b"".join(parts)

    def _wanted_lines(self, data: bytes, number: int, wanted: Sequence[bytes]) -> Iterator[Line]:
        """The lines of a block that hold a wanted text, its first and its last; `number` lines came before it."""
        line_count = data.count(b"\n") + 1
        if sum(map(data.count, wanted)) * 4 > line_count:
            yield from self._most_lines(data, number, wanted)
            return
        first_end, last_start = data.find(b"\n"), data.rfind(b"\n") + 1
        spans = [(0, len(data) if first_end < 0 else first_end)]
        # Each text is searched for by itself: one pattern of all of them is three times slower.
        next_of = {text: data.find(text, spans[0][1]) for text in wanted}
        while next_of := {text: at for text, at in next_of.items() if at >= 0}:
            hit = min(next_of.values())
            stop = data.find(b"\n", hit)
            stop = len(data) if stop < 0 else stop
            spans.append((data.rfind(b"\n", 0, hit) + 1, stop))
            for text, at in next_of.items():
                if at < stop:
                    next_of[text] = data.find(text, stop)
        if last_start > spans[-1][0]:
            spans.append((last_start, len(data)))
        counted, given = 0, number
        for start, stop in spans:
            given += data.count(b"\n", counted, start)
            counted = start
            yield self._line(given + 1, data[start:stop])
        self.skipped_line_count += data.count(b"\n", counted) + given - number + 1 - len(spans)

    def _most_lines(self, data: bytes, number: int, wanted: Sequence[bytes]) -> Iterator[Line]:
        """The same for a block in which most lines are wanted: then looking at each is quicker than searching."""
        rows = data.split(b"\n")
        last = len(rows) - 1
        for at, raw in enumerate(rows):
            if at in {0, last} or any(text in raw for text in wanted):
                yield self._line(number + at + 1, raw)
            else:
                self.skipped_line_count += 1

    def _line(self, number: int, raw: bytes) -> Line:
        if len(raw) > LINE_BYTES_MAX:
            raw = raw[:LINE_BYTES_MAX]
            self.cut_line_count += 1
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        try:
            return Line(number, raw, raw.decode())
        except UnicodeDecodeError:
            self.damaged_line_count += 1
            return Line(number, raw, raw.decode(errors="replace"), is_damaged=True)

    def _read_head(self) -> bytes:
        self._file = self._open()
        self._reader = _Reader(self._file, self)
        parts, missing = [], HEAD_BYTES
        while missing > 0 and (part := self._reader.read(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _open(self) -> BinaryIO:
        if self._given is not None:
            return self._given
        assert self.path is not None, "a source needs a path or a stream"
        try:
            return self.path.open("rb", buffering=BLOCK_BYTES)
        except (OSError, ValueError) as error:
            raise BadInput(
                "the file cannot be read",
                where=str(self.path or self.name),
                found=getattr(error, "strerror", None) or str(error),
                needs="a file that this user may read",
            ) from error


class _Reader:
    """Reads unpacked UTF-8 bytes; every way in which the bytes can be bad ends in `source.problems`."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self._source = source
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_over = False
        self._stream: BinaryIO | gzip.GzipFile = file
        start = self._read(6)
        if start[:2] == b"\x1f\x8b":
            joined: BinaryIO = _Joined(start, file)  # type: ignore[assignment]
            self._stream = gzip.GzipFile(fileobj=joined)
            start = self._read(3)
        else:
            for magic, (packing, command) in _PACKED.items():
                if start.startswith(magic):
                    raise BadInput(
                        f"the file is packed with {packing}",
                        where=source.name,
                        needs="plain text or gzip",
                        next=f"run: {command} {source.name} | lastgood import FORMAT -",
                    )
        encoding = _BOMS.get(start[:2])
        if encoding is not None:
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            source.notes.append(f"{source.label} is {encoding.upper()}; it was read as such")
            start = start[2:]
        elif start.startswith(codecs.BOM_UTF8):
            start = start[3:]
        self._start = start

    def read(self, size: int) -> bytes:
        """At most about `size` bytes; empty at the end, whatever the reason."""
        while True:
            start, self._start = self._start, b""
            data = start or self._read(size)
            if self._decoder is None:
                return data
            text = self._decoder.decode(data, final=not data)
            if text or not data:
                # A lone surrogate cannot be written as UTF-8.
                return text.encode("utf-8", "replace")

    def _read(self, size: int) -> bytes:
        if self._is_over:
            return b""
        try:
            if isinstance(self._stream, gzip.GzipFile):
                data = self._stream.read1(
                    size
                )  # read() would lose what it has when the archive is cut
            else:
                data = self._stream.read(size)
        except (OSError, EOFError, zlib.error, ValueError) as error:
            self._is_over = True
            what = (
                "the archive is damaged or cut" if not _is_plain(self._stream) else "reading failed"
            )
            self._source.problems.append(f"{what}: {error or type(error).__name__}")
            return b""
        if not data:
            self._is_over = True
        return data or b""


def _is_plain(stream: BinaryIO | gzip.GzipFile) -> bool:
    return not isinstance(stream, gzip.GzipFile)


class _Joined(io.RawIOBase):
    """Bytes that were read to look at them, and then the rest: a pipe cannot be wound back."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start = start
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if not self._start:
            return self._rest.read(size)
        count = len(self._start) if size < 0 else size
        part, self._start = self._start[:count], self._start[count:]
        return part + (self._rest.read() if size < 0 else b"")

    def readable(self) -> bool:
        """True."""
        return True


def json_items(source: Source, *keys: str) -> Iterator[Item]:
    """The items of a JSON file one after another, in constant memory.

    These are the elements of a top-level array; or of the array under `keys` (`("jobs",)`, `("data", "items")`); or
    the top-level values themselves, one a line or simply one after another. An object that does not have `keys` is
    an item itself. A broken item comes as `Item(value=Broken(reason))`, and reading goes on behind it where it can.
    """
    return scan_items(source.blocks(), keys)
