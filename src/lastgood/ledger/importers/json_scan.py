"""JSON item by item: brackets are counted here, and only one item at a time is decoded.

A dump of a scheduler is one array of hundreds of megabytes, and one bad item must not cost the others. So this looks
for the ends of values by their brackets and quotes alone, and hands each value to the real decoder. It never
descends by recursion, and holds one item and one block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

ITEM_BYTES_MAX = 16 << 20
"""A larger item is reported and left out: memory has to have a bound."""


class Broken(NamedTuple):
    """Why an item could not be read."""

    reason: str


class Item(NamedTuple):
    """One JSON value; `number` counts items (or lines, where each value has its line) from 1."""

    number: int
    raw: bytes
    value: Any


_BLANK = re.compile(rb"[ \t\r\n\x00\x1e]*+")
"""Also NUL (a hole in a file that was cut) and the record separator of JSON text sequences."""
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[\[\]{}]', re.DOTALL)
"""A whole string (group 1 is empty when it has no end yet), or a bracket."""
_SCALAR_END = re.compile(rb"[,\]}\s]")
_RESYNC = re.compile(rb"[{\[\],]")
_OPEN = b"{["
_NOT_A_NUMBER = re.compile(rb"\b(?:NaN|Infinity)\b")

_decode = msgspec.json.Decoder().decode


class _Cut(Exception):
    """The data end inside a value."""


class _TooLong(Exception):
    """A value is longer than an item may be."""


def scan_items(blocks: Iterator[bytes], keys: Sequence[str] = ()) -> Iterator[Item]:
    """The items of these bytes; see `source.json_items`."""
    text = _Text(blocks)
    if _has_one_value_a_line(text):
        yield from _by_line(text, keys)
        return
    for number, (raw, value) in enumerate(_values(text, keys), 1):
        yield Item(number, raw, value)


def decode_item(raw: bytes) -> Any:
    """The value that these bytes hold, or `Broken`."""
    try:
        return _decode(raw)
    except RecursionError:
        return Broken("JSON is nested too deeply")
    except (msgspec.DecodeError, ValueError) as error:
        if _NOT_A_NUMBER.search(raw):  # Python writes these, though JSON does not have them
            try:
                value = json.loads(raw)
                msgspec.json.encode(
                    value
                )  # half of a surrogate pair, which only Python reads, has no bytes
            except (ValueError, RecursionError):
                pass
            else:
                return value
        return Broken(f"not JSON: {_plain_reason(error)}")


def part_of(item: Item, part: Any, value: Any) -> Item:
    """A part of an item as a row of its own: its bytes are those of `part`, and a parser is given `value`.

    So a broken part costs itself and not its neighbours.
    """
    return Item(item.number, msgspec.json.encode(part), value)


def _plain_reason(error: Exception) -> str:
    """The decoder's words without the place, so that equal mistakes are counted together."""
    return re.sub(r"\s*\(byte \d+\)", "", str(error)).removeprefix("JSON is malformed: ")


class _Text:
    """The bytes with a reading place; what lies before the place is dropped when more is read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.data = b""
        self.at = 0
        self.is_over = False
        self._dropped = 0

    @property
    def offset(self) -> int:
        """How many bytes lie before the reading place in the whole of the data."""
        return self._dropped + self.at

    def more(self) -> bool:
        """Reads another block (as much again as is held, so that long values stay linear); False at the end."""
        parts, size = [self.data[self.at :]], 0
        wanted = max(1, len(self.data) - self.at)
        while size < wanted:
            block = next(self._blocks, b"")
            if not block:
                self.is_over = True
                break
            parts.append(block)
            size += len(block)
        self._dropped += self.at
        self.data, self.at = b"".join(parts), 0
        return size > 0

    def peek(self) -> bytes:
        """The next byte that is not blank, without taking it; empty at the end."""
        while True:
            match = _BLANK.match(self.data, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""

    def take_value(self) -> bytes:
        """The bytes of the value that starts here, and moves behind it."""
        end = self._value_end()
        raw = self.data[self.at : end]
        self.at = end
        return raw

    def _value_end(self) -> int:
        first = self.data[self.at : self.at + 1]
        if first and first in _OPEN:
            return self._bracket_end()
        if first == b'"':
            return self._string_end()
        while True:
            match = _SCALAR_END.search(self.data, self.at + 1)
            if match is not None:
                return match.start()
            if len(self.data) - self.at > ITEM_BYTES_MAX:
                raise _TooLong
            if not self.more():
                return len(self.data)

    def _string_end(self) -> int:
        while True:
            match = _MARK.match(self.data, self.at)
            if match is not None and match[1]:
                return match.end()
            if len(self.data) - self.at > ITEM_BYTES_MAX:
                raise _TooLong
            if not self.more():
                raise _Cut

    def _bracket_end(self) -> int:
        depth, seen = 0, 0  # `seen` counts from the start of the value
        while True:
            for match in _MARK.finditer(self.data, self.at + seen):
                mark = match[0][:1]
                if mark == b'"':
                    if not match[1]:
                        seen = match.start() - self.at
                        break
                elif mark in _OPEN:
                    depth += 1
                else:
                    depth -= 1
                    if depth == 0:
                        return match.end()
                seen = match.end() - self.at
            if len(self.data) - self.at > ITEM_BYTES_MAX:
                raise _TooLong
            if not self.more():
                raise _Cut

    def skip_line(self) -> None:
        """Moves behind the next line end."""
        while True:
            end = self.data.find(b"\n", self.at)
            if end >= 0:
                self.at = end + 1
                return
            self.at = len(self.data)
            if not self.more():
                return

    def resync(self) -> None:
        """Moves to the next place where a value may begin or an array end."""
        self.at += 1
        while True:
            match = _RESYNC.search(self.data, self.at)
            if match is not None:
                self.at = match.start()
                return
            self.at = len(self.data)
            if not self.more():
                return


# --- one value a line -------------------------------------------------------------------------------


def _has_one_value_a_line(text: _Text) -> bool:
    """True when the first line that is not blank is a whole object, or is broken and the second one is whole."""
    if text.peek() != b"{":
        return False
    lines = text.data[text.at : text.at + ITEM_BYTES_MAX].split(b"\n", 2)
    return any(
        line.lstrip().startswith(b"{")
        and isinstance(decode_item(line.strip(b"\x00\x1e \t\r")), dict)
        for line in lines[:2]
    )


def _by_line(text: _Text, keys: Sequence[str]) -> Iterator[Item]:
    number = 0
    while True:
        end = text.data.find(b"\n", text.at)
        if end < 0:
            if len(text.data) - text.at > ITEM_BYTES_MAX:
                number += 1
                yield Item(number, text.data[text.at : text.at + 200], _TOO_LONG)
                text.skip_line()
                continue
            if text.more():
                continue
            end = len(text.data)
        raw = text.data[text.at : end].strip(b"\x00\x1e \t\r")
        is_last = end >= len(text.data) and text.is_over
        text.at = min(end + 1, len(text.data))
        number += 1
        if raw:
            yield from _items_of_line(number, raw, keys)
        if is_last:
            return


_TOO_LONG = Broken(f"an item is longer than {ITEM_BYTES_MAX:,} bytes")
_ENDS_INSIDE = Broken("the file ends inside an item")


def _items_of_line(number: int, raw: bytes, keys: Sequence[str]) -> Iterator[Item]:
    value = decode_item(raw)
    inner = value
    for key in keys:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if keys and isinstance(inner, list):
        for part in inner:
            yield Item(number, msgspec.json.encode(part), part)
    else:
        yield Item(number, raw, value)


# --- values one after another, arrays, arrays under keys --------------------------------------------


def _values(text: _Text, keys: Sequence[str]) -> Iterator[tuple[bytes, Any]]:
    while first := text.peek():
        if first == b"[":
            text.at += 1
            yield from _elements(text)
        elif first == b"{" and keys:
            yield from _under_keys(text, keys)
        elif first == b"{":
            yield from _one(text)
        elif first == b",":  # between values that were cut out of an array
            text.at += 1
        else:
            start = text.data[text.at : text.at + 80]
            yield start, Broken("not JSON: text outside of a value")
            text.resync()
            if text.peek() in {b"]", b"}"}:
                text.at += 1


def _one(text: _Text) -> Iterator[tuple[bytes, Any]]:
    try:
        raw = text.take_value()
    except _Cut:
        yield text.data[text.at : text.at + 200], _ENDS_INSIDE
        text.at = len(text.data)
    except _TooLong:
        yield text.data[text.at : text.at + 200], _TOO_LONG
        _drop_long(text)
    else:
        yield raw, decode_item(raw)


def _drop_long(text: _Text) -> None:
    """Gives up the value that is too long: goes on at the next line that begins a value."""
    text.at = len(text.data)
    text.skip_line()


def _elements(text: _Text) -> Iterator[tuple[bytes, Any]]:
    """The elements of an array whose bracket has been taken."""
    while True:
        first = text.peek()
        if not first:
            yield b"", Broken("the file ends inside the array")
            return
        if first == b"]":
            text.at += 1
            return
        if first == b",":
            text.at += 1
        elif first in {b"}", b":"}:
            yield (
                text.data[text.at : text.at + 80],
                Broken("not JSON: a bracket that closes nothing"),
            )
            text.at += 1
        else:
            before = text.offset
            yield from _one(text)
            if text.offset == before and text.peek():  # nothing was taken: never stand still
                text.at += 1


def _under_keys(text: _Text, keys: Sequence[str]) -> Iterator[tuple[bytes, Any]]:
    """The elements of the array under the keys; the whole object when it does not have them."""
    whole = _Whole(text)
    try:
        found = _find_array(text, keys, whole)
    except (_Cut, _TooLong):
        yield text.data[text.at : text.at + 200], _ENDS_INSIDE
        text.at = len(text.data)
        return
    if not found:
        raw = whole.joined()
        yield (
            (raw[:200], _TOO_LONG) if raw and len(raw) > ITEM_BYTES_MAX else (raw, decode_item(raw))
        )
        return
    yield from _elements(text)
    _close_objects(text, len(keys))


class _Whole:
    """The bytes that were passed since the start of an object, up to the bound of an item."""

    def __init__(self, text: _Text) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._text = text

    def add(self, part: bytes) -> None:
        """Keeps a part."""
        if self._size <= ITEM_BYTES_MAX:
            self._parts.append(part)
        self._size += len(part)

    def joined(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


def _find_array(text: _Text, keys: Sequence[str], whole: _Whole) -> bool:
    """Moves behind the bracket of the array under the keys, or behind the whole object if there is none."""
    depth = -1  # index of the key that is looked for in the innermost open object
    while True:
        first = text.peek()
        if not first:
            raise _Cut
        if first == b'"':
            name = text.take_value()
            whole.add(name)
            if text.peek() != b":":
                continue
            whole.add(b":")
            text.at += 1
            start = text.peek()
            if depth >= 0 and _name(name) == keys[depth]:
                if depth == len(keys) - 1 and start == b"[":
                    text.at += 1
                    return True
                if depth < len(keys) - 1 and start == b"{":
                    continue  # the next round opens it
            if start and start not in b",}":
                whole.add(text.take_value())
            continue
        whole.add(first)
        text.at += 1
        if first == b"{":
            depth = min(depth + 1, len(keys) - 1)
        elif first == b"}":
            depth -= 1
            if depth < 0:
                return False


def _name(raw: bytes) -> str | None:
    value = decode_item(raw)
    return value if isinstance(value, str) else None


def _close_objects(text: _Text, count: int) -> None:
    """Moves behind the objects that hold the array, over whatever else is in them."""
    while count and (first := text.peek()):
        if first == b"}":
            count -= 1
            text.at += 1
        elif first in b'"[{':
            try:
                text.take_value()
            except (_Cut, _TooLong):
                text.at = len(text.data)
        else:
            text.at += 1
