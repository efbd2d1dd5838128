"""Which incidents of a table are correlated: two members of one shared domain failed within a window.

The same as `incident` says it, by sorting: within one shared domain, in order of time, a window with two different
members holds two neighbours that differ. So only such neighbours are looked at, and each marks what lies in the
windows around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.ledger.columns_group import BYSTANDERS
from lastgood.ledger.table import DOMAIN_KINDS, EventTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MEMBERS = ("rank", "device", "host", "rack")
"""Kinds that can be members of a larger domain, smallest first."""
_SHARED = ("host", "rack", "switch", "storage", "power", "release", "site")


class _Failed(NamedTuple):
    """Members of shared domains that failed."""

    domain: NDArray[np.int64]
    member: NDArray[np.int64]
    group: NDArray[np.int64]


def mark_correlated(
    table: EventTable,
    *,
    of_row: NDArray[np.int32],
    first: NDArray[np.int64],
    begin_us: NDArray[np.int64],
    is_planned: NDArray[np.bool_],
    window_us: int,
) -> NDArray[np.bool_]:
    """True for each incident in which, within the window, two different members of a shared domain failed.

    `of_row` is the incident of each row, `first` the first row of each incident.
    """
    import numpy as np

    marked = np.zeros(len(begin_us), bool)
    is_failing = (of_row >= 0) & ~table.role.is_one_of(BYSTANDERS)
    is_failing &= ~np.append(is_planned, False)[of_row]  # the last place is that of no incident
    rows = _telling(table, is_failing, of_row, first)
    for failed in _memberships(table, rows, of_row):
        _mark(failed, begin_us, window_us, marked)
    return marked


def _telling(
    table: EventTable,
    is_failing: NDArray[np.bool_],
    of_row: NDArray[np.int32],
    first: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The failing rows without those that name what the first row of their incident names already.

    A burst of a thousand lines about one device is one member that failed. All of them count at the begin of the
    incident, so nothing is lost, and the sort that follows is shorter by the length of the bursts.
    """
    import numpy as np

    rows = np.flatnonzero(is_failing)
    lead = first[of_row[rows]]
    has_more = np.zeros(len(table), bool)
    has_more[table.more_domains.row] = True
    is_told = (rows != lead) & is_failing[lead] & ~has_more[rows] & ~has_more[lead]
    for kind in DOMAIN_KINDS:
        if _is_used(table, kind):
            codes = getattr(table, kind).codes
            is_told &= codes[rows] == codes[lead]
    return rows[~is_told]


def _memberships(
    table: EventTable, rows: NDArray[np.int64], of_row: NDArray[np.int32]
) -> Iterator[_Failed]:
    """For each shared kind, the members of its domains that failed; only where a row names one domain of that kind."""
    import numpy as np

    columns = {
        kind: getattr(table, kind).codes[rows]
        for kind in (*_MEMBERS, *_SHARED)
        if _is_used(table, kind)
    }
    smallest = np.full(len(rows), -1, np.int8)
    member = np.full(len(rows), -1, np.int64)
    for at, kind in reversed(list(enumerate(_MEMBERS))):
        if kind in columns:
            has = columns[kind] >= 0
            smallest[has] = at
            member[has] = columns[kind][has]
    more_at, more_kind, more_code = _more(table, rows)
    further = (
        more_kind == np.array([DOMAIN_KINDS.index(kind) for kind in _MEMBERS])[smallest[more_at]]
    )
    group = of_row[rows].astype(np.int64)
    member = member * len(_MEMBERS) + smallest  # members of different kinds stay different
    for kind in _SHARED:
        if kind not in columns:
            continue
        is_one = (columns[kind] >= 0) & (smallest >= 0)
        if kind in _MEMBERS:
            is_one &= smallest != _MEMBERS.index(kind)
        is_one[more_at[more_kind == DOMAIN_KINDS.index(kind)]] = False
        extra = further & is_one[more_at]
        at = more_at[extra]
        yield _Failed(
            domain=np.concatenate([columns[kind][is_one], columns[kind][at]]).astype(np.int64),
            member=np.concatenate(
                [member[is_one], more_code[extra].astype(np.int64) * len(_MEMBERS) + smallest[at]]
            ),
            group=np.concatenate([group[is_one], group[at]]),
        )


def _is_used(table: EventTable, kind: str) -> bool:
    return len(getattr(table, kind).names) > 0


def _more(
    table: EventTable, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int32]]:
    """The further domains of these rows: place in `rows`, kind, code."""
    import numpy as np

    more = table.more_domains
    at = np.searchsorted(rows, more.row)
    kept = np.flatnonzero(at < len(rows))
    kept = kept[rows[at[kept]] == more.row[kept]]
    return at[kept], more.kind[kept], more.code[kept]


def _mark(
    failed: _Failed, begin_us: NDArray[np.int64], window_us: int, marked: NDArray[np.bool_]
) -> None:
    import numpy as np

    if len(failed.domain) < 2:
        return
    place = _places(failed.domain, begin_us[failed.group], window_us)
    order = np.argsort(place)
    place, member, group = place[order], failed.member[order], failed.group[order]
    edges = np.flatnonzero(member[1:] != member[:-1])  # between a row and the next
    edges = edges[place[edges + 1] - place[edges] <= window_us]
    if not len(edges):
        return
    change = np.zeros(len(place) + 1, np.int64)
    np.add.at(change, np.searchsorted(place, place[edges + 1] - window_us, "left"), 1)
    np.add.at(change, np.searchsorted(place, place[edges] + window_us, "right"), -1)
    marked[group[np.cumsum(change[:-1]) > 0]] = True


def _places(domain: NDArray[np.int64], at_us: NDArray[np.int64], window_us: int) -> NDArray[Any]:
    """One sortable number for domain and time, such that two rows of one window are as near in it as in time.

    Domains lie further apart than the window is long. Where 64 bits do not hold that, Python's integers do.
    """
    import numpy as np

    first_us = int(at_us.min())
    span_us = int(at_us.max()) - first_us + window_us + 1
    if (int(domain.max()) + 1) * span_us < 2**63:
        return domain * span_us + (at_us - first_us)
    big = domain.astype(object) * span_us + (at_us.astype(object) - first_us)
    return np.asarray(big, dtype=object)
