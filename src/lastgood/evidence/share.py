"""A ledger for strangers: the same events with pseudonyms in place of names, as a ledger of its own.

Every event is written again, so this ledger has its own origin, links, tree and root; nothing of it proves anything
about the original, whose root the manifest of the bundle only states. Ids become numbers in the order of the old ones,
because events of one instant are ordered by them. Numbers, times and the words of the taxonomy stay as they were.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.errors import LastgoodError
from lastgood.contract.load import parse_contract
from lastgood.contract.model import contract_digest
from lastgood.contract.taxonomy import AXES, TAXONOMY_ID, DomainKind, EventKind
from lastgood.evidence.pseudonyms import Pseudonyms
from lastgood.evidence.share_contract import share_contract
from lastgood.ledger.event import SCHEMA, ClockStamp, Domain, Event, Links, Source, Verification
from lastgood.ledger.store import Store, open_store

BATCH_EVENTS = 2_000
_KEY_KINDS = {
    "host": "host", "hostname": "host", "node": "host", "nodename": "host", "nodelist": "host", "instance": "host",
    "server": "host", "machine": "host", "pod": "host",
    "user": "user", "username": "user", "owner": "user", "login": "user", "account": "user", "uid": "user",
    "run": "run", "job": "run", "job_id": "run", "jobid": "run", "job_name": "run", "run_id": "run",
    "path": "path", "file": "path", "folder": "path", "cwd": "path", "directory": "path", "resumes": "path",
    "cluster": "cluster", "partition": "cluster", "namespace": "cluster", "queue": "cluster", "zone": "place",
    "address": "address", "ip": "address", "addr": "address",
}  # fmt: skip
"""What a key of a body says about the text under it; a plural means the same."""
_NUMBER_KINDS = frozenset((DomainKind.RANK,))
"""Kinds of domain whose numbers are positions, and nobody's name."""
_VERSION = re.compile(r"\d+(?:\.\d+){0,2}(?:(?:a|b|rc|\.post|\.dev)\d+)?(?:\+(?:cpu|cu\d+))?")
_TABLE = re.compile(r"([a-z0-9_\-]+)/\d+@sha256:[0-9a-f]{64}")
_CLOCK_SOURCES = frozenset(("host", "server", "inferred"))


class _Replay:
    """A clock that says the time at which each event was recorded, so that it is recorded at that time again."""

    def __init__(self) -> None:
        self.now_us = 0

    def wall_us(self) -> int:
        """The time of the event that is written."""
        return self.now_us

    def monotonic_us(self) -> int:
        """The same: nothing is measured while a ledger is copied."""
        return self.now_us

    def sleep_us(self, duration_us: int) -> None:
        """Waits for nobody: the new file has no other writer."""


class Sharer:
    """Writes one ledger's events with pseudonyms."""

    def __init__(self, source: Store, names: Pseudonyms) -> None:
        """Reads all events once to learn which names there are; `source` must not grow meanwhile."""
        self._source = source
        self._names = names
        self._rank = _ranks(source)
        self._digests: dict[str, str] = {}
        contracts: set[str] = set()
        self.removed: Counter[str] = Counter()
        """What was left out, with how many times."""
        for event in source.events():
            self._learn(event)
            text = event.body.get("contract")
            if isinstance(text, str):
                contracts.add(text)
        for text in sorted(contracts):  # when all names are known
            self._learn_contract(text)

    def run(self, name: str) -> str:
        """The pseudonym of a run."""
        return self._names.name(name, "run")

    def knows_digest(self, original: str, shared: str) -> None:
        """A contract went in under another digest, so what names it must do so too."""
        self._digests[original] = shared

    def write(self, target: Path) -> None:
        """Write the ledger; the file must not exist yet."""
        clock = _Replay()
        with open_store(target, clock=clock) as store:
            store.connection.execute("PRAGMA synchronous = OFF")  # it is copied from here at once
            for at_us, events in groupby(self._source.events(), key=lambda e: e.t_recorded_us or 0):
                clock.now_us = at_us
                batch: list[Event] = []
                for event in events:
                    batch.append(self.event(event))
                    if len(batch) == BATCH_EVENTS:
                        store.import_events(batch)
                        batch.clear()
                store.import_events(batch)

    def event(self, event: Event) -> Event:
        """The event with every name in it replaced."""
        self._drop("field of a newer writer", event.extra)
        is_ours = event.source is None
        word = self._word
        return msgspec.structs.replace(
            event,
            schema=SCHEMA,
            kind=word("event", event.kind) or str(EventKind.RECORD),
            id=self._event_id(event.id),
            clock=self._clock(event.clock),
            class_=word("class", event.class_),
            taxonomy=None if event.taxonomy is None else TAXONOMY_ID,
            symptom=word("symptom", event.symptom),
            cause=word("cause", event.cause),
            cause_status=word("cause_status", event.cause_status),
            role=word("role", event.role),
            domain=tuple(self._domains(event.domain)),
            run=None if event.run is None else self.run(event.run),
            versions=self._versions(event.versions),
            topology=None if event.topology is None else self._names.name(event.topology, "topology"),
            verification=self._verification(event.verification, is_ours=is_ours),
            source=self._source_of(event.source),
            links=self._links(event.links),
            body=self._body(event.body, is_ours=is_ours),
            extra={},
        )  # fmt: skip

    # --- what names there are ---------------------------------------------------------------------------

    def _learn(self, event: Event) -> None:
        learn = self._names.learn
        for domain in event.domain:
            if not (domain.kind in _NUMBER_KINDS and domain.id.isdigit()):
                learn(domain.id, domain.kind if domain.kind in _WORDS["domain"] else "name")
        if event.run:
            learn(event.run, "run")
        if event.clock and event.clock.id:
            learn(event.clock.id, "clock")
        if event.source and event.source.locator:
            learn(event.source.locator.rpartition("#")[0] or event.source.locator, "file")
        if event.links and event.links.incident:
            learn(event.links.incident, "incident")
        self._learn_body(event.body, None)

    def _learn_body(self, value: Any, kind: str | None) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if kind is not None:
                    self._names.learn(key, kind)
                self._learn_body(item, _kind_of(key) or kind)
        elif isinstance(value, list | tuple):
            for item in value:
                self._learn_body(item, kind)
        elif isinstance(value, str) and kind is not None:
            self._names.learn(value, kind)

    def _learn_contract(self, text: str) -> None:
        try:
            original = parse_contract(text)
            shared = share_contract(text.encode(), self._names, source="contract of a run")
        except LastgoodError:
            return
        self.knows_digest(contract_digest(original), contract_digest(parse_contract(shared)))

    # --- parts of an event ------------------------------------------------------------------------------

    def _word(self, axis: str, word: str | None) -> str | None:
        """A word of the taxonomy; another one is left out, because no pseudonym could stand there."""
        if word is None or word in _WORDS[axis]:
            return word
        self.removed[f"{axis} that the taxonomy does not have"] += 1
        return None

    def _event_id(self, name: str) -> str:
        seq = self._seq(name)
        return self._names.name(name, "event") if seq is None else f"s-{self._rank[seq]:012x}"

    def _seq(self, name: str) -> int | None:
        row = self._source.connection.execute(
            "SELECT seq FROM event WHERE id = ?", (name,)
        ).fetchone()
        return None if row is None else row[0]

    def _clock(self, clock: ClockStamp | None) -> ClockStamp | None:
        if clock is None:
            return None
        self._drop("field of a newer writer", clock.extra)
        return ClockStamp(
            id=None if clock.id is None else self._names.name(clock.id, "clock"),
            source=clock.source if clock.source in _CLOCK_SOURCES else None,
            uncertainty_us=clock.uncertainty_us,
            boot_id=None if clock.boot_id is None else self._names.name(clock.boot_id, "boot"),
        )

    def _domains(self, domains: Iterable[Domain]) -> Iterator[Domain]:
        for domain in domains:
            self._drop("field of a newer writer", domain.extra)
            if self._word("domain", domain.kind) is None:
                continue
            is_position = domain.kind in _NUMBER_KINDS and domain.id.isdigit()
            shared = domain.id if is_position else self._names.name(domain.id, domain.kind)
            yield Domain(kind=domain.kind, id=shared)

    def _versions(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {
            self._names.key(key): value
            if _VERSION.fullmatch(value)
            else self._names.name(value, "version")
            for key, value in versions.items()
        }

    def _verification(
        self, verification: Verification | None, *, is_ours: bool
    ) -> Verification | None:
        if verification is None:
            return None
        self._drop("field of a newer writer", verification.extra)
        evidence = verification.evidence
        return Verification(
            test=self._names.text(verification.test, is_ours=is_ours),
            result=self._names.text(verification.result),
            evidence=None if evidence is None else self._names.name(evidence, "digest"),
        )

    def _source_of(self, source: Source | None) -> Source | None:
        """The place in a file stays a place in a file; the hash of a row could be tried out, so it goes."""
        if source is None:
            return None
        self._drop("field of a newer writer", source.extra)
        self._drop("hash of a raw row", source.raw_sha256)
        importer, locator = source.importer, source.locator
        if locator is not None:
            name, _, number = locator.rpartition("#")
            is_place = bool(name) and number.isdigit()
            locator = self._names.name(name if is_place else locator, "file")
            locator += f"#{number}" if is_place else ""
        return Source(
            importer=None if importer is None else self._names.text(importer),
            version=None if source.version is None else self._names.text(source.version),
            locator=locator,
        )

    def _links(self, links: Links | None) -> Links | None:
        if links is None:
            return None
        self._drop("field of a newer writer", links.extra)
        name, event_id = self._names.name, self._event_id
        return Links(
            incident=None if links.incident is None else name(links.incident, "incident"),
            parent=None if links.parent is None else event_id(links.parent),
            supersedes=None if links.supersedes is None else event_id(links.supersedes),
        )

    def _body(self, body: Mapping[str, Any], *, is_ours: bool) -> dict[str, Any]:
        shared = self._mapping(body, None, is_ours=is_ours)
        if isinstance(body.get("contract"), str):
            shared.pop("contract", None)
            try:
                text = share_contract(
                    body["contract"].encode(), self._names, source="contract of a run"
                )
                shared["contract"] = text.decode()
            except LastgoodError:
                self.removed["contract that cannot be read"] += 1
        digest = body.get("contract_digest")
        if isinstance(digest, str) and digest in self._digests:
            shared["contract_digest"] = self._digests[digest]
        return shared

    def _mapping(
        self, value: Mapping[str, Any], kind: str | None, *, is_ours: bool
    ) -> dict[str, Any]:
        shared: dict[str, Any] = {}
        for key, item in value.items():
            under = _kind_of(key) or kind
            name = (
                self._names.key(key)
                if kind is None or key.isdigit()
                else self._names.name(key, kind)
            )
            while name in shared:  # two texts that differ only in what was taken out
                name += " (another)"
            shared[name] = self._value(item, under, is_ours=is_ours)
        return shared

    def _value(self, value: Any, kind: str | None, *, is_ours: bool) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, kind, is_ours=is_ours)
        if isinstance(value, list | tuple):
            return [self._value(item, kind, is_ours=is_ours) for item in value]
        if kind in {"user", "run"} and type(value) is int:
            return self._names.name(str(value), kind)
        if not isinstance(value, str):
            return value
        table = _TABLE.fullmatch(value)
        if value == TAXONOMY_ID or (table and self._names.key(table[1]) == table[1]):
            return value
        return (
            self._names.text(value, is_ours=is_ours)
            if kind is None
            else self._names.name(value, kind)
        )

    def _drop(self, what: str, found: object) -> None:
        if found:
            self.removed[what] += len(found) if isinstance(found, Mapping) else 1


def _kind_of(key: str) -> str | None:
    word = key.lower()
    return _KEY_KINDS.get(word) or _KEY_KINDS.get(word.removesuffix("s"))


def _ranks(store: Store) -> array[int]:
    """For each sequence number the place of its id among all ids, in the order of text."""
    ranks = array("q", bytes(8 * store.size))
    rows: Iterable[tuple[int]] = store.connection.execute("SELECT seq FROM event ORDER BY id")
    for rank, (seq,) in enumerate(rows):
        ranks[seq] = rank
    return ranks


_WORDS = {axis: frozenset(map(str, words)) for axis, words in AXES.items()}
