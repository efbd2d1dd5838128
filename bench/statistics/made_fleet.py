"""A made-up fleet of any size, written straight into the form of an export: for benches only.

No ledger stands behind these files, so their manifest names a root of zeros and `verify` has nothing to check. Rows
are drawn in NumPy month by month: most are driver lines (observations) in bursts, the rest incidents with begin and
end, and each node joins the exposure once.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet

from lastgood.base.rng import numpy_stream
from lastgood.ledger.columns import NO_TIME, Coded, Coverage, EventTable, MoreDomains
from lastgood.ledger.parquet import FLAGS, MANIFEST, SCHEMA, File, Manifest
from lastgood.ledger.parquet_export import coverage_text, write_table
from lastgood.ledger.table import CODED_COLUMNS, TIME_COLUMNS

BEGIN_US = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z
CAUSES = (
    "gpu.memory",
    "gpu.link",
    "gpu.bus",
    "network.cable",
    "host.os",
    "software.driver",
    "unknown",
)
CODES = ("48", "63", "74", "79", "94", "119", "31")
LINES_PER_BURST = 20
BURST_SECONDS = 300
CLOSED_SHARE = 0.97
DEVICES = 8
NODES_PER_RACK = 16


def make_export(folder: Path, *, events: int, nodes: int, months: int, seed: int) -> Manifest:
    """Writes about so many events of so many nodes as monthly files."""
    folder.mkdir(parents=True)
    month_us = 30 * 86_400_000_000
    names = tuple(f"node{number:05}" for number in range(nodes))
    files = []
    first_seq = 0
    for month in range(months):
        random = numpy_stream(seed, "made-fleet", month)
        begin_us = BEGIN_US + month * month_us
        table = _month(random, begin_us, month_us, events // months, names, month)
        table = replace(table, seq=np.arange(first_seq, first_seq + len(table)))
        first_seq += len(table)
        files.append(
            _write(
                folder / f"events-{month:03}.parquet",
                table,
                with_coverage=month == 0,
                end_us=BEGIN_US + months * month_us,
            )
        )
    manifest = Manifest(
        schema=SCHEMA,
        origin="bench/made-fleet",
        size=first_seq,
        root="00" * 32,
        tree_head="none: no ledger stands behind a bench",
        run_modes=(),
        files=tuple(files),
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return manifest


def _month(
    random: np.random.Generator,
    begin_us: int,
    month_us: int,
    count: int,
    names: tuple[str, ...],
    month: int,
) -> EventTable:
    """One month: bursts of driver lines, declared incidents, and in the first one the joins."""
    bursts = int(count * 0.8) // LINES_PER_BURST
    incidents = int(count * 0.1)
    line_t = np.repeat(random.uniform(0, month_us, bursts), LINES_PER_BURST)
    line_t += random.uniform(0, BURST_SECONDS * 1e6, len(line_t))
    line_host = np.repeat(random.integers(0, len(names), bursts), LINES_PER_BURST)
    line_code = np.repeat(random.integers(0, len(CODES), bursts), LINES_PER_BURST)
    open_t = random.uniform(0, month_us, incidents)
    open_host = random.integers(0, len(names), incidents)
    closed = random.random(incidents) < CLOSED_SHARE
    close_t = open_t + random.exponential(4 * 3600e6, incidents)
    joins = len(names) if month == 0 else 0
    kind = np.concatenate(
        [np.zeros(len(line_t)), np.full(incidents, 1), np.full(closed.sum(), 2), np.full(joins, 3)]
    )
    t_us = (
        np.concatenate([line_t, open_t, close_t[closed], np.zeros(joins)]).astype(np.int64)
        + begin_us
    )
    host = np.concatenate([line_host, open_host, open_host[closed], np.arange(joins)])
    number = np.arange(incidents)
    incident = np.concatenate(
        [np.full(len(line_t), -1), number, number[closed], np.full(joins, -1)]
    )
    cause = np.concatenate(
        [line_code, random.integers(0, len(CAUSES), incidents), np.full(closed.sum() + joins, -1)]
    )
    code = np.concatenate([line_code, np.full(incidents + closed.sum() + joins, -1)])
    order = np.argsort(t_us, kind="stable")
    return _table(
        kind[order],
        t_us[order],
        host[order],
        incident[order],
        cause[order],
        code[order],
        names,
        month,
    )


def _table(
    kind: Any,
    t_us: Any,
    host: Any,
    incident: Any,
    cause: Any,
    code: Any,
    names: tuple[str, ...],
    month: int,
) -> EventTable:
    count = len(t_us)
    nothing = Coded(np.broadcast_to(np.int32(-1), count), ())
    said: dict[str, Any] = dict.fromkeys(CODED_COLUMNS, nothing)
    coded = lambda codes, words: Coded(codes.astype(np.int32), words)  # noqa: E731
    is_failure = kind < 2
    said |= {
        "kind": coded(kind, ("observation", "incident.open", "incident.close", "exposure.join")),
        "class_": coded(
            np.where(is_failure, (cause == 4).astype(int), -1), ("fail_stop", "fail_slow")
        ),
        "cause": coded(np.where(is_failure, cause, -1), CAUSES),
        "cause_status": coded(np.where(is_failure, 0, -1), ("supported",)),
        "symptom": coded(np.where(is_failure, 0, -1), ("device_error",)),
        "role": coded(np.where(kind == 0, 0, -1), ("initiating",)),
        "incident": coded(
            incident, tuple(f"m{month}-{number}" for number in range(incident.max() + 1))
        ),
        "host": coded(host, names),
        "device": coded(
            np.where(kind == 0, host * DEVICES + code, -1),
            tuple(f"{name}/{number}" for name in names for number in range(DEVICES)),
        ),
        "rack": coded(host // NODES_PER_RACK, tuple(f"rack{n}" for n in range(len(names)))),
        "code": coded(code, CODES),
        "mapping": coded(np.where(code >= 0, 0, -1), ("xid/1@sha256:made",)),
        "importer": coded(np.where(kind == 0, 0, 1), ("xid", "made")),
        "at_risk": coded(np.where(kind == 3, host, -1), tuple(f"-/host:{name}" for name in names)),
    }
    unknown = np.broadcast_to(np.int64(NO_TIME), count)
    times = dict.fromkeys(TIME_COLUMNS, unknown) | {"observed_us": t_us}
    flags = dict.fromkeys(FLAGS, np.broadcast_to(np.False_, count)) | {
        "has_occurred_us": np.broadcast_to(np.True_, count)
    }
    empty = np.empty(0, np.int64)
    return EventTable(
        seq=np.arange(count),
        t_us=t_us,
        devices=np.where(kind == 3, 8, -1),
        injected=np.broadcast_to(np.int8(-1), count),
        more_domains=MoreDomains(
            row=empty, kind=empty.astype(np.int8), code=empty.astype(np.int32)
        ),
        **said,
        **times,
        **flags,
    )


def _write(path: Path, table: EventTable, *, with_coverage: bool, end_us: int) -> File:
    count = len(table)
    coverage: list[str | None] = [None] * count
    if with_coverage:
        coverage[0] = coverage_text(
            Coverage(begin_us=BEGIN_US, end_us=end_us, format="xid", is_declared=True)
        )
    texts = {
        "id": [f"{path.stem}-{number}" for number in range(count)],
        "supersedes": [None] * count,
        "coverage": coverage,
        "more_domains": [None] * count,
    }
    write_table(pyarrow.parquet, path, table, texts)
    return File(
        name=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        bytes=os.path.getsize(path),
        rows=count,
        begin_us=int(table.t_us[0]),
        end_us=int(table.t_us[-1]),
    )
