"""MLPerf result lines (`:::MLLOG {...}`) inside any console: initialisation, the run, its epochs, blocks and evaluations.

Every interval that was started must be ended, and one key is not started again before it ended; what breaks this is
counted and said. A file holds one run per `init_start` (or `run_start`) behind a `run_stop`; one before a `run_stop`
is a restart of the same run. MLPerf measures time to train and knows no steps: epochs and blocks count as productive
as they stand, and work that was done twice is not seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.source import Line, Source
from lastgood.ledger.importers.times import EARLIEST_US, LATEST_US

MARK: Final = ":::MLLOG"
NAME_CHARS_MAX: Final = 80
OPEN_MAX: Final = 1_000
"""More intervals than this are never open at once; a hostile file must not fill the memory."""

ECHO_US: Final = 5_000_000
"""Several processes may print the same line within this time; the first one counts."""

_STATES = {
    "init": "warmup", "staging": "warmup", "epoch": "productive", "block": "productive", "train": "productive",
    "eval": "productive", "checkpoint": "checkpoint.blocking", "save_checkpoint": "checkpoint.blocking",
}  # fmt: skip
"""Name of an interval, and what its time is; any other interval is recorded and claims nothing."""
_SIDES = {"INTERVAL_START": "begin", "INTERVAL_END": "end"}
_ENDING = re.compile(r"_(start|begin|stop|end)$")
_DECODER = json.JSONDecoder()


class MlperfImporter:
    """One run per result, with its intervals as sections."""

    name = "mlperf"
    version = "1"
    title = "MLPerf result lines (:::MLLOG) in any console"

    def recognises(self, head: Head) -> int:
        """The mark that no other log has."""
        return 95 if MARK.encode() in head.data else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Starts, ends and sections; lines without the mark are not looked at."""
        result = _Result(context, PurePath(source.name).name)
        lines = source.lines(containing=[MARK.encode()])
        yield from context.rows(lines, result.parse)
        result.finish()


IMPORTER = MlperfImporter()


class _Said(NamedTuple):
    """What one line says."""

    key: str
    side: str | None
    """`begin`, `end`, or None for a point in time."""
    at_us: int
    value: Any
    metadata: dict[str, Any]
    scope: str
    """Namespace and rank: where a key may be open only once."""

    @property
    def name(self) -> str:
        """`epoch` of `epoch_start` and `epoch_stop`."""
        return _ENDING.sub("", self.key)


@dataclass(slots=True)
class _Result:
    """What is known of the run that the lines belong to."""

    context: Context
    file: str
    number: int = 0
    """1-based: which run of the file."""
    is_running: bool = False
    has_run: bool = False
    """`run_start` was seen since the last start of a run."""
    start_us: int | None = None
    is_starting: bool = False
    opened: dict[tuple[str, str], int] = field(default_factory=dict)
    """Begin of the open intervals, by scope and name."""
    closed: dict[tuple[str, str], int] = field(default_factory=dict)
    """End of the last interval of each scope and name."""

    @property
    def run(self) -> str:
        """As the person says, else by the file's name; the second run of a file has its number behind it."""
        stem = self.context.options.run or f"mlperf/{self.file.split('.')[0] or 'result'}"
        return stem if self.number <= 1 else f"{stem}/{self.number}"

    def parse(self, line: Line) -> list[Event]:
        """The events of a line."""
        if MARK not in line.text:
            self.context.ignore(line, "a line of the console without a result")
            return []
        said = _said(line.text)
        self.context.coverage(said.at_us)
        if said.side is None:
            self.context.ignore(line, "a point in time: a setting or a result")
            return []
        return list(self._interval(said, line))

    def finish(self) -> None:
        """Says what was never ended."""
        for name in sorted({name for _, name in self.opened}):
            self.context.note(f"interval {name} was started and never ended")

    def _interval(self, said: _Said, line: Line) -> Iterator[Event]:
        name, key = said.name, (said.scope, said.name)
        echoed_us = (self.opened if said.side == "begin" else self.closed).get(key)
        if echoed_us is not None and 0 <= said.at_us - echoed_us < ECHO_US:
            self.context.ignore(line, "another process says the same")
            return
        if said.side == "begin" and name in {"init", "run"}:
            yield from self._start(said, line)
        if not self.is_running:
            raise RowProblem("an interval outside of a run: no init_start or run_start before it")
        if said.side == "begin":
            if key in self.opened:
                self.context.note(f"interval {name} was started again before it ended")
            if len(self.opened) < OPEN_MAX:
                self.opened[key] = said.at_us
        elif self.opened.pop(key, None) is None:
            raise RowProblem("an interval ends that was not started", name)
        elif len(self.closed) < OPEN_MAX:
            self.closed[key] = said.at_us
        if name != "run":
            yield self._section(said, line)
        elif said.side == "end":
            yield from self._stop(said, line)
        elif not self.is_starting:
            self.context.hold(line)
        self.is_starting = False

    def _start(self, said: _Said, line: Line) -> Iterator[Event]:
        """A start of the run: the first one, or the one of a restart, which begins with its initialisation."""
        is_new = not self.is_running
        if is_new or said.name == "init" or self.has_run:
            self.start_us, self.has_run, self.is_starting = said.at_us, False, True
            self.opened.clear()
            if is_new:
                self.number += 1
                self.is_running = True
                yield self._event(EventKind.RUN_START, said, line)
            yield self._event(EventKind.ATTEMPT_START, said, line)
        self.has_run = self.has_run or said.name == "run"

    def _stop(self, said: _Said, line: Line) -> Iterator[Event]:
        status = said.metadata.get("status")
        body = {"result": str(status)[:NAME_CHARS_MAX]} if status is not None else {}
        for name in sorted({name for _, name in self.opened}):
            self.context.note(f"interval {name} was not ended when the run stopped")
        yield self._event(EventKind.RUN_END, said, line, body=body)
        self.is_running = False
        self.opened.clear()

    def _section(self, said: _Said, line: Line) -> Event:
        name = said.name[:NAME_CHARS_MAX]
        body: dict[str, Any] = {"name": name, "state": _STATES.get(name, "parallel")}
        for key in ("epoch_num", "step_num", "samples_count", "epoch_count"):
            count = said.metadata.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and abs(count) < 2**53:
                body[key] = count
        return self._event(f"section.{said.side}", said, line, body=body, tells=(said.scope, name))

    def _event(
        self,
        kind: str,
        said: _Said,
        line: Line,
        *,
        body: dict[str, Any] | None = None,
        tells: tuple[str, ...] = (),
    ) -> Event:
        told = dict(body or {})
        if self.start_us is not None:
            told["start_us"] = self.start_us
        return self.context.event(
            kind,
            row=line,
            t_us=said.at_us,
            identity=(self.run, said.at_us, *tells),
            run=self.run,
            body=told,
        )


def _said(text: str) -> _Said:
    """The result in a line, whatever stands before and behind it."""
    _, _, rest = text.partition(MARK)
    try:
        found, _ = _DECODER.raw_decode(rest.lstrip())
    except (ValueError, RecursionError) as error:
        raise RowProblem("what follows the mark is no JSON") from error
    if not isinstance(found, dict):
        raise RowProblem("what follows the mark is no object")
    key, kind, time_ms = found.get("key"), found.get("event_type"), found.get("time_ms")
    if not isinstance(key, str) or not key:
        raise RowProblem("key is missing")
    if len(key) > NAME_CHARS_MAX:
        raise RowProblem("key is too long for a name", f"{len(key):,} characters")
    if not isinstance(kind, str) or (kind != "POINT_IN_TIME" and kind not in _SIDES):
        raise RowProblem("event_type is none of MLPerf's", repr(kind)[:40])
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float):
        raise RowProblem("time_ms is no number", repr(time_ms)[:40])
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    try:
        at_us = round(time_ms * 1000)
    except (ValueError, OverflowError) as error:
        raise RowProblem("time_ms is no number", repr(time_ms)[:40]) from error
    if not EARLIEST_US <= at_us <= LATEST_US:
        raise RowProblem("time_ms is no time between 1990 and 2100", repr(time_ms)[:40])
    scope = f"{found.get('namespace') or ''}/{metadata.get('rank', '')}"[:NAME_CHARS_MAX]
    return _Said(key, _SIDES.get(kind), at_us, found.get("value"), metadata, scope)
