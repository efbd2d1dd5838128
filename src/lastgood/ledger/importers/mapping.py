"""Tables from a code (an Xid, a scheduler's state) to what it means here: data files with a version and a hash.

An event that was made through a table names it (`body.mapping`) beside the code as it was read (`body.code`). So a
better table never edits a ledger: `remap` reads the same events through another table and gives a new view, and the
old one can be had again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import AXES, Role
from lastgood.ledger.event import Event

ANY = "*"
"""The row for every code that has none of its own."""
_FOLDER = "lastgood.ledger.importers"
_AXIS_OF = {"class_": "class", "cause": "cause", "cause_status": "cause_status", "symptom": "symptom", "role": "role"}  # fmt: skip


class Row(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What one code means. Null: the table says nothing about it."""

    class_: str | None = msgspec.field(name="class", default=None)
    """How the failure shows itself; null for what is no failure."""
    cause: str | None = None
    cause_status: str | None = None
    symptom: str | None = None
    role: str | None = None
    action: str | None = None
    """What to do first, as its source advises."""
    meaning: str | None = None
    """In our own words."""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mapping: str
    version: str
    source: str
    """Where the facts come from."""
    rows: dict[str, Row]
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """One version of one table."""

    id: str
    """`xid/1@sha256:...`, the hash of the file's bytes."""
    name: str
    version: str
    source: str
    rows: dict[str, Row]

    def row(self, code: str) -> Row | None:
        """The row of a code. `149/nonfatal` falls back to `149`, then to `*/nonfatal`, then to `*`; else None."""
        found = self.rows.get(code)
        if found is not None:
            return found
        base, slash, rest = code.partition("/")
        if slash:
            found = self.rows.get(base) or self.rows.get(f"{ANY}/{rest}")
        return found or self.rows.get(ANY)

    def is_listed(self, code: str) -> bool:
        """True when the code, or the code without what follows its slash, has a row of its own."""
        return code in self.rows or code.partition("/")[0] in self.rows


def load_mapping(name: str, override: Path | None = None) -> Mapping:
    """The newest shipped table of this name, or the one in a file of the user's.

    Raises:
        BadInput: No such table, or the file is none.
    """
    return (
        _shipped(name)
        if override is None
        else _parse(_read(override), where=str(override), name=name)
    )


@functools.cache
def _shipped(name: str) -> Mapping:
    folder = resources.files(_FOLDER).joinpath("mappings")
    versions = sorted(
        (int(stem.rpartition("-")[2]), stem)
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
        and (stem := entry.name.removesuffix(".json")).rpartition("-")[0] == name
        and stem.rpartition("-")[2].isdigit()
    )
    if not versions:
        raise BadInput(
            "no such mapping table",
            where="--mapping",
            found=repr(name),
            needs=" | ".join(mapping_names()),
        )
    stem = versions[-1][1]
    return _parse(folder.joinpath(f"{stem}.json").read_bytes(), where=f"{stem}.json", name=name)


def mapping_names() -> list[str]:
    """The names of the shipped tables."""
    folder = resources.files(_FOLDER).joinpath("mappings")
    return sorted({e.name.rpartition("-")[0] for e in folder.iterdir() if e.name.endswith(".json")})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(
            "the mapping table cannot be read", where=str(path), found=error.strerror
        ) from error


def _parse(data: bytes, *, where: str, name: str) -> Mapping:
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput("not a mapping table", where=where, found=str(error)) from error
    if file.mapping != name:
        raise BadInput(
            "a mapping table of another name",
            where=where,
            found=repr(file.mapping),
            needs=repr(name),
        )
    for code, row in file.rows.items():
        for field, axis in _AXIS_OF.items():
            word = getattr(row, field)
            if word is not None and word not in _WORDS[axis]:
                raise BadInput(
                    f"taxonomy v1 has no such {axis}",
                    where=f"{where}: rows.{code}",
                    found=repr(word),
                    needs=" | ".join(sorted(_WORDS[axis])),
                )
    identity = f"{file.mapping}/{file.version}@sha256:{sha256(data).hexdigest()}"
    return Mapping(identity, file.mapping, file.version, file.source, file.rows)


_WORDS = {axis: frozenset(str(word) for word in words) for axis, words in AXES.items()}


def mapping_fields(mapping: Mapping, code: str) -> dict[str, Any]:
    """The fields of an event with this code: class, cause, cause status, symptom and role, for `context.event`.

    A code that the table does not know keeps no class, and its cause is *unknown*: it is counted as such.
    """
    row = mapping.row(code)
    if row is None:
        return {"cause": "unknown", "cause_status": "unknown"}
    fields = {field: getattr(row, field) for field in _AXIS_OF}
    return {field: word for field, word in fields.items() if word is not None}


def remap(events: Iterable[Event], mapping: Mapping) -> Iterator[Event]:
    """The events as they read through this table; those that were not made through a table of its name pass as they are.

    Nothing is written: the ledger keeps what it holds. A symptom that stood alone (`body.lone`) stays of unknown role,
    and a line that said again what another had said (`body.restated`) stays context.
    """
    prefix = f"{mapping.name}/"
    for event in events:
        code = event.body.get("code")
        made_by = event.body.get("mapping")
        if (
            not isinstance(code, str)
            or not isinstance(made_by, str)
            or not made_by.startswith(prefix)
        ):
            yield event
            continue
        fields: dict[str, Any] = dict.fromkeys(_AXIS_OF) | mapping_fields(mapping, code)
        if event.body.get("lone") is True:
            fields["role"] = str(Role.UNKNOWN)
        elif event.body.get("restated") is True:
            fields["role"] = str(Role.CONTEXT)
        yield msgspec.structs.replace(event, body={**event.body, "mapping": mapping.id}, **fields)
