"""Jobs of the Slurm workload manager: `sacct -P` in any order of columns with a header, or `sacct --json`.

Ask for it with `SLURM_TIME_FORMAT=%s` (times in Slurm's own format have no zone) and with `-D` (without it only the last
attempt of a job that was put back into the queue is listed). Without a header the columns must be those of
`DOCUMENTED`, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.slurm_attempt import (
    JobAttempt,
    JobEvents,
    split_exit,
    split_state,
)
from lastgood.ledger.importers.slurm_text import (
    DELIMITERS,
    NO_COUNT,
    Layout,
    Table,
    gpus_of_gres,
    gpus_of_tres,
    header_of,
    read_rows,
)
from lastgood.ledger.importers.source import Source, json_items
from lastgood.ledger.importers.times import ParsedTime

DOCUMENTED = (
    "jobidraw", "jobname", "state", "exitcode", "derivedexitcode", "submit", "eligible", "start", "end", "elapsedraw",
    "restarts", "nnodes", "nodelist", "failednode", "alloctres", "reason", "planned", "suspended", "sluid",
    "originalsluid",
)  # fmt: skip
"""Columns of a table without a header; the last two are missing before Slurm 25.05."""
_KNOWN = frozenset(DOCUMENTED) | frozenset((
    "jobid", "account", "user", "uid", "group", "gid", "cluster", "partition", "qos", "elapsed", "cputime", "cputimeraw",
    "alloccpus", "allocnodes", "ncpus", "ntasks", "reqcpus", "reqmem", "reqtres", "reqnodes", "submitline", "workdir",
    "comment", "admincomment", "systemcomment", "maxrss", "totalcpu", "timelimit", "timelimitraw", "priority",
    "constraints", "container", "extra", "flags", "licenses", "reservation", "reqgres", "allocgres", "wckey",
))  # fmt: skip
_FREE = frozenset((
    "jobname", "submitline", "workdir", "comment", "admincomment", "systemcomment", "reason", "extra", "container",
    "wckey", "constraints", "account", "stdout", "stderr", "stdin",
))  # fmt: skip
_JOB = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?(?:\.[\w+]+)?")
_STATE = re.compile(r"[A-Z_]{3,20}\+?(?: by \S{1,64})?")
_EXIT = re.compile(r"\d+:\d+|")
_TIME = re.compile(r"\d{9,11}|\d{4}-\d\d-\d\d[T ][\d:.]+\S*|Unknown|None|INVALID|N/A|")
_NO_TIME = frozenset(("", "unknown", "none", "n/a", "invalid", "0", "(null)"))
_TIMES = ("submit", "eligible", "start", "end")


class SlurmJobs:
    """Each attempt of a job is a start and an end of its run, exposure, and an incident when it failed."""

    name = "slurm_jobs"
    version = "1"
    title = "Slurm jobs: sacct -D -P (any delimiter) or sacct --json"

    def recognises(self, head: Head) -> int:
        """A header with JobID and State, the documented order, or JSON with jobs that have a state and times."""
        text = head.text.lstrip("\ufeff \r\n")
        if text.startswith("{"):
            if '"jobs"' not in head.text:
                return 0
            return 90 if '"exit_code"' in head.text and '"nodes"' in head.text else 30
        for line in text.splitlines()[:5]:
            if _header(line) is not None:
                return 95
        first = text.partition("\n")[0]
        return 85 if _bare(first) is not None else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Events attempt by attempt, in the order of the file."""
        jobs = JobEvents(context, context.mapping("slurm-state"))
        if source.head.lstrip()[:1] in {b"{", b"["}:
            yield from context.rows(
                json_items(source, "jobs"), lambda row: jobs.of(_from_json(row, context), row)
            )
            return
        table = Table(_header, _bare, _fits, _FREE)
        steps = _Steps(context)

        def parse(row: Item) -> Iterator[Event] | None:
            if steps.ignores(row):
                return None
            return jobs.of(_from_fields(row, context), row)

        yield from context.rows(read_rows(source.lines(), table), parse)


IMPORTER = SlurmJobs()


class _Steps:
    """Rows of steps (`5123.batch`) repeat what the row of their job says."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def ignores(self, row: Item) -> bool:
        """True for a step, which is counted as ignored."""
        if "." not in _job_id(row.value):
            return False
        self._context.ignore(row, "a step of a job, which has a row of its own")
        return True


def _header(text: str) -> Layout | None:
    layout = header_of(text, _KNOWN, must="state")
    if layout is None or not {"jobid", "jobidraw"} & set(layout.columns):
        return None
    return layout


def _bare(text: str) -> Layout | None:
    """The documented columns, when the first line fits them."""
    for delimiter in DELIMITERS:
        for columns in (DOCUMENTED, DOCUMENTED[:-2]):
            layout = Layout(delimiter, columns)
            fields = layout.split(text)
            if len(fields) >= 3 and _starts_like_a_job(fields, layout):
                table = Table(_header, _bare, _fits, _FREE)
                if table.has_row(text, layout):
                    return layout
    return None


def _starts_like_a_job(fields: list[str], layout: Layout) -> bool:
    return len(fields) >= len(layout.columns) and _JOB.fullmatch(fields[0]) is not None


def _fits(fields: dict[str, str]) -> bool:
    """True when the typed columns look as they should: then text of a person was not laid over them."""
    checks: list[tuple[str, re.Pattern[str]]] = [
        ("jobidraw", _JOB),
        ("jobid", _JOB),
        ("state", _STATE),
        ("exitcode", _EXIT),
        ("derivedexitcode", _EXIT),
        *((name, _TIME) for name in _TIMES),
    ]
    return all(
        pattern.fullmatch(fields[name].strip()) is not None
        for name, pattern in checks
        if name in fields
    )


def _job_id(fields: dict[str, str]) -> str:
    raw = fields.get("jobidraw") or fields.get("jobid") or ""
    return raw.strip()


# --- delimited ----------------------------------------------------------------------------------------


def _from_fields(row: Item, context: Context) -> JobAttempt:
    fields: dict[str, str] = row.value
    job = _job_id(fields)
    if _JOB.fullmatch(job) is None:
        raise RowProblem("no job id", repr(job[:40]))
    state, by = _word(lambda: split_state(fields.get("state", "")), "no job state")
    code, signal = _word(lambda: split_exit(fields.get("exitcode", "")), "no exit code")
    stamps = [_stamp(fields.get(name, ""), context) for name in ("submit", "start", "end")]
    tres = fields.get("alloctres") or ""
    devices = _allocated(tres, fields.get("allocgres") or "", row, context)
    return JobAttempt(
        cluster=fields.get("cluster") or context.options.cluster,
        job=job,
        name=fields.get("jobname") or None,
        state=state,
        cancelled_by=by,
        exit_code=code,
        signal=signal,
        submit_us=_us(stamps[0]),
        start_us=_us(stamps[1]),
        end_us=_us(stamps[2]),
        key_us=next((stamp.name_us for stamp in stamps[1:] if stamp is not None), 0),
        is_inferred=any(stamp.is_inferred for stamp in stamps if stamp is not None),
        restarts=_whole(fields.get("restarts")),
        nodes=fields.get("nodelist") or "",
        node_count=_whole(fields.get("nnodes") or fields.get("allocnodes")),
        failed_nodes=fields.get("failednode") or "",
        devices=devices,
        reason=_said(fields.get("reason")),
        elapsed_us=_micros(_whole(fields.get("elapsedraw"))),
    )


def _allocated(tres: str, gres: str, row: Item, context: Context) -> int | None:
    """Accelerators of an allocation; None when it is not listed, or lists a number that cannot be."""
    try:
        found = gpus_of_tres(tres)
        if found is None and gres:
            found = gpus_of_gres(gres)
    except ValueError as error:
        context.leave_out(row, NO_COUNT, str(error))
        return None
    # An allocation that is listed and names no accelerator had none; one that is not listed is not known.
    return 0 if found is None and tres.strip() else found


def _word(read: Callable[[], Any], reason: str) -> Any:
    """What `read` gives; its ValueError with a reason that can be counted."""
    try:
        return read()
    except ValueError as error:
        raise RowProblem(reason, str(error)) from error


def _stamp(text: str, context: Context) -> ParsedTime | None:
    return None if text.strip().lower() in _NO_TIME else context.times.parse(text)


def _us(stamp: ParsedTime | None) -> int | None:
    return None if stamp is None else stamp.t_us


def _whole(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _micros(seconds: int | None) -> int | None:
    return None if seconds is None or seconds < 0 else seconds * 1_000_000


def _said(text: str | None) -> str | None:
    text = (text or "").strip()
    return None if text.lower() in {"", "none", "(null)"} else text


# --- JSON ---------------------------------------------------------------------------------------------


def _from_json(row: Item, context: Context) -> JobAttempt:
    """An item of `jobs`; numbers come bare, or as `{"set", "infinite", "number"}`, by the version of Slurm."""
    job = row.value
    if not isinstance(job, dict) or "job_id" not in job:
        raise RowProblem("no job_id")
    time = _mapping(job, "time")
    exit_code = _mapping(job, "exit_code")
    state, by = _word(lambda: split_state(_state(job.get("state"))), "no job state")
    devices, is_listed = _devices(job, row, context)
    nodes = job.get("nodes") or ""
    stamps = [_epoch(time.get(name), context) for name in ("submission", "start", "end")]
    return JobAttempt(
        cluster=_text(job.get("cluster")) or context.options.cluster,
        job=str(_number(job.get("job_id"), "job_id")),
        name=_text(job.get("name")),
        state=state,
        cancelled_by=by or _text(_mapping(job, "state").get("kill_request_user")),
        exit_code=_number(exit_code.get("return_code"), "return_code"),
        signal=_signal(exit_code),
        submit_us=stamps[0],
        start_us=stamps[1],
        end_us=stamps[2],
        key_us=stamps[1] or stamps[2] or 0,
        is_inferred=False,
        restarts=_number(job.get("restart_cnt"), "restart_cnt"),
        nodes=nodes if isinstance(nodes, str) else "",
        node_count=_number(job.get("allocation_nodes"), "allocation_nodes"),
        failed_nodes=_text(job.get("failed_node")) or "",
        devices=devices if devices is not None or not is_listed else 0,
        reason=_said(_text(_mapping(job, "state").get("reason"))),
        elapsed_us=_micros(_number(time.get("elapsed"), "elapsed")),
    )


def _state(value: Any) -> str:
    """The first state that says how it stands; older versions write one word, newer ones a list with flags."""
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) else ""


def _mapping(holder: dict[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any, name: str) -> int | None:
    if isinstance(value, dict):
        value = (
            value.get("number") if value.get("set", True) and not value.get("infinite") else None
        )
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowProblem(f"{name} is not a whole number", repr(value)[:40])
    return value


def _epoch(value: Any, context: Context) -> int | None:
    seconds = _number(value, "a time")
    return None if not seconds or seconds < 0 else context.times.epoch(seconds, unit="s").t_us


def _signal(exit_code: dict[str, Any]) -> int | None:
    signal = exit_code.get("signal")
    if not isinstance(signal, dict):
        return None
    found = signal.get("id", signal.get("signal_id"))
    return _number(found, "signal")


def _devices(job: dict[str, Any], row: Item, context: Context) -> tuple[int | None, bool]:
    """Accelerators allocated, and whether the allocation is listed at all."""
    tres = _mapping(job, "tres").get("allocated")
    if isinstance(tres, list) and tres:
        typed = untyped = None
        for entry in tres:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or entry.get("type") != "gres":
                continue
            count = entry.get("count")
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 10**9:
                if name == "gpu" or name.startswith("gpu:"):
                    context.leave_out(row, NO_COUNT, f"{name}={count!r}")
                    return None, False
                continue
            if name == "gpu":
                untyped = count
            elif name.startswith("gpu:"):
                typed = (typed or 0) + count
        return (typed if untyped is None else untyped), True
    return None, False
