"""What broke, out of a person's own words: a short list of words, the longest one that occurs decides.

This is a reading of free text and no diagnosis: what it finds is at most *supported* by the person who wrote it.
"""

from __future__ import annotations

import functools
import re

from lastgood.contract.taxonomy import Cause
from lastgood.ledger.importers.mapping import Mapping, load_mapping

TEXT_CHARS_MAX = 4_000
"""Only so much of a text is searched."""
_PLANNED = re.compile(
    r"\b(planned|scheduled|maintenance|upgrade|wartung|drill|reservation)\b", re.IGNORECASE
)
_UNPLANNED = re.compile(r"\b(unplanned|unscheduled|not planned)\b", re.IGNORECASE)
_SLOW = re.compile(
    r"\b(slow|slower|slowed|degraded|throttl\w*|reduced speed|low bandwidth)\b", re.IGNORECASE
)
_SDC = re.compile(
    r"\b(silent data corruption|sdc|wrong results?|corrupt(?:ed)? (?:loss|gradients?))\b",
    re.IGNORECASE,
)


def find_word(text: str, mapping: Mapping | None = None) -> str | None:
    """The longest word of the list that occurs in the text as a word of its own."""
    table = mapping or load_mapping("cause-words")
    plain = text[:TEXT_CHARS_MAX].strip().lower()
    if plain in table.rows:
        return plain
    hits = _pattern(tuple(table.rows)).findall(plain)
    return max(hits, key=len) if hits else None


def find_cause(text: str) -> str | None:
    """The cause that the text names, as a word of the taxonomy; None when the list has no word for it."""
    plain = text.strip().lower()
    if plain in {str(cause) for cause in Cause}:
        return plain
    table = load_mapping("cause-words")
    word = find_word(text, table)
    row = table.row(word) if word is not None else None
    return row.cause if row is not None else None


def class_of(text: str) -> str | None:
    """Planned, sdc or fail_slow when the text says so in plain words; else None."""
    text = text[:TEXT_CHARS_MAX]
    if _PLANNED.search(text) and not _UNPLANNED.search(text):
        return "planned"
    if _SDC.search(text):
        return "sdc"
    return "fail_slow" if _SLOW.search(text) else None


@functools.lru_cache(maxsize=8)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Longest first, so that `power supply` is not read as `power`."""
    listed = sorted((w for w in words if w.strip("?*")), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, listed))})s?(?![\w-])")
