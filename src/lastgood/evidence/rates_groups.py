"""Which incidents stand together in a table: by class, by cause (branch and leaf), by fault domain, by label, by host.

A cause or a label is a path, and both the branch and its leaves are counted, because a fleet can be steady as a whole
while one part rises and another falls. The groups of one column are found in one pass, however many incidents there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lastgood.ledger.table import Coded, IncidentTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BY: Final = ("class", "cause", "domain", "label", "host")
GROUPS_MAX: Final = 40
"""Rows of one table; what is left out is said, never silent."""
UNKNOWN: Final = "unknown"
DOMAIN_KINDS: Final = ("device", "host", "rack", "switch", "rank")
"""Smallest first: an incident on one device is counted as a device's, though its host is known too."""
SHARED_KINDS: Final = ("rack", "switch")


@dataclass(frozen=True, slots=True)
class Group:
    """Some incidents under one name; `depth` 1 stands below the branch before it."""

    name: str
    rows: NDArray[np.int64]
    depth: int = 0

    @property
    def count(self) -> int:
        """How many incidents."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The groups of one table, most frequent first within their branch."""

    by: str
    title: str
    groups: tuple[Group, ...]
    left_out: int = 0
    """Groups that the table has no room for."""

    @property
    def noun(self) -> str:
        """The head of the column that names the groups."""
        return self.title.removeprefix("By ").capitalize()


def group_incidents(incidents: IncidentTable, by: str) -> Grouping:
    """The groups of these incidents by one of `BY`."""
    import numpy as np

    make = {
        "class": lambda: _flat(incidents.class_),
        "cause": lambda: _branches(incidents.cause, "."),
        "label": lambda: _branches(incidents.label, "/"),
        "host": lambda: _flat(incidents.host),
        "domain": lambda: _by_domain(incidents),
    }[by]
    groups = [
        Group(g.name, np.sort(g.rows).astype(np.int64), g.depth) for g in make()
    ]  # sorted rows keep the order of time
    return Grouping(
        by=by,
        title=f"By {'fault domain' if by == 'domain' else by}",
        groups=tuple(groups[:GROUPS_MAX]),
        left_out=max(0, len(groups) - GROUPS_MAX),
    )


def group_names(incidents: IncidentTable) -> list[str]:
    """The ways to group that say anything here: their column is known, and domains are of more than one kind."""
    columns = {
        "class": incidents.class_,
        "cause": incidents.cause,
        "label": incidents.label,
    }
    names = [by for by, column in columns.items() if (column.codes >= 0).any()]
    if len(list(_by_domain(incidents))) > 1:
        names.insert(2, "domain")
    return names


def _flat(column: Coded) -> Iterator[Group]:
    yield from (Group(name, rows) for name, rows in _by_word(column))


def _branches(column: Coded, separator: str) -> Iterator[Group]:
    """Each branch with its leaves below it, unless the branch is its only leaf. A leaf has at most two parts."""
    import numpy as np

    tree: dict[str, dict[str, list[np.ndarray]]] = {}
    for name, rows in _by_word(column):
        parts = name.split(separator)
        leaf = separator.join(parts[:2])
        tree.setdefault(parts[0], {}).setdefault(leaf, []).append(rows)
    sized = []
    for branch, leaves in tree.items():
        joined = [(leaf, np.concatenate(parts)) for leaf, parts in leaves.items()]
        joined.sort(key=lambda pair: (-len(pair[1]), pair[0]))
        sized.append((branch, joined, sum(len(rows) for _, rows in joined)))
    for branch, leaves, _ in sorted(sized, key=lambda item: (-item[2], item[0])):
        yield Group(branch, np.concatenate([rows for _, rows in leaves]))
        if [leaf for leaf, _ in leaves] != [branch]:
            yield from (Group(leaf, rows, 1) for leaf, rows in leaves)


def _by_domain(incidents: IncidentTable) -> Iterator[Group]:
    """By the smallest domain that an incident names, then each rack and switch that failed more than once."""
    import numpy as np

    left = np.ones(len(incidents), dtype=bool)
    for kind in DOMAIN_KINDS:
        named = getattr(incidents, kind).codes >= 0
        rows = np.flatnonzero(left & named)
        left &= ~named
        if len(rows):
            yield Group(kind, rows)
    if left.any():
        yield Group(UNKNOWN, np.flatnonzero(left))
    for kind in SHARED_KINDS:
        for name, rows in _by_word(getattr(incidents, kind)):
            if name != UNKNOWN and len(rows) > 1:
                yield Group(f"{kind} {name}", rows, 1)


def _by_word(column: Coded) -> list[tuple[str, np.ndarray]]:
    """Rows by their word, most frequent first; rows without a word are `unknown`, like those that say it."""
    import numpy as np

    order = np.argsort(column.codes, kind="stable")
    codes, starts = np.unique(column.codes[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(starts) else []
    found: dict[str, np.ndarray] = {}
    for code, rows in zip(codes.tolist(), parts, strict=True):
        name = UNKNOWN if code < 0 else column.names[code]
        found[name] = np.concatenate((found[name], rows)) if name in found else rows
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
