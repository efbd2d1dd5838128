"""Reads a pickle that holds plain containers and nothing else, without ever running what it says.

A pickle is a program: loading one from a stranger may call any function of this process, and even a reader that
refuses classes can be made to allocate without bound or to overrun the stack of the interpreter. This reader is a
small machine of its own for the opcodes that make numbers, texts, lists, tuples and dicts. Everything else (a class,
a call, a persistent id, an extension, an out-of-band buffer) ends the reading with its name and place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BYTES_MAX = 64 << 20
"""Larger dumps are refused: every value lives in memory at once."""
OPCODES_MAX = 6_000_000
"""An opcode of one byte can make an object of sixty; a dump of 20,000 calls has about three million."""

_MARK = object()
"""Where a container begins on the stack."""


class Refused(ValueError):
    """The pickle holds more than plain data, or is broken."""


def read_plain_pickle(data: bytes) -> Any:
    """The containers that these bytes describe.

    Memory and time are bounded by the length of the input and the number of opcodes; a value that the
    pickle names twice is one object, so a small file cannot unfold into a large one.

    Raises:
        Refused: An opcode outside the list, a key that is no text or number, or bytes that end too early.
    """
    if len(data) > BYTES_MAX:
        raise Refused(f"{len(data)} bytes, at most {BYTES_MAX} are read")
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise Refused(f"broken at byte {machine.at}: {error}") from error


@dataclass(slots=True)
class _Machine:
    data: bytes
    at: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Executes opcodes until STOP. Every one moves on by at least a byte."""
        data, operations = self.data, _OPERATIONS
        for _ in range(OPCODES_MAX):
            if self.at >= len(data):
                raise Refused("the pickle ends before its stop")
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                return self.pop()
            operation = operations.get(code)
            if operation is None:
                name = _FORBIDDEN.get(code, "an unknown opcode")
                raise Refused(f"{name} (0x{code:02x}) at byte {self.at - 1}: plain data only")
            operation(self)
        raise Refused(f"more than {OPCODES_MAX} opcodes")

    def take(self, count: int) -> bytes:
        """The next bytes; a length that reaches past the end is an error before anything is allocated."""
        if count < 0 or self.at + count > len(self.data):
            raise Refused(f"a length of {count} at byte {self.at} reaches past the end")
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, layout: str) -> int:
        """The next number, little endian."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))[0]

    def pop(self) -> Any:
        """The top of the stack, which must be a value."""
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused(f"nothing on the stack at byte {self.at}")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Everything above the last mark, which goes with it."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise Refused(f"no mark on the stack at byte {self.at}")

    def top(self, kind: type) -> Any:
        """The container on top of the stack."""
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise Refused(f"no {kind.__name__} on the stack at byte {self.at}")
        return self.stack[-1]

    def keep(self, place: int) -> None:
        """Remembers the top of the stack. Places are kept in a dict: a huge number costs no more than a small one."""
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused(f"nothing to remember at byte {self.at}")
        self.memo[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        """Puts a remembered value onto the stack."""
        if place not in self.memo:
            raise Refused(f"nothing remembered as {place} at byte {self.at}")
        self.stack.append(self.memo[place])

    def tuple_of(self, count: int) -> None:
        """The top values become a tuple."""
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def add_pairs(self, items: list[Any]) -> None:
        """Keys and values in turn go into the dict on top.

        Keys are texts and numbers only: a tuple nested a million deep would overrun the stack when it is hashed.
        """
        target = self.top(dict)
        if len(items) % 2:
            raise Refused(f"a key without a value at byte {self.at}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float | bytes | None):
                raise Refused(f"a {type(key).__name__} as a key at byte {self.at}")
            target[key] = value

    def text(self, count: int) -> None:
        """A text of so many bytes; lone surrogates stay readable as replacement marks."""
        self.stack.append(self.take(count).decode("utf-8", "replace"))

    def long(self, count: int) -> None:
        """An integer of so many bytes. Longer than 16 means nothing here and is slow to print."""
        if count > 16:
            raise Refused(f"an integer of {count} bytes at byte {self.at}")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make(m))


def _append_one(m: _Machine) -> None:
    item = m.pop()
    m.top(list).append(item)


def _append_many(m: _Machine) -> None:
    items = m.pop_to_mark()
    m.top(list).extend(items)


def _set_item(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    m.add_pairs([key, value])


def _set_items(m: _Machine) -> None:
    items = m.pop_to_mark()
    m.add_pairs(items)


def _dict(m: _Machine) -> None:
    items = m.pop_to_mark()
    m.stack.append({})
    m.add_pairs(items)


_STOP = 0x2E
_OPERATIONS: dict[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME: only a hint how much to read at once
    ord("("): _push(lambda _m: _MARK),
    ord("N"): _push(lambda _m: None),
    0x88: _push(lambda _m: True),
    0x89: _push(lambda _m: False),
    ord("K"): _push(lambda m: m.number("B")),
    ord("M"): _push(lambda m: m.number("H")),
    ord("J"): _push(lambda m: m.number("i")),
    0x8A: lambda m: m.long(m.number("B")),
    0x8B: lambda m: m.long(m.number("i")),
    ord("G"): _push(lambda m: struct.unpack(">d", m.take(8))[0]),
    ord("X"): lambda m: m.text(m.number("I")),
    0x8C: lambda m: m.text(m.number("B")),
    0x8D: lambda m: m.text(m.number("Q")),
    ord("B"): _push(lambda m: m.take(m.number("I"))),
    ord("C"): _push(lambda m: m.take(m.number("B"))),
    ord("]"): _push(lambda _m: []),
    ord("l"): _push(lambda m: m.pop_to_mark()),
    ord("a"): _append_one,
    ord("e"): _append_many,
    ord("}"): _push(lambda _m: {}),
    ord("d"): _dict,
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord(")"): _push(lambda _m: ()),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("t"): _push(lambda m: tuple(m.pop_to_mark())),
    ord("q"): lambda m: m.keep(m.number("B")),
    ord("r"): lambda m: m.keep(m.number("I")),
    0x94: lambda m: m.keep(len(m.memo)),
    ord("h"): lambda m: m.recall(m.number("B")),
    ord("j"): lambda m: m.recall(m.number("I")),
    ord("0"): lambda m: m.pop(),
    ord("1"): lambda m: m.pop_to_mark(),
}
"""What each opcode that is allowed does."""

_FORBIDDEN = {
    ord("c"): "GLOBAL", 0x93: "STACK_GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST",
    ord("o"): "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", ord("P"): "PERSID", ord("Q"): "BINPERSID",
    0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip
"""Opcodes that run code or reach outside, by name, so that a refusal says what was found."""
