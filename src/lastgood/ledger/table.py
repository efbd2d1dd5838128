"""Events and incidents as columns: what statistics over millions of records read, instead of a million objects.

A column of words is `Coded`: one small integer for each row, and the words once. A time or duration that is not known
is `NO_TIME`; a code that is not known is -1. Null is not zero here either. Columns in which every row says the same
(mostly: nothing) take no memory.

Imports numpy only where something is computed, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_TIME = -(2**63)
"""A time or a duration that is not known: the smallest 64-bit integer, which no record carries."""
DOMAIN_KINDS = ("rank", "device", "host", "rack", "switch", "storage", "power", "release", "site")
INCIDENT_DOMAINS = DOMAIN_KINDS[:-1]
"""Those that an incident has a column for; the site is everywhere."""
CODED_COLUMNS = (
    "kind", "class_", "cause", "cause_status", "symptom", "role", "run", "incident", *DOMAIN_KINDS,
    "label", "code", "mapping", "importer", "outcome", "at_risk",
)  # fmt: skip
TIME_COLUMNS = (
    "observed_us",
    "detect_us",
    "diagnose_us",
    "isolate_us",
    "recover_us",
    "verify_us",
)


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of words: `names[code]` for each row, and -1 where nobody said."""

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.codes)

    def take(self, rows: Any) -> Coded:
        """The same column for some rows (indexes or a mask)."""
        return Coded(self.codes[rows], self.names)

    def code_of(self, name: str) -> int:
        """The code of a word; -2, which no row has, when the column does not know the word."""
        try:
            return self.names.index(name)
        except ValueError:
            return -2

    def is_one_of(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """True for the rows with one of these words."""
        import numpy as np

        wanted = np.zeros(len(self.names) + 1, dtype=bool)  # the last place is that of -1
        for at, name in enumerate(self.names):
            wanted[at] = name in names
        return wanted[self.codes]

    def text(self, row: int) -> str | None:
        """The word of one row, or None."""
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    def texts(self) -> list[str | None]:
        """The words of all rows: for small tables."""
        names = (*self.names, None)  # -1 is the last place
        return [names[code] for code in self.codes.tolist()]

    def counts(self) -> dict[str, int]:
        """How often each word occurs, most frequent first, then by the word; rows without one are left out."""
        import numpy as np

        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names)).tolist()
        pairs = [(name, count) for name, count in zip(self.names, found, strict=True) if count]
        return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


class _Table:
    """Rows that lie in columns of one length."""

    __slots__ = ()

    def take(self, rows: Any) -> Self:
        """The same table for some rows (indexes in their order, or a mask)."""
        return replace(self, **self._taken(rows))  # type: ignore[type-var]

    def _taken(self, rows: Any) -> dict[str, Any]:
        import numpy as np

        return {
            field.name: value.take(rows) if isinstance(value, Coded) else value[rows]
            for field in fields(self)  # type: ignore[arg-type]
            if isinstance(value := getattr(self, field.name), (Coded, np.ndarray))
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The time that one imported file speaks about."""

    begin_us: int
    end_us: int
    format: str | None = None
    is_declared: bool = False
    """The format says its window itself; else it is the time of the first and the last record."""
    name: str | None = None
    """Of the file, with its host where that is known: a file that grew is the same source, two files are two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreDomains:
    """Domains that did not fit the one column of their kind: the second host of an event, and so on.

    Sorted by row. `kind` is a place in `DOMAIN_KINDS`, `code` is one of the column of that kind.
    """

    row: NDArray[np.int64]
    kind: NDArray[np.int8]
    code: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable(_Table):
    """Events in effect (no superseded ones), in the order of time and then of id, as `in_effect` puts them."""

    seq: NDArray[np.int64]
    """Where the event lies in its ledger."""
    t_us: NDArray[np.int64]
    """When it happened, else when it was seen, else when it was written."""
    has_occurred_us: NDArray[np.bool_]
    """False where `t_us` is not the time of the event but of its observation or its record."""
    observed_us: NDArray[np.int64]
    kind: Coded
    class_: Coded
    cause: Coded
    cause_status: Coded
    symptom: Coded
    role: Coded
    run: Coded
    incident: Coded
    """As declared (`links.incident`)."""
    rank: Coded
    device: Coded
    host: Coded
    rack: Coded
    switch: Coded
    storage: Coded
    power: Coded
    release: Coded
    site: Coded
    label: Coded
    """`body.label`: the words of the source."""
    code: Coded
    """`body.code`: the code of the source (an Xid, a Slurm state), which a mapping table reads."""
    mapping: Coded
    """`body.mapping`: the table that gave class, cause, symptom and role."""
    importer: Coded
    outcome: Coded
    at_risk: Coded
    """What came to risk or left it, in exposure events only."""
    devices: NDArray[np.int64]
    """How many accelerators; -1 where nobody said."""
    injected: NDArray[np.int8]
    """1 for a fault on purpose, 0 for one that is said to be none, -1 where nobody said."""
    is_accepted: NDArray[np.bool_]
    """A verification that let the state pass."""
    is_lone: NDArray[np.bool_]
    """`body.lone`: a symptom that stood alone, so that its role stays unknown whatever a mapping table says."""
    detect_us: NDArray[np.int64]
    diagnose_us: NDArray[np.int64]
    isolate_us: NDArray[np.int64]
    recover_us: NDArray[np.int64]
    verify_us: NDArray[np.int64]
    more_domains: MoreDomains
    coverage: tuple[Coverage, ...] = ()
    """What the imported files cover, in the order of their begin."""
    run_modes: tuple[tuple[str, str], ...] = ()
    """(run, how it was started), in the table of an export; a ledger says it in its events."""
    origin: str | None = None
    size: int | None = None
    root: bytes | None = None
    """The tree head of the ledger that the rows were read from."""

    def __len__(self) -> int:
        """How many events are in effect."""
        return len(self.t_us)

    def take(self, rows: Any) -> EventTable:
        """The same table for some rows, each of them once (indexes in their order, or a mask)."""
        import numpy as np

        taken = np.arange(len(self))[rows]
        place = np.full(len(self), -1, dtype=np.int64)
        place[taken] = np.arange(len(taken))
        more, at = self.more_domains, place[self.more_domains.row]
        kept = np.flatnonzero(at >= 0)
        kept = kept[np.argsort(at[kept], kind="stable")]
        more = MoreDomains(row=at[kept], kind=more.kind[kept], code=more.code[kept])
        return replace(self, more_domains=more, **self._taken(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentTable(_Table):
    """Incidents under one grouping rule, by begin. What a row means is said in `incident.Incident`."""

    rule: str
    """The grouping rule in words: print it beside every count."""
    begin_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    """NO_TIME while no record closes it: open incidents are censored, not short."""
    class_: Coded
    cause: Coded
    cause_status: Coded
    symptom: Coded
    rank: Coded
    device: Coded
    host: Coded
    rack: Coded
    switch: Coded
    storage: Coded
    power: Coded
    release: Coded
    """The first one that a failing event names; bystanders do not count."""
    run: Coded
    incident: Coded
    """The declared name; none for an incident that was made by a gap."""
    label: Coded
    code: Coded
    mapping: Coded
    importer: Coded
    """Of the first event that says one."""
    detect_us: NDArray[np.int64]
    diagnose_us: NDArray[np.int64]
    isolate_us: NDArray[np.int64]
    recover_us: NDArray[np.int64]
    verify_us: NDArray[np.int64]
    injected: NDArray[np.int8]
    """1, 0, or -1 where nobody said."""
    planned: NDArray[np.bool_]
    correlated: NDArray[np.bool_]
    event_count: NDArray[np.int64]
    first_seq: NDArray[np.int64]
    """Where its first event lies in the ledger."""

    def __len__(self) -> int:
        """How many incidents."""
        return len(self.begin_us)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """True for incidents that no record closes; of those, only the ones that `is_interval` are still going on."""
        return self.end_us == NO_TIME

    @property
    def is_interval(self) -> NDArray[np.bool_]:
        """True for incidents that have an end, recorded or not: those that something opened.

        What a gap made of single signals (driver lines) has none, so it is neither short nor still open.
        """
        return (self.end_us != NO_TIME) | (self.incident.codes >= 0) | self.planned

    @property
    def unplanned(self) -> IncidentTable:
        """The failures: without planned stops."""
        return self.take(~self.planned)
