"""An append-only file of framed records: what in-rank code writes instead of the database.

A rank may be killed at any instruction and its spool may lie on shared storage, so the file asks for nothing but
append. Each frame carries a mark, its length and a checksum, and is written with one call. What a kill leaves
half written is reported by the reader with its byte range, never skipped silently and never repaired; frames after
the damage are found again by their mark.

Frame: `LGF1`, length (uint32, little endian), CRC-32 of the payload (uint32), payload.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from lastgood.base.canonical import canonical_bytes, with_hex_floats
from lastgood.base.errors import BadInput, LedgerError

MARK = b"LGF1"
_HEAD = struct.Struct("<4sII")
PAYLOAD_BYTES_MAX = 16 * 2**20
"""A longer frame is damage: nobody writes such a record."""


class SpoolWriter:
    """Appends frames to one file of one process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file for appending, mode 0600, making it when it is not there."""
        self.path = os.fspath(path)
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerError(
                "the spool cannot be opened", where=self.path, found=error.strerror
            ) from error

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self.close()

    def append(self, payload: bytes | Mapping[str, object], *, is_synced: bool = False) -> None:
        """Adds one frame. It survives the death of this process; that of the machine only when `is_synced`."""
        if not isinstance(payload, bytes):
            payload = canonical_bytes(with_hex_floats(payload))
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise BadInput(
                "a record is too long for a spool",
                where=self.path,
                found=f"{len(payload)} bytes",
                needs=f"at most {PAYLOAD_BYTES_MAX}",
            )
        frame = _HEAD.pack(MARK, len(payload), zlib.crc32(payload)) + payload
        try:
            written = os.write(self._descriptor, frame)
            if is_synced:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise LedgerError(
                "the spool cannot be written", where=self.path, found=error.strerror
            ) from error
        if written != len(frame):
            raise LedgerError(
                "the spool's disk is full",
                where=self.path,
                found=f"{written} of {len(frame)} bytes written",
            )

    def close(self) -> None:
        """Closes the file. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of a spool that are no whole frame."""

    start: int
    end: int
    is_tail: bool
    """True when nothing follows: a frame still being written, or cut by a kill."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRead:
    """What a spool holds from an offset on."""

    payloads: tuple[bytes, ...]
    next_offset: int
    """Where to read on: behind the last whole frame, so that a tail that gets completed is read then."""
    damages: tuple[Damage, ...]


def read_spool(path: str | os.PathLike[str], *, offset: int = 0) -> SpoolRead:
    """Every whole frame from `offset` on, and the byte ranges between them that are none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise LedgerError(
            "the spool cannot be read", where=os.fspath(path), found=error.strerror
        ) from error
    payloads: list[bytes] = []
    damages: list[Damage] = []
    at = whole = 0
    while at < len(data):
        payload, reason = _frame(data, at)
        if payload is not None:
            payloads.append(payload)
            at = whole = at + _HEAD.size + len(payload)
            continue
        start, at = at, _next_frame(data, at + 1)
        is_tail = at == len(data)
        damages.append(
            Damage(start=offset + start, end=offset + at, is_tail=is_tail, reason=reason)
        )
    return SpoolRead(payloads=tuple(payloads), next_offset=offset + whole, damages=tuple(damages))


def _frame(data: bytes, at: int) -> tuple[bytes | None, str]:
    """The payload of the frame that begins here, or why there is none."""
    if len(data) - at < _HEAD.size:
        return None, "a frame's head is cut"
    mark, length, checksum = _HEAD.unpack_from(data, at)
    if mark != MARK:
        return None, "no frame begins here"
    if length > PAYLOAD_BYTES_MAX:
        return None, f"a frame claims {length} bytes"
    payload = data[at + _HEAD.size : at + _HEAD.size + length]
    if len(payload) < length:
        return None, f"a frame is cut: {len(payload)} of {length} bytes"
    if zlib.crc32(payload) != checksum:
        return None, "a frame's checksum does not fit"
    return payload, ""


def _next_frame(data: bytes, at: int) -> int:
    """Where the next whole frame begins, or the end of the data."""
    while (at := data.find(MARK, at)) >= 0:
        if _frame(data, at)[0] is not None:
            return at
        at += 1
    return len(data)
