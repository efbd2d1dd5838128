"""torchrun's console in its three generations, with the summary that it prints at the end.

The oldest lines have no time, the middle ones no zone, the newest ones neither zone nor year. The summary names every rank
that the agent saw fail, and as root cause the one with the earliest stamp: *first observed*, in whole seconds, which is a
hypothesis about the order and no finding. Ranks that the agent then ended itself (signal 15) are teardown.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from lastgood.contract.taxonomy import DomainKind, EventKind, Role
from lastgood.ledger.event import Event, Links
from lastgood.ledger.importers.elastic_records import exit_code_of
from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Line, Source
from lastgood.ledger.importers.wording import code_of

BLOCK_LINES_MAX = 20_000
BLOCKS_MAX = 4_096
ENTRIES_MAX = 20_000
"""Failed ranks in all summaries that are open at once; more are counted as lost."""
SEEN_MAX = 4_096
"""Failures whose summary may still come."""
MESSAGE_CHARS_MAX = 1_000

_MARKS = (
    "exitcode", "closing signal", "via signal", "death signal", "attempts left", "Watchdog caught collective",
    "(first observed failure)", "Failures:",
)  # fmt: skip
_PREFIX = re.compile(r"^(\[(?:rank|default)?\d+\]:\s?(?=\S)|\d{1,6}: )")
"""What a launcher puts before each line to tell ranks apart."""
_GLOG = re.compile(
    r"\b[WEIFC](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3,9}) +(?:\d+ +)?(?:\[[^\]]*\] +)?([\w./\-]+):\d+\] ?"
)
_DATED = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3,6})\] ([\w.]+): \[(\w+)\] ?")
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
_CLOSING = re.compile(
    r"(?:Sending process|Closing process) (\d{1,10}) (?:closing|via) signal (?:Signals\.)?(\w+)"
)
_DEATH = re.compile(r"Received (?:Signals\.)?(\w+) death signal")
_LEFT = re.compile(r"Worker group (\w+)\. (\d{1,6})/(\d{1,6}) attempts left")
_WATCHDOG = re.compile(
    r"\[?Rank (\d{1,7})\]? Watchdog caught collective operation timeout: (\w+\(.{0,400}?\)) ran for (\d{1,12}) milliseconds"
)
_INDEX = re.compile(r"^\[(\d{1,7})\]:$")
_FIELD = re.compile(r"^ {0,4}(time|host|rank|exitcode|error_file|traceback) {0,8}: ?(.*)$")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,6})\)")
_EXIT = re.compile(r"(-?\d{1,9}) \(pid: (\d{1,10})\)")
_BORDER = re.compile(r"^[=*]{8,}$")
_RULE = re.compile(r"^-{8,}$")


@dataclass(slots=True)
class _Entry:
    """One failed rank of a summary."""

    row: Line
    fields: dict[str, str] = field(default_factory=dict)
    last_line: str = ""
    """Of the traceback: its exception."""


@dataclass(slots=True)
class _Block:
    """A summary while it is read."""

    others: list[_Entry] = field(default_factory=list)
    root: list[_Entry] = field(default_factory=list)
    is_root: bool = False
    line_count: int = 0


class Console:
    """Reads one console line by line; a summary is told when it is complete."""

    def __init__(self, context: Context, source: Source) -> None:
        """The file's own time stands in for lines that have none."""
        self._context = context
        self._mapping = context.mapping("torch-exit")
        self._mtime_us = source.mtime_us
        self._blocks: OrderedDict[str, _Block] = OrderedDict()
        self._seen: OrderedDict[tuple[str, int, int], str] = OrderedDict()
        """(launcher's prefix, pid, exit code) of a failure that was told -> id of its event."""
        self._entry_count = 0
        self._was_asked_to_end = False

    def parse(self, row: Line) -> Iterable[Event] | None:
        """What a line tells, if it tells anything."""
        text = row.text
        if not self._blocks and not any(mark in text for mark in _MARKS):
            self._context.ignore(row, "a line that is not about failures of ranks")
            return None
        prefix = _PREFIX.match(text)
        name, bare = ("", text) if prefix is None else (prefix[1], text[prefix.end() :])
        block = self._blocks.get(name)
        if len(self._blocks) > BLOCKS_MAX:
            oldest = next(iter(self._blocks))
            return [*self._told(oldest, self._blocks.pop(oldest)), *(self.parse(row) or ())]
        if block is not None and _FAILED.search(bare) is not None:
            # No line of a summary: that one was cut off.
            del self._blocks[name]
            return [*self._told(name, block), *(self._message(row, name, bare) or ())]
        if block is not None or bare.strip() == "Failures:":
            return self._summary_line(row, name, bare.rstrip(), block)
        return self._message(row, name, bare)

    def rest(self) -> Iterator[Event]:
        """Summaries that the file cut off."""
        blocks, self._blocks = self._blocks, OrderedDict()
        for name, block in blocks.items():
            self._context.note(
                "a summary is cut off: what it says is in the ledger, its end is not"
            )
            yield from self._told(name, block)

    # --- lines ----------------------------------------------------------------------------------------

    def _message(self, row: Line, name: str, text: str) -> Iterator[Event] | None:
        failed = _FAILED.search(text)
        if failed is not None:
            return self._failed(row, name, text, failed)
        watchdog = _WATCHDOG.search(text)
        if watchdog is not None:
            return self._watchdog(row, text, watchdog)
        closing, death, left = _CLOSING.search(text), _DEATH.search(text), _LEFT.search(text)
        if closing is not None:
            return self._context_line(
                row, text, Role.TEARDOWN, pid=int(closing[1]), signal=closing[2]
            )
        if death is not None:
            self._was_asked_to_end = True
            return self._context_line(row, text, Role.TEARDOWN, signal=death[1])
        if left is not None:
            return self._context_line(
                row, text, Role.CONTEXT, state=left[1], attempts_left=int(left[2])
            )
        self._context.ignore(row, "a line that is not about failures of ranks")
        return None

    def _time(self, text: str) -> tuple[int, bool] | None:
        """When the line was written, None when it does not say."""
        glog = _GLOG.search(text)
        if glog is not None:
            month, day, hour, minute, second, fraction, _ = glog.groups()
            return self._context.times.without_year(int(month), day, hour, minute, second, fraction)
        dated = _DATED.search(text)
        return None if dated is None else self._context.times.parse(dated[1].replace(",", "."))

    def _failed(self, row: Line, name: str, text: str, match: re.Match[str]) -> Iterator[Event]:
        exit_code, local_rank, pid = int(match[1]), int(match[2]), int(match[3])
        stamp = self._time(text)
        if stamp is None:
            if self._mtime_us is None:
                raise RowProblem(
                    "a line without a time, and the input is no file with a time of its own"
                )
            stamp = (self._mtime_us, True)
        else:
            self._context.coverage(stamp[0])
        body = {"exit_code": exit_code, "local_rank": local_rank, "pid": pid}
        event = self._exit(row, stamp, exit_code, "", body, is_root=True)
        self._seen[name, pid, exit_code] = event.id
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        yield event

    def _watchdog(self, row: Line, text: str, match: re.Match[str]) -> Iterator[Event]:
        """A rank that waited too long for the others. It is hardly ever the one that stopped."""
        stamp = self._time(text)
        if stamp is None:
            raise RowProblem("a watchdog's line without a time")
        self._context.coverage(stamp[0])
        code = code_of(self._mapping, "exception", "watchdog")
        meant: dict[str, Any] = {"role": Role.CASCADE, **mapping_fields(self._mapping, code)}
        yield self._context.event(
            EventKind.OBSERVATION,
            row=row,
            t_us=stamp[0],
            inferred=stamp[1],
            host=self._context.file_host,
            ranks=(int(match[1]),),
            body={
                "work": match[2],
                "waited_us": int(match[3]) * 1000,
                "mapping": self._mapping.id,
                "code": code,
            },
            **meant,
        )

    def _context_line(
        self, row: Line, text: str, role: Role, **body: Any
    ) -> Iterator[Event] | None:
        stamp = self._time(text)
        if stamp is None:
            self._context.ignore(row, "what the agent did, without a time")
            return None
        self._context.coverage(stamp[0])
        return iter([
            self._context.event(
                EventKind.OBSERVATION, row=row, t_us=stamp[0], inferred=stamp[1],
                host=self._context.file_host, role=role, body=body,
            )
        ])  # fmt: skip

    # --- the summary ----------------------------------------------------------------------------------

    def _summary_line(
        self, row: Line, name: str, text: str, block: _Block | None
    ) -> list[Event] | None:
        if block is None:
            block = self._blocks[name] = _Block()
        block.line_count += 1
        if _BORDER.match(text.strip()) or block.line_count > BLOCK_LINES_MAX:
            del self._blocks[name]
            told = list(self._told(name, block))
            if not told:
                self._context.ignore(row, "a line of a summary")
            return told
        entries = block.root if block.is_root else block.others
        if "(first observed failure)" in text:
            block.is_root = True
        elif _INDEX.match(text.strip()):
            if self._entry_count < ENTRIES_MAX:
                self._entry_count += 1
                entries.append(_Entry(row))
            else:
                self._context.known_loss(1, "failures in summaries, more than can be held at once")
        elif entries and (found := _FIELD.match(text)) is not None and found[1] not in entries[-1].fields:  # fmt: skip
            entries[-1].fields[found[1]] = found[2].strip()[:MESSAGE_CHARS_MAX]
            entries[-1].last_line = entries[-1].fields[found[1]]
        elif entries and text.strip() and not _RULE.match(text.strip()):
            entries[-1].last_line = text.strip()[:MESSAGE_CHARS_MAX]
        self._context.ignore(row, "a line of a summary")
        return None

    def _told(self, name: str, block: _Block) -> Iterator[Event]:
        root_us: int | None = None
        self._entry_count -= len(block.root) + len(block.others)
        for entry in (*block.root, *block.others):
            stamp = self._stamp(entry)
            if stamp is None:
                self._context.known_loss(1, "failures in a summary without a time or an exit code")
                continue
            if any(entry is root for root in block.root):
                root_us = stamp[0]
                yield self._entry(name, entry, stamp, Role.INITIATING)
                continue
            # Stamps are whole seconds: within one of them nobody knows who was first.
            is_later = root_us is not None and stamp[0] > root_us
            yield self._entry(name, entry, stamp, Role.CASCADE if is_later else Role.UNKNOWN)

    def _stamp(self, entry: _Entry) -> tuple[int, bool] | None:
        if _EXIT.match(entry.fields.get("exitcode", "")) is None:
            return None
        try:
            stamp = self._context.times.parse(entry.fields.get("time", ""))
        except RowProblem:
            return None
        self._context.coverage(stamp.t_us)
        return stamp

    def _entry(self, name: str, entry: _Entry, stamp: tuple[int, bool], role: Role) -> Event:
        fields = entry.fields
        exit_code, pid = (int(number) for number in _EXIT.findall(fields["exitcode"])[0])
        rank = _RANK.match(fields.get("rank", ""))
        ranks = () if rank is None else (int(rank[1]),)
        body: dict[str, Any] = {"exit_code": exit_code, "pid": pid}
        if rank is not None:
            body["local_rank"] = int(rank[2])
        if entry.last_line:
            body["message"] = entry.last_line[:MESSAGE_CHARS_MAX]
        is_root = role == Role.INITIATING
        event = self._exit(
            entry.row, stamp, exit_code, entry.last_line, body, is_root=is_root, role=role,
            host=fields.get("host"), ranks=ranks, domain=[(DomainKind.RANK, str(r)) for r in ranks],
        )  # fmt: skip
        told = self._seen.pop((name, pid, exit_code), None)
        if told is None:
            return event
        # The line of the same failure said less: no host, no rank.
        return structs.replace(event, links=Links(supersedes=told))

    def _exit(
        self,
        row: Line,
        stamp: tuple[int, bool],
        exit_code: int,
        message: str,
        body: dict[str, Any],
        *,
        is_root: bool,
        role: Role = Role.INITIATING,
        host: str | None = None,
        **fields: Any,
    ) -> Event:
        code = exit_code_of(exit_code)
        if exit_code > 0 and message and not message.startswith("To enable traceback"):
            worded = code_of(self._mapping, "exception", message)
            code = worded if worded != "exception" or ":" in message else code
        if code == "signal/15" and is_root and not self._was_asked_to_end:
            code = "signal/15 first"
        meant: dict[str, Any] = {"role": role, **mapping_fields(self._mapping, code), **fields}
        body |= {"mapping": self._mapping.id, "code": code, "role_status": "hypothesis"}
        if is_root:
            body["first_observed"] = True
        return self._context.event(
            EventKind.OBSERVATION,
            row=row,
            t_us=stamp[0],
            inferred=stamp[1],
            host=host or self._context.file_host,
            body=body,
            **meant,
        )
