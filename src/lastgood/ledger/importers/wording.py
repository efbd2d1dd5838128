"""Finds the row of a table by the words of a message: the longest word that the table lists and the message holds.

A scheduler's reason and an exception's message are prose. Which words say what is written in the mapping tables, as codes
with a slash (`DRAIN/maintenance`, `*/maintenance`), so that it is versioned and hashed like every other code.
"""

from __future__ import annotations

import re

from lastgood.ledger.importers.mapping import ANY, Mapping

TEXT_MAX = 4_000
"""Characters of a message that are searched."""
WORD_COUNT_MAX = 500
BASE_COUNT_MAX = 200
_SHORT = 3
"""Words up to this length must stand alone: `nic` is not in `nice`."""


def code_of(mapping: Mapping, base: str, text: str) -> str:
    """The code for a message: that of the longest listed word that the message holds, else `base` alone.

    It is the table's own key, `DRAIN/maintenance` or `*/maintenance`.
    """
    lowered = text[:TEXT_MAX].lower()
    for code, pattern in _words(mapping, base):
        if pattern.search(lowered):
            return code
    return base


_known: dict[tuple[str, str], tuple[tuple[str, re.Pattern[str]], ...]] = {}


def _words(mapping: Mapping, base: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The codes of a table for a base with the patterns of their words, longest first; kept, because every row asks."""
    key = (mapping.id, base)
    if key not in _known:
        found: dict[str, str] = {}
        for code in mapping.rows:
            head, slash, rest = code.partition("/")
            if slash and rest and not rest.isdigit() and head in {base, ANY}:
                found[rest] = f"{base}/{rest}" if f"{base}/{rest}" in mapping.rows else code
        words = sorted(found, key=lambda word: (-len(word), word))[:WORD_COUNT_MAX]
        if len(_known) >= BASE_COUNT_MAX:
            _known.clear()
        _known[key] = tuple((found[word], _pattern(word)) for word in words)
    return _known[key]


def _pattern(word: str) -> re.Pattern[str]:
    end = r"(?:s|\d+)?(?![a-z])" if len(word) <= _SHORT else ""
    return re.compile(rf"(?<![a-z]){re.escape(word)}{end}")
