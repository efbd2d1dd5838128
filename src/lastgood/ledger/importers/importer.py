"""What a format implements, and what it is given: the context that makes events out of rows and counts every row.

A format is a small object with a name, a test whether a file looks like it, and `read`, which usually is one line:
`yield from context.rows(source.lines(), parse)`. `parse(row)` returns events made with `context.event`, calls
`context.ignore(row, why)` for a row that is whole and not about failures, and raises `RowProblem(reason)` for one that
should have been understood and was not. A row is taken whole or not at all, and an exception in `parse` costs that
row only: the table says `not understood`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import AXES, TAXONOMY_ID
from lastgood.ledger.event import ClockStamp, Domain, Event, Links
from lastgood.ledger.event import Source as Origin
from lastgood.ledger.importers.clean import INT64_MAX, INT64_MIN, Cleaner
from lastgood.ledger.importers.json_scan import Broken
from lastgood.ledger.importers.mapping import Mapping as CodeMapping
from lastgood.ledger.importers.mapping import load_mapping
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.importers.source import Row, Source
from lastgood.ledger.importers.times import RowProblem, Times, parse_zone

__all__ = ["Context", "Head", "Importer", "Options", "RowProblem", "StrictStop"]

REPEAT_WINDOW_ROWS = 65_536
"""Among this many distinct rows, equal ones are told apart by counting them."""
ERROR_CHARS_MAX = 120


class Head(NamedTuple):
    """How a file begins: what a format may look at to recognise it."""

    data: bytes
    text: str
    name: str
    """The file's name without its folder; `-` for standard input."""


class Importer(Protocol):
    """One format. Each module of a format has one instance, `IMPORTER`."""

    name: str
    version: str
    """Raise it when the same row would give other events."""
    title: str
    """What it is, for a list of formats."""

    def recognises(self, head: Head) -> int:
        """0 (surely not) to 100 (surely), from how the file begins."""
        ...

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """The events of a file; every row goes through `context.rows`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person says about the files, because the files do not."""

    host: str | None = None
    year: int | None = None
    zone: str | None = None
    run: str | None = None
    cluster: str | None = None
    devices_per_node: int | None = None
    boot_us: int | None = None
    """When the host was started, for lines that count seconds from there."""
    column_map: Path | None = None
    keep_raw: bool = False
    is_strict: bool = False
    mappings: Mapping[str, Path] = field(default_factory=dict)
    """Name of a mapping table -> a file that replaces it."""


class StrictStop(Exception):
    """The first rejected row of a strict import."""

    def __init__(self, locator: str, problem: RowProblem) -> None:
        super().__init__(f"{locator}: {problem}")
        self.locator = locator
        self.problem = problem


class Context:
    """What a format works with while one file is read. Made by the driver."""

    def __init__(
        self,
        importer: Importer,
        source: Source,
        *,
        options: Options,
        cleaner: Cleaner,
        quality: Quality,
        on_raw: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """`on_raw` is given the hash and the bytes of each accepted row, when they are to be kept."""
        self.options = options
        self.quality = quality
        self.times = Times(
            zone=options.zone, year=options.year, mtime_us=source.mtime_us, on_doubt=quality.note
        )
        self.coverage_begin_us: int | None = None
        self.coverage_end_us: int | None = None
        self.is_window_declared = False
        self.file_host: str | None = options.host
        """The host of the whole file: from the options, or what the format found in the file's name."""
        self.shared: dict[str, Any] = {}
        """What a format keeps from one file of an import to the next, for its `finish(context)`."""
        self._format = importer.name
        self._version = importer.version
        self._cleaner = cleaner
        self._name = cleaner.text(source.label)
        self._on_raw = on_raw
        self._is_ignored = False
        self._ignored_reasons: list[str] = []
        self._is_held = False
        self._row: Row | None = None
        self._row_sha = b""
        self._row_events = 0
        self._repeats = 0
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._prefixes: dict[str, str] = {}
        self._domains: dict[tuple[str, str], Domain] = {}
        self._mappings: dict[str, CodeMapping] = {}

    @staticmethod
    def check_options(options: Options) -> None:
        """Refuses a zone, a mapping table or a column map that cannot be meant, before anything is read."""
        if options.zone is not None:
            parse_zone(options.zone)
        for name, path in options.mappings.items():
            load_mapping(name, path)
        if options.column_map is not None:
            from lastgood.ledger.importers.table_map import load_column_map

            load_column_map(options.column_map)

    # --- rows ---------------------------------------------------------------------------------------

    def rows(
        self, rows: Iterable[Row], parse: Callable[[Any], Iterable[Event] | None]
    ) -> Iterator[Event]:
        """The events of the rows. What `parse` raises rejects its row, with a reason and a line, and no other.

        `parse` may return nothing. A row whose value is `Broken` never reaches it.
        """
        quality = self.quality
        for row in rows:
            quality.read += 1
            self._row, self._row_events = row, 0
            self._is_ignored = self._is_held = False
            self._ignored_reasons.clear()
            inferred_times = quality.inferred_times
            try:
                value = getattr(row, "value", None)
                if isinstance(value, Broken):
                    raise RowProblem(value.reason)
                events = list(parse(row) or ())
            except RowProblem as problem:
                self._reject_row(row, problem, inferred_times)
            except BadInput:
                raise  # the person's own options, not the row
            except Exception as error:  # noqa: BLE001 - a hostile row must cost itself only, and be seen
                self._reject_row(row, not_understood(error), inferred_times)
            else:
                if events or self._is_held:
                    quality.accepted += 1
                    if self._on_raw is not None:
                        self._on_raw(self._row_sha.hex(), row.raw)
                    yield from events
                elif not self._is_ignored:
                    quality.ignore("nothing to record in it")

    def ignore(self, row: Row, why: str) -> None:
        """Counts a row that is whole and not about failures. `why` must not differ from row to row."""
        self._is_ignored = True
        if row is self._row:
            self._ignored_reasons.append(why)
        self.quality.ignore(why)

    def hold(self, row: Row) -> None:
        """Counts a row as accepted whose event comes later, made of it and of rows behind it."""
        self._begin_row(row)
        self._is_held = True

    def _reject_row(self, row: Row, problem: RowProblem, inferred_times: int) -> None:
        """Rejects a row whole: what its first events added to the counts is taken back."""
        self.quality.inferred_times = inferred_times
        for why in self._ignored_reasons:  # no row is both
            self.quality.ignore(why, -1)
        self.reject(row, problem)

    def reject(self, row: Row, problem: RowProblem) -> None:
        """Counts a row that could not be taken; a strict import stops here."""
        locator = f"{self._name}#{row.number}"
        if self.options.is_strict:
            self.quality.read -= 1  # the sum of the table stays right: this row is not counted
            raise StrictStop(locator, problem)
        begins = self._cleaner.text(row.raw[:400].decode(errors="replace"))
        detail = None if problem.detail is None else self._cleaner.text(problem.detail)
        self.quality.reject(problem.reason, locator=locator, detail=detail, raw=begins)

    # --- what a format says beside its events -------------------------------------------------------

    def note(self, sentence: str) -> None:
        """A sentence under the table."""
        self.quality.note(sentence)

    def known_loss(self, count: int, what: str) -> None:
        """The source itself says that so many records are missing."""
        self.quality.lose(count, what)

    def leave_out(self, row: Row, what: str, detail: str) -> None:
        """A value of this row cannot be: the row is kept without it, counted, and the first one is shown."""
        if not self.quality.unusable[what]:
            said = self._cleaner.text(detail[:ERROR_CHARS_MAX])
            self.note(f"{what} (the first is at {self._name}#{row.number}: {said})")
        self.quality.leave_out(what)

    def clock_correction(self, count: int, shifted_us: int, why: str) -> None:
        """Times that contradicted each other were clamped."""
        self.quality.clock_corrections += count
        self.quality.clock_corrected_us += abs(shifted_us)
        self.note(f"clock corrected: {why}")

    def coverage(self, t_us: int) -> None:
        """The log covers this moment; called for every row with a readable time, also for ignored ones."""
        begin, end = self.coverage_begin_us, self.coverage_end_us
        if begin is None or t_us < begin:
            self.coverage_begin_us = t_us
        if end is None or t_us > end:
            self.coverage_end_us = t_us

    def declare_window(self, begin_us: int, end_us: int | None = None) -> None:
        """The source says itself which time it covers."""
        self.is_window_declared = True
        self.coverage(begin_us)
        if end_us is not None:
            self.coverage(end_us)

    def mapping(self, name: str) -> CodeMapping:
        """The table of this name: the shipped one, or the user's (`Options.mappings`)."""
        found = self._mappings.get(name)
        if found is None:
            found = load_mapping(name, self.options.mappings.get(name))
            self._mappings[name] = found
        return found

    def incident_id(self, *parts: str | int) -> str:
        """A name for an incident that the same records always get: `<format>:<digest>`."""
        digest = sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()
        return f"{self._format}:{digest[:24]}"

    # --- events -------------------------------------------------------------------------------------

    def event(
        self,
        kind: str,
        *,
        row: Row,
        t_us: int | None,
        identity: Sequence[str | int] = (),
        observed_us: int | None = None,
        inferred: bool = False,
        host: str | None = None,
        device: str | None = None,
        domain: Iterable[Domain | tuple[str, str]] = (),
        scope: str | None = None,
        incident: str | None = None,
        body: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Event:
        """One event with a deterministic id, its source, masked text and checked words.

        Without `identity` the id is made of the row's bytes and of `scope` (by default the host), so that equal rows of
        overlapping files are one event, and equal rows within one file are several. With `identity` (a job id and an
        attempt, a fingerprint and a start) that alone decides, together with the kind. `host` and `device` are short
        for entries of `domain`; `fields` are those of `Event`.

        Raises:
            RowProblem: A word that the taxonomy does not have, a number of more than 64 bits, a body that is too deep.
        """
        if row is not self._row or not self._row_events:
            self._row_events = 0
            self._begin_row(row)
        cleaner = self._cleaner
        host = cleaner.name(host)
        domains = self._domain(host, cleaner.name(device), domain)
        index, self._row_events = self._row_events, self._row_events + 1
        event_id = (
            self._identity(kind, identity) if identity else self._content(scope or host, index)
        )
        self._check(kind, fields, (t_us, observed_us))
        run = self.options.run or fields.get("run")
        if run is not None:
            fields["run"] = cleaner.text(str(run))
        self.quality.inferred_times += inferred
        if any(fields.get(axis) for axis in ("class_", "symptom", "cause", "role")):
            fields["taxonomy"] = TAXONOMY_ID
        return Event(
            kind=str(kind),
            id=event_id,
            t_occurred_us=t_us,
            t_observed_us=observed_us,
            clock=_INFERRED if inferred else None,
            domain=domains,
            source=self._origin(row),
            links=None if incident is None else Links(incident=incident),
            body={} if body is None else cleaner.body(body),
            **fields,
        )

    def _origin(self, row: Row) -> Origin:
        return Origin(
            importer=self._format,
            version=self._version,
            locator=f"{self._name}#{row.number}",
            raw_sha256=self._row_sha.hex(),
        )

    def _begin_row(self, row: Row) -> None:
        """Hashes the row, and counts how often it came before."""
        self._row = row
        self._row_sha = sha256(row.raw).digest()
        key = self._row_sha[:16]
        seen = self._seen
        self._repeats = seen.pop(key, -1) + 1
        seen[key] = self._repeats
        if len(seen) > REPEAT_WINDOW_ROWS:
            seen.popitem(last=False)

    def _content(self, scope: str | None, index: int) -> str:
        """`event.content_id` over format and scope, the repeat number, and the row: same bytes, made quickly."""
        scope = scope or ""
        prefix = self._prefixes.get(scope)
        if prefix is None:
            prefix = '["lastgood/import/1",' + json.dumps(
                f"{self._format}|{scope}", ensure_ascii=False
            )
            if len(self._prefixes) < 10_000:
                self._prefixes[scope] = prefix
        locator = f"{self._repeats}" if index == 0 else f"{self._repeats}.{index}"
        text = f'{prefix},"{locator}","{self._row_sha.hex()}"]'
        return "c-" + sha256(text.encode("utf-8", "replace")).hexdigest()[:40]

    def _identity(self, kind: str, identity: Sequence[str | int]) -> str:
        text = json.dumps([self._format, str(kind), *map(str, identity)])
        return "c-" + sha256(text.encode()).hexdigest()[:40]

    def _domain(
        self, host: str | None, device: str | None, more: Iterable[Domain | tuple[str, str]]
    ) -> tuple[Domain, ...]:
        pairs: list[tuple[str, str]] = []
        if host is not None:
            pairs.append(("host", host))
        if device is not None:
            pairs.append(("device", device))
        for item in more:
            kind, name = (item.kind, item.id) if isinstance(item, Domain) else item
            _check_word("domain", kind)
            cleaned = self._cleaner.name(name)
            if cleaned is not None and (str(kind), cleaned) not in pairs:
                pairs.append((str(kind), cleaned))
        known = self._domains
        found = []
        for pair in pairs:
            domain = known.get(pair)
            if domain is None:
                domain = Domain(kind=pair[0], id=pair[1])
                if len(known) < 100_000:
                    known[pair] = domain
            found.append(domain)
        return tuple(found)

    def _check(
        self, kind: str, fields: dict[str, Any], stamps: tuple[int | None, int | None]
    ) -> None:
        if kind not in _WORDS["event"]:
            _check_word("event", kind)
        for name, axis in _AXES:
            word = fields.get(name)
            if word is not None:
                if word not in _WORDS[axis]:
                    _check_word(axis, word)
                fields[name] = str(word)
        for stamp in stamps:
            if stamp is not None and not INT64_MIN <= stamp <= INT64_MAX:
                raise RowProblem("a time of more than 64 bits", str(stamp)[:24])
        for name in fields.keys() & _INTS:
            _check_int(name, fields[name])
        if fields.get("ranks"):
            fields["ranks"] = tuple(fields["ranks"])
            for rank in fields["ranks"]:
                _check_int("ranks", rank)
        if fields.get("versions"):
            fields["versions"] = {
                str(k): self._cleaner.text(str(v)) for k, v in fields["versions"].items()
            }


def not_understood(error: Exception) -> RowProblem:
    """The finding about a row whose parser failed in a way that nobody had thought of."""
    return RowProblem(
        f"not understood: {type(error).__name__}", str(error)[:ERROR_CHARS_MAX] or None
    )


_INFERRED = ClockStamp(source="inferred")
_WORDS = {axis: frozenset(str(word) for word in words) for axis, words in AXES.items()}
_AXES = (("class_", "class"), ("symptom", "symptom"), ("cause", "cause"), ("cause_status", "cause_status"), ("role", "role"))  # fmt: skip
_INTS = frozenset((
    "attempt", "devices", "detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us", "checkpoint_age_us",
    "lost_device_us", "first_divergent_step",
))  # fmt: skip


def _check_word(axis: str, word: str) -> None:
    if word not in _WORDS[axis]:
        raise RowProblem(f"taxonomy v1 has no such {axis}", repr(word)[:80])


def _check_int(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowProblem(f"{name} is not a whole number", repr(value)[:80])
    if not INT64_MIN <= value <= INT64_MAX:
        raise RowProblem(f"{name} has more than 64 bits", str(value)[:24])
