"""What a rank says about the first step of its process: its number, who knows that, and when it began."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FirstNote(NamedTuple):
    """Steps count from 1."""

    step: int
    source: str
    """`optimizer` (its own state tells), `script` (it says so), or `count` (only since the process began)."""
    began_us: int
    """Monotonic time."""


def write_first_note(path: Path, note: FirstNote) -> None:
    """Write the note whole or not at all; raises OSError."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{note.step} {note.source} {note.began_us}", encoding="ascii")
    fresh.replace(path)


def read_first_note(path: Path) -> FirstNote | None:
    """The note of a rank; None before it made a step."""
    try:
        step, source, began_us = path.read_text(encoding="ascii").split()
        return FirstNote(int(step), source, int(began_us))
    except (OSError, ValueError):
        return None
