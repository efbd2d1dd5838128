"""torchrun's JSON: error files of ranks in both of their shapes, events of the agent, events of the rendezvous.

An error file is written by the process that dies, so a process that is killed writes none, and the parent writes a copy of
the first one. A copy has the same time and words: both are one event here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec

from lastgood.contract.taxonomy import DomainKind, EventKind, Role
from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.mapping import mapping_fields
from lastgood.ledger.importers.source import Source
from lastgood.ledger.importers.wording import code_of

MESSAGE_CHARS_MAX = 1_000
_PLACE = re.compile(r"attempt_(\d{1,6})/(\d{1,6})/[^/]*$")
"""Folders of the launcher: attempt (0-based) and local rank."""
_STATUS = "torchelastic.worker.status."
_FAILED = frozenset(("FAILED", "UNHEALTHY"))


class Records:
    """Reads one file of records."""

    def __init__(self, context: Context, source: Source) -> None:
        """The file's path may say which attempt and local rank it belongs to, its time stands in for missing ones."""
        self._context = context
        self._mapping = context.mapping("torch-exit")
        self._mtime_us = source.mtime_us
        place = _PLACE.search(source.path.as_posix()) if source.path is not None else None
        self._attempt = None if place is None else int(place[1]) + 1
        self._local_rank = None if place is None else int(place[2])

    def parse(self, row: Item) -> Iterator[Event] | None:
        """One record of any of the kinds."""
        record = row.value
        if not isinstance(record, dict):
            raise RowProblem("not a record of torch.distributed.elastic")
        if "node_state" in record and "run_id" in record:
            return self._rendezvous(row, record)
        if isinstance(record.get("name"), str) and "source" in record:
            return self._event(row, record)
        if "message" in record:
            return self._error_file(row, record)
        raise RowProblem("not a record of torch.distributed.elastic")

    # --- error files --------------------------------------------------------------------------------

    def _error_file(self, row: Item, record: dict[str, Any]) -> Iterator[Event]:
        message, stack, stamp, code = _error(record)
        t_us, inferred = self._time(stamp, "s")
        yield self._failure(
            row,
            message,
            stack,
            t_us=t_us,
            inferred=inferred,
            host=self._context.file_host,
            attempt=self._attempt,
            body={"local_rank": self._local_rank, "exit_code": code},
            identity=(self._context.file_host or "", t_us, _digest(message)),
        )

    def _failure(
        self,
        row: Item,
        message: str,
        stack: str,
        *,
        t_us: int,
        body: dict[str, Any],
        role: str | None = None,
        **fields: Any,
    ) -> Event:
        code = code_of(self._mapping, "exception", _telling(message, stack))
        meant = mapping_fields(self._mapping, code)
        self._context.coverage(t_us)
        told = {
            "message": message[:MESSAGE_CHARS_MAX],
            "mapping": self._mapping.id,
            "code": code,
            **body,
        }
        return self._context.event(
            EventKind.OBSERVATION,
            row=row,
            t_us=t_us,
            body={key: value for key, value in told.items() if value is not None},
            **(meant | {"role": role or meant.get("role") or Role.UNKNOWN} | fields),
        )

    # --- events of the agent --------------------------------------------------------------------------

    def _event(self, row: Item, record: dict[str, Any]) -> Iterator[Event] | None:
        """A worker or an agent changed its state. `KILLED` is what the agent did to it, because of another one."""
        state = record["name"].removeprefix(_STATUS)
        stamp = record.get("timestamp")
        if state == record["name"] or state not in _FAILED | {"KILLED"}:
            if stamp:
                self._context.coverage(self._time(stamp, "ms")[0])
            self._context.ignore(row, "an event of the agent that is no failure")
            return None
        return self._status(row, record, state)

    def _status(self, row: Item, record: dict[str, Any], state: str) -> Iterator[Event]:
        told = record.get("metadata")
        told = told if isinstance(told, dict) else {}
        message, stack, stamp, _ = _error(_decoded(told.get("raw_error")), default="")
        if record.get("timestamp") or not stamp:
            t_us, inferred = self._time(record.get("timestamp"), "ms")
        else:  # the agent mostly leaves its own stamp at zero; the error file inside has one
            t_us, inferred = self._time(stamp, "s")
        rank = _count(told.get("global_rank"))
        ranks = () if rank is None else (rank,)
        more = _decoded(told.get("metadata"))
        body: dict[str, Any] = {
            "source": _text(record.get("source")),
            "state": state,
            "exit_code": _first(more.get("exit_code")),
            "local_rank": _first(more.get("local_rank")),
            "pid": _first(more.get("worker_pid")),
        }
        restarts = _count(told.get("agent_restarts"))
        fields: dict[str, Any] = {
            "t_us": t_us,
            "inferred": inferred,
            "host": _text(told.get("hostname")) or self._context.file_host,
            "domain": [(DomainKind.RANK, str(r)) for r in ranks],
            "ranks": ranks,
            "run": self._context.options.run or _text(told.get("run_id")),
            "attempt": None if restarts is None else restarts + 1,
        }
        exit_code = body["exit_code"]
        if state == "KILLED":
            self._context.coverage(t_us)
            body = {key: value for key, value in body.items() if value is not None}
            yield self._context.event(
                EventKind.OBSERVATION, row=row, role=Role.TEARDOWN, body=body, **fields
            )
        elif (not message or message == "<NONE>") and exit_code is not None:
            self._context.coverage(t_us)
            code = exit_code_of(exit_code)
            body |= {"mapping": self._mapping.id, "code": code}
            meant: dict[str, Any] = {"role": Role.UNKNOWN, **mapping_fields(self._mapping, code)}
            body = {key: value for key, value in body.items() if value is not None}
            yield self._context.event(EventKind.OBSERVATION, row=row, body=body, **meant, **fields)
        else:
            yield self._failure(row, message or "no message", stack, body=body, **fields)

    # --- events of the rendezvous ---------------------------------------------------------------------

    def _rendezvous(self, row: Item, record: dict[str, Any]) -> Iterator[Event] | None:
        if record.get("node_state") != "FAILED":
            self._context.ignore(row, "a step of the rendezvous")
            return None
        t_us, inferred = self._time(record.get("timestamp"), "ms")
        message = _text(record.get("message")) or "no message"
        return iter([
            self._failure(
                row,
                message,
                _text(record.get("error_trace")) or "",
                t_us=t_us,
                inferred=inferred,
                host=_text(record.get("hostname")) or self._context.file_host,
                run=self._context.options.run or _text(record.get("run_id")),
                body={"step": _text(record.get("name")), "node_rank": record.get("rank")},
            )
        ])  # fmt: skip

    def _time(self, stamp: Any, unit: str) -> tuple[int, bool]:
        """The record's time; else, inferred, that of the file."""
        if isinstance(stamp, str) and stamp.strip().isdigit() and len(stamp) < 20:
            stamp = int(stamp)
        if isinstance(stamp, int | float) and not isinstance(stamp, bool) and stamp:
            return self._context.times.epoch(stamp, unit=unit).t_us, False
        if stamp:
            raise RowProblem("not a time", repr(stamp)[:60])
        if self._mtime_us is None:
            raise RowProblem(
                "no time in the record, and the input is no file with a time of its own"
            )
        return self._mtime_us, True


def exit_code_of(exit_code: int) -> str:
    """The code of an exit: `signal/9` of -9, `exit/1` of 1."""
    return f"signal/{-exit_code}" if exit_code < 0 else f"exit/{exit_code}"


def _error(record: Any, *, default: str | None = None) -> tuple[str, str, Any, int | None]:
    """Message, call stack, time and exit code of an error file's content, in both of its shapes."""
    record = record if isinstance(record, dict) else {}
    message = record.get("message")
    if isinstance(message, dict):
        more = message.get("extraInfo")
        more = more if isinstance(more, dict) else {}
        code = message.get("errorCode")
        return (
            _text(message.get("message")) or "",
            _text(more.get("py_callstack")) or "",
            more.get("timestamp"),
            code if isinstance(code, int) and not isinstance(code, bool) else None,
        )
    if isinstance(message, str):
        return message, "", record.get("timestamp"), None
    if default is None:
        raise RowProblem("no message in the error file")
    return default, "", None, None


def _telling(message: str, stack: str) -> str:
    """The words to look in: the message, and the last line of the stack (its exception)."""
    last = stack.rstrip().rpartition("\n")[2]
    return f"{message[:MESSAGE_CHARS_MAX]}\n{last[:MESSAGE_CHARS_MAX]}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _decoded(text: Any) -> dict[str, Any]:
    """JSON inside a text, as the agent nests it; nothing when it is none."""
    if not isinstance(text, str):
        return text if isinstance(text, dict) else {}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _first(value: Any) -> int | None:
    """The agent writes numbers as lists of one."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    """A whole number of zero or more, or None."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
