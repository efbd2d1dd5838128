"""What must not be found in a shared bundle, said without any code of the sharing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lastgood.evidence import archive
from lastgood.ledger.store import read_store

CHARS_MIN = 4
NAMING_KEYS = {"host", "node", "nodes", "hostname", "user", "owner", "path", "job"}
LOOKS = re.compile(
    r"(?<![\w*])/[\w.\-]+(?:/[\w.\-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b|[\w.]+@(?!sha256:)[\w.]+|https?://\S+|GPU-[0-9a-f\-]{8,}"
)


def tells_somebody(name: str) -> bool:
    """False for bare numbers and words without a digit or a special character, which anybody may use."""
    return (
        len(name) >= CHARS_MIN and not name.isdigit() and re.search(r"[\d/@:\-]", name) is not None
    )


def names_in(ledger: Path) -> set[str]:
    """Every name that the events of a ledger hold, taken from the fields that are there for names."""
    found: set[str] = set()
    with read_store(ledger) as store:
        for event in store.events():
            found.add(event.id)
            found.update(d.id for d in event.domain)
            found.update(filter(None, (event.run, event.topology, event.incident)))
            if event.clock:
                found.update(filter(None, (event.clock.id, event.clock.boot_id)))
            if event.source:
                found.update(filter(None, (event.source.raw_sha256,)))
                found.add((event.source.locator or "").rpartition("#")[0])
            found.update(_in_value(event.body, None))
        found.discard(store.origin)
    # A digest of a mapping table or a word of one is public; what it is called on this machine is not.
    return {name for name in found if tells_somebody(name) and "@sha256:" not in name}


def _in_value(value: Any, key: str | None) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _in_value(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _in_value(item, key)
    elif isinstance(value, str):
        yield from LOOKS.findall(value)
        if key is not None and key.lower() in NAMING_KEYS:
            yield value


def bytes_of(bundle: Path) -> bytes:
    """All that a bundle holds: its files, and the bodies of its ledger once more, because pages of a file cut them."""
    raw = b"\0".join((bundle / name).read_bytes() for name in archive.NAMES)
    with read_store(bundle / archive.LEDGER) as store:  # leaves no file behind
        bodies = [row[0] for row in store.connection.execute("SELECT body FROM event ORDER BY seq")]
    return raw + b"\0" + b"\0".join(bodies)


def surviving(names: set[str], bundle: Path) -> list[str]:
    """The names that can be read in a bundle, as they are or as JSON and HTML write them."""
    raw = bytes_of(bundle).lower()
    return sorted(
        name
        for name in names
        if any(form.encode("utf-8", "surrogatepass") in raw for form in _forms(name.lower()))
    )


def _forms(name: str) -> set[str]:
    import html
    import json

    return {
        name,
        html.escape(name),
        json.dumps(name)[1:-1],
        json.dumps(name, ensure_ascii=False)[1:-1],
    }
