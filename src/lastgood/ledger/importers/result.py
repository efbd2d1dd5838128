"""What an import did: each file with its format and its table, and how far it has come while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.base.errors import EXIT_BAD_INPUT, EXIT_HELD, EXIT_NOT_HELD
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
    left_out: str | None = None
    """Why a file of a folder was not looked into."""

    @property
    def is_taken(self) -> bool:
        """True when rows of it are in the ledger, or when it was read whole and none of them had to be."""
        quality = self.quality
        return quality.accepted > 0 or self.loss is None

    @property
    def loss(self) -> str | None:
        """What of this file was lost, as a sentence; None where it was read whole and gave what it had.

        Rejected rows alone are no loss of the file while others were taken: the table has them.
        """
        quality = self.quality
        if self.left_out is not None:
            return f"{self.name} is left out: {self.left_out}"
        if quality.file_problems:
            return "; ".join(quality.file_problems)
        if quality.accepted:
            return None
        if quality.rejected:
            return f"{self.name}: none of its {quality.read:,} rows could be taken as {self.format}"
        is_silent = quality.read > 0 and self.coverage_begin_us is None and not self.is_detected
        return (
            f"{self.name}: no row of it has a time that {self.format} can read"
            if is_silent
            else None
        )

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
    def losses(self) -> list[str]:
        """What was lost, file by file."""
        return [loss for file in self.files if (loss := file.loss) is not None]

    @property
    def exit_code(self) -> int:
        """0: every file gave rows or was read whole; 1: something of them was lost; 2: nothing of any was taken."""
        if not self.losses:
            return EXIT_HELD
        return EXIT_NOT_HELD if any(file.is_taken for file in self.files) else EXIT_BAD_INPUT

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
            "lost": self.losses,
        }
