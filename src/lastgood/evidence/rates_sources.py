"""Do the same sources speak about the whole window? When one begins or ends inside it, counts change with nothing else.

A log that covers thirty days of a hundred adds its failures to those thirty days alone, and a test of the pooled counts
then finds a trend that is none. So the coverage is looked at source by source. Files of one format that follow each
other are one source (a log that was rotated), and so is a file of one name that was imported again after it had grown;
files that run side by side are several.

Assumes: what a file says it covers. Two logs of one format that follow each other with a short overlap pass as one source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lastgood.evidence.wording import instant_text
from lastgood.ledger.life import PROGRESS_FORMATS
from lastgood.ledger.table import Coverage

OVERLAP_MAX: Final = 0.2
"""Files that share more than this of the shorter one run side by side."""
WHOLE_MIN: Final = 0.98
"""A source that misses less of the observed time covers the whole of it: logs begin and end with their own rows."""
SHARE_MIN: Final = 0.001
"""A source that covers less is a snapshot of one moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """The set of sources is not the same throughout the window."""

    at_us: int
    """When it changes for the first time."""
    whole: int
    """Sources that cover the whole window,"""
    sources: int
    """of this many."""

    @property
    def sentence(self) -> str:
        """What happened, as the reason of a verdict."""
        verb = "covers" if self.whole == 1 else "cover"
        return (
            f"the set of sources changes at {instant_text(self.at_us)[:10]}: {self.whole} of {self.sources} sources "
            f"{verb} the whole window"
        )


def source_change(
    coverage: Sequence[Coverage], windows: Sequence[tuple[int, int]]
) -> SourceChange | None:
    """The first change of the set of sources inside the observed time; None while it stays the same."""
    observed_us = sum(end - begin for begin, end in windows)
    seen: list[list[tuple[int, int]]] = []
    for chain in _sources(c for c in coverage if c.format not in PROGRESS_FORMATS):
        inside = _clipped(chain, windows)
        if _length(inside) > SHARE_MIN * observed_us:
            seen.append(inside)
    parts = [inside for inside in seen if _length(inside) < WHOLE_MIN * observed_us]
    if not parts:
        return None
    begin_us, end_us = windows[0][0], windows[-1][1]
    bounds = [t for inside in parts for stretch in inside for t in stretch]
    moments = [t for t in bounds if begin_us < t < end_us]
    return SourceChange(
        at_us=min(moments, default=begin_us), whole=len(seen) - len(parts), sources=len(seen)
    )


def _sources(coverage: Iterable[Coverage]) -> list[list[Coverage]]:
    """Files that follow each other, as chains."""
    chains: list[list[Coverage]] = []
    for file in sorted(coverage, key=lambda c: (c.begin_us, c.end_us)):
        fitting = [chain for chain in chains if _follows(file, chain[-1])]
        if fitting:
            max(fitting, key=lambda chain: chain[-1].end_us).append(file)
        else:
            chains.append([file])
    return chains


def _follows(file: Coverage, last: Coverage) -> bool:
    if file.format != last.format:
        return False
    # Without names (an older export) only a file that grew at its end is known again.
    is_overlapping = file.begin_us == last.begin_us or (
        file.name is not None and file.begin_us <= last.end_us
    )
    if file.name == last.name and is_overlapping:
        return True
    shorter = min(file.end_us - file.begin_us, last.end_us - last.begin_us)
    return file.end_us > last.end_us and last.end_us - file.begin_us <= OVERLAP_MAX * shorter


def _clipped(
    chain: Sequence[Coverage], windows: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """What a source covers of the observed stretches, without overlaps, in order."""
    pieces = sorted(
        (max(begin, file.begin_us), min(end, file.end_us))
        for file in chain
        for begin, end in windows
        if min(end, file.end_us) > max(begin, file.begin_us)
    )
    found: list[tuple[int, int]] = []
    for begin, end in pieces:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _length(stretches: Sequence[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in stretches)
