"""What an import did: each file with its format and its table, and how far it has come while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.ledger.importers.quality import Quality, total


class Progress(NamedTuple):
    """How far an import has come."""

    name: str
    position: int
    """Bytes of the file that were read."""
    size: int | None
    events_new: int
    """Over all files so far; they are durable."""
    events_merged: int


@dataclass(slots=True)
class FileResult:
    """What became of one file."""

    name: str
    format: str | None
    """None for an empty file, or one of a folder that no format recognises."""
    is_detected: bool
    """True when nobody named the format."""
    score: int | None = None
    """How sure the format was, 0 to 100."""
    quality: Quality = field(default_factory=Quality)
    coverage_begin_us: int | None = None
    coverage_end_us: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """JSON-like data."""
        return {
            "file": self.name,
            "format": self.format,
            "detected": self.is_detected,
            "score": self.score,
            "coverage_us": [self.coverage_begin_us, self.coverage_end_us],
            "quality": self.quality.to_plain(),
        }


@dataclass(slots=True)
class ImportResult:
    """What an import did."""

    ledger: Path
    files: list[FileResult] = field(default_factory=list)

    @property
    def total(self) -> Quality:
        """All files together."""
        return total(file.quality for file in self.files)

    def to_plain(self) -> dict[str, Any]:
        """JSON-like data."""
        return {
            "ledger": str(self.ledger),
            "files": [file.to_plain() for file in self.files],
            "total": self.total.to_plain(),
        }
