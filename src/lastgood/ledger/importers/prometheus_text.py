"""One line of the Prometheus text format: a sample, or a comment that may hold the time of the scrape."""

from __future__ import annotations

import re
from typing import NamedTuple

from lastgood.ledger.importers.times import RowProblem

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL = re.compile(r'\s*+([a-zA-Z_][a-zA-Z0-9_]*+)\s*+=\s*+"((?:[^"\\]++|\\.)*+)"\s*+(,?)')
_REST = re.compile(r"\s+(\S+)(?:\s+(-?\d+(?:\.\d+)?))?(?:\s+#.*)?\s*")
_ESCAPE = re.compile(r"\\(.)")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?UTC|[+-]\d\d:?\d\d)?)|\b(\d{10}(?:\.\d+)?|\d{13})\b"
)


class Sample(NamedTuple):
    """One sample; `stamp` as it was written, None when the line has none."""

    metric: str
    labels: dict[str, str]
    value: float
    stamp: str | None


def parse_sample(text: str) -> Sample:
    """The sample on this line.

    Raises:
        RowProblem: The line is none.
    """
    name = _NAME.match(text)
    if name is None:
        raise RowProblem("not a sample")
    at, labels = name.end(), {}
    if text[at : at + 1] == "{":
        labels, at = _labels(text, at + 1)
    rest = _REST.fullmatch(text, at)
    if rest is None:
        raise RowProblem("a sample without a value")
    try:
        value = float(rest[1])
    except ValueError:
        raise RowProblem("a value that is no number") from None
    return Sample(name[0], labels, value, rest[2])


def scrape_time(comment: str) -> str | None:
    """The time in a comment such as `# scraped 2026-11-02T03:14:07Z`; HELP and TYPE lines have none."""
    words = comment[1:].split(None, 1)
    if not words or words[0] in {"HELP", "TYPE", "UNIT", "EOF"}:
        return None
    found = _STAMP.search(comment)
    return None if found is None else found[1] or found[2]


def _labels(text: str, at: int) -> tuple[dict[str, str], int]:
    labels: dict[str, str] = {}
    while True:
        match = _LABEL.match(text, at)
        if match is None:
            break
        labels[match[1]] = _ESCAPE.sub(_unescaped, match[2]) if "\\" in match[2] else match[2]
        at = match.end()
        if not match[3]:
            break
    end = text.find("}", at)
    if end < 0 or text[at:end].strip():
        raise RowProblem("labels that do not end")
    return labels, end + 1


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
