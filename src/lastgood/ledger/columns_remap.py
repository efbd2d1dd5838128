"""Another reading of the same codes: class, cause, symptom and role of a table's rows through another mapping table.

Nothing is written. The ledger keeps what the importer said with the table of its day, and a report can be made with
either. A code is looked up once, however many rows carry it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from lastgood.contract.taxonomy import Role
from lastgood.ledger.table import Coded, EventTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AXES = ("class_", "cause", "cause_status", "symptom", "role")
_UNKNOWN: dict[str, str | None] = {"cause": "unknown", "cause_status": "unknown"}
"""What is said of a code that the table does not know: no class, and a cause that counts as unknown."""


class MappingTable(Protocol):
    """What a mapping table of the importers offers."""

    @property
    def id(self) -> str:
        """Name, version and hash: `xid/1@sha256:...`."""

    @property
    def name(self) -> str:
        """The part before the slash."""

    def row(self, code: str) -> Any:
        """What one code means (`class_`, `cause`, `cause_status`, `symptom`, `role`), or None."""


def remap_table(table: EventTable, mapping: MappingTable) -> EventTable:
    """The events as they read through this table; those that were not made through one of its name stay as they are."""
    import numpy as np

    made = [name for name in table.mapping.names if name.startswith(f"{mapping.name}/")]
    rows = np.flatnonzero(table.mapping.is_one_of(made) & (table.code.codes >= 0))
    if not len(rows):
        return table
    meanings = [_meaning(mapping, code) for code in table.code.names]
    codes = table.code.codes[rows]
    columns: dict[str, Any] = {
        axis: _read(getattr(table, axis), axis, rows, codes, meanings) for axis in AXES
    }
    lone = rows[table.is_lone[rows]]
    columns["role"] = _put(columns["role"], lone, str(Role.UNKNOWN))
    columns["mapping"] = _put(table.mapping, rows, mapping.id)
    return replace(table, **columns)


def _meaning(mapping: MappingTable, code: str) -> dict[str, str | None]:
    row = mapping.row(code)
    return dict(_UNKNOWN) if row is None else {axis: getattr(row, axis) for axis in AXES}


def _read(
    column: Coded,
    axis: str,
    rows: NDArray[np.int64],
    codes: NDArray[np.int32],
    meanings: list[dict[str, Any]],
) -> Coded:
    import numpy as np

    known = {name: code for code, name in enumerate(column.names)}
    words = [meaning.get(axis) for meaning in meanings]
    of_code = [-1 if word is None else known.setdefault(word, len(known)) for word in words]
    changed = column.codes.copy()
    changed[rows] = np.array(of_code, np.int32)[codes]
    return Coded(changed, tuple(known))


def _put(column: Coded, rows: NDArray[np.int64], word: str) -> Coded:
    """The column with one word in some rows."""
    names = column.names if word in column.names else (*column.names, word)
    codes = column.codes.copy()
    codes[rows] = names.index(word)
    return Coded(codes, names)
