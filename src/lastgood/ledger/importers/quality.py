"""What became of every row of an import: nothing is left out without being counted here, with a reason.

Read = accepted + ignored + rejected, always. *Accepted* rows gave at least one event; *ignored* rows are whole and are
not about failures; *rejected* rows should have been understood and were not, and the first few are kept with their
line numbers, so that a person can look at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXAMPLE_COUNT_MAX = 5
EXAMPLE_CHARS_MAX = 160
REASON_COUNT_MAX = 200
"""More distinct reasons than this are counted under `OTHER`: a hostile file must not fill the memory."""
NOTE_COUNT_MAX = 50
OTHER = "another reason"


@dataclass(slots=True)
class Example:
    """One rejected row: where it stands, what exactly was wrong, and how it begins (masked)."""

    locator: str
    detail: str | None
    raw: str


@dataclass(slots=True)
class Rejection:
    """How many rows were rejected for one reason, and the first of them."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Quality:
    """The table of one file, or of all files together."""

    read: int = 0
    accepted: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, Rejection] = field(default_factory=dict)
    events_new: int = 0
    events_merged: int = 0
    """Events that the ledger already held."""
    damaged_lines: int = 0
    """Lines with bytes that are no UTF-8."""
    cut_lines: int = 0
    clock_corrections: int = 0
    clock_corrected_us: int = 0
    inferred_times: int = 0
    """Events whose time rests on an assumed zone or year."""
    failures: int = 0
    """Incidents and lone signals that state a failure (not planned, not a bystander, not taken back)."""
    unknown_causes: int = 0
    """Those of them whose cause nobody knows."""
    unplaced: int = 0
    """Signals without a class and of unknown cause: no failure before a table of codes says so."""
    known_losses: Counter[str] = field(default_factory=Counter)
    """Records that the source itself says are missing."""
    unusable: Counter[str] = field(default_factory=Counter)
    """Values that cannot be: their rows are kept without them."""
    file_problems: list[str] = field(default_factory=list)
    """Why a file could not be read to its end."""
    notes: list[str] = field(default_factory=list)
    moved_rows: int = 0
    """Rows whose events the ledger already held with other times: nothing of them was changed."""
    moved_events: int = 0
    is_compared: bool = False
    """True once the tables of events that were there already have been compared with those of this import."""

    @property
    def ignored_count(self) -> int:
        """Rows that are whole and not about failures."""
        return sum(self.ignored.values())

    @property
    def rejected_count(self) -> int:
        """Rows that should have been understood and were not."""
        return sum(rejection.count for rejection in self.rejected.values())

    @property
    def unknown_share(self) -> float | None:
        """Share of the failures without a known cause; None without failures."""
        return self.unknown_causes / self.failures if self.failures else None

    @property
    def has_other_times(self) -> bool:
        """True when most of what the ledger already held of this file lies at other times in it."""
        return self.moved_events * 2 > self.events_merged

    def ignore(self, reason: str, count: int = 1) -> None:
        """Counts rows that are whole and not about failures; a negative count takes back what was counted too early."""
        reason = _bounded(reason, self.ignored)
        self.ignored[reason] += count
        if self.ignored[reason] == 0:
            del self.ignored[reason]

    def reject(self, reason: str, *, locator: str, detail: str | None, raw: str) -> None:
        """Counts a row that could not be taken, and keeps the first ones."""
        rejection = self.rejected.setdefault(_bounded(reason, self.rejected), Rejection())
        rejection.count += 1
        if len(rejection.examples) < EXAMPLE_COUNT_MAX:
            cut = detail if detail is None else detail[:EXAMPLE_CHARS_MAX]
            rejection.examples.append(Example(locator, cut, raw[:EXAMPLE_CHARS_MAX]))

    def note(self, sentence: str) -> None:
        """Keeps a sentence once."""
        if sentence not in self.notes and len(self.notes) < NOTE_COUNT_MAX:
            self.notes.append(sentence)

    def lose(self, count: int, what: str) -> None:
        """Counts records that the source says are missing."""
        self.known_losses[_bounded(what, self.known_losses)] += count

    def leave_out(self, what: str) -> None:
        """Counts a value that cannot be, in a row that is kept."""
        self.unusable[_bounded(what, self.unusable)] += 1

    def to_plain(self) -> dict[str, Any]:
        """JSON-like data."""
        return {
            "rows": {
                "read": self.read,
                "accepted": self.accepted,
                "ignored": self.ignored_count,
                "rejected": self.rejected_count,
            },
            "ignored": dict(self.ignored.most_common()),
            "rejected": [
                {
                    "reason": reason,
                    "count": rejection.count,
                    "examples": [
                        {"at": e.locator, "detail": e.detail, "begins": e.raw}
                        for e in rejection.examples
                    ],
                }
                for reason, rejection in sorted(self.rejected.items(), key=lambda r: -r[1].count)
            ],
            "events": {"new": self.events_new, "merged": self.events_merged},
            "known_with_other_times": self.moved_rows,
            "damaged_lines": self.damaged_lines,
            "cut_lines": self.cut_lines,
            "clock_corrections": self.clock_corrections,
            "clock_corrected_us": self.clock_corrected_us,
            "inferred_times": self.inferred_times,
            "failures": self.failures,
            "unplaced": self.unplaced,
            "unknown_causes": self.unknown_causes,
            "unknown_share": self.unknown_share,
            "known_losses": dict(self.known_losses),
            "unusable_values": dict(self.unusable),
            "file_problems": list(self.file_problems),
            "notes": list(self.notes),
        }

    def to_kept(self) -> dict[str, Any]:
        """What a ledger keeps of it: no raw text, no floats, and nothing that is only known once all is written."""
        plain = self.to_plain()
        for name in ("events", "known_with_other_times", "unknown_share"):
            del plain[name]
        for rejection in plain["rejected"]:
            rejection["examples"] = [{"at": example["at"]} for example in rejection["examples"]]
        return plain


def total(parts: Iterable[Quality]) -> Quality:
    """The sum of several tables; of examples the first ones are kept."""
    whole = Quality()
    for part in parts:
        for name in _COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
        for reason, count in part.ignored.items():
            whole.ignore(reason, count)
        for what, count in part.known_losses.items():
            whole.lose(count, what)
        whole.unusable.update(part.unusable)
        for reason, rejection in part.rejected.items():
            kept = whole.rejected.setdefault(_bounded(reason, whole.rejected), Rejection())
            kept.count += rejection.count
            kept.examples += rejection.examples[: EXAMPLE_COUNT_MAX - len(kept.examples)]
        whole.file_problems += part.file_problems
        for sentence in part.notes:
            whole.note(sentence)
    return whole


_COUNTS = (
    "read", "accepted", "events_new", "events_merged", "moved_rows", "moved_events", "damaged_lines", "cut_lines", "clock_corrections",
    "clock_corrected_us", "inferred_times", "failures", "unknown_causes", "unplaced",
)  # fmt: skip


def _bounded(reason: str, there: Counter[str] | dict[str, Rejection]) -> str:
    return reason if reason in there or len(there) < REASON_COUNT_MAX else OTHER
