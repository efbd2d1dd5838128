"""Nodes of the Slurm workload manager: `sacctmgr show event -P`, and `scontrol show node` as text or JSON.

The events of the accounting are when each node was down or drained, from when to when: incidents, and the only ready
denominator that Slurm has. What `scontrol` shows is one moment: how many accelerators each node has, since when it is
up, and which nodes are out of service now and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, Head, RowProblem
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.slurm_outages import Outage, Outages
from lastgood.ledger.importers.slurm_present import (
    devices_of,
    from_json,
    from_text,
    present,
    read_records,
    said,
    state_in,
)
from lastgood.ledger.importers.slurm_text import (
    DELIMITERS,
    Layout,
    Table,
    gpus_of_tres,
    header_of,
    read_rows,
)
from lastgood.ledger.importers.source import Source, json_items

DEFAULT = ("cluster", "nodename", "timestart", "timeend", "state", "reason", "user")
DOCUMENTED = (
    "cluster", "nodename", "timestart", "timeend", "state", "stateraw", "reason", "user", "tres",
)  # fmt: skip
"""Columns of tables without a header: the default ones, and those of docs/formats.md."""
_KNOWN = frozenset(DOCUMENTED) | frozenset(
    ("start", "end", "duration", "event", "eventraw", "clusternodes", "clustername", "node")
)
_FREE = frozenset(("reason", "user"))
_TIME = re.compile(r"\d{9,11}|\d{4}-\d\d-\d\d[T ][\d:.]+\S*|Unknown|None|N/A|")
_STATE = re.compile(r"(?:[A-Za-z_]{2,31}[*~#!%$@^-]*)(?:\+[A-Za-z_]{2,31}[*~#!%$@^-]*)*|")
_NO_TIME = frozenset(("", "unknown", "none", "n/a", "0", "(null)"))


class SlurmNodes:
    """Outages of nodes as incidents and missing exposure; present nodes as exposure."""

    name = "slurm_nodes"
    version = "1"
    title = "Slurm nodes: sacctmgr show event -P, scontrol show node (text or --json)"

    def recognises(self, head: Head) -> int:
        """A header with NodeName and TimeStart, a row of the default columns, `NodeName=`, or JSON with nodes."""
        text = head.text.lstrip("\ufeff \r\n")
        if text.startswith("{"):
            is_nodes = '"nodes"' in head.text and '"slurmd_start_time"' in head.text
            return 92 if is_nodes else 0
        if text.startswith("NodeName=") and "State=" in text:
            return 95
        if any(_header(line) is not None for line in text.splitlines()[:5]):
            return 95
        return 80 if _bare(text.partition("\n")[0]) is not None else 0

    def read(self, source: Source, context: Context) -> Iterator[Event]:
        """Events record by record, in the order of the file."""
        outages = Outages(context, context.mapping("slurm-node-state"))
        head = source.head.lstrip()
        if head[:1] in {b"{", b"["}:
            yield from context.rows(
                json_items(source, "nodes"),
                lambda row: present(from_json(row, context), outages, row),
            )
        elif head.startswith(b"NodeName="):
            yield from context.rows(
                read_records(source.lines()),
                lambda row: present(from_text(row, context), outages, row),
            )
        else:
            table = Table(_header, _bare, _fits, _FREE)
            yield from context.rows(
                read_rows(source.lines(), table), lambda row: _past(row, context, outages)
            )


IMPORTER = SlurmNodes()


# --- sacctmgr show event --------------------------------------------------------------------------------


def _header(text: str) -> Layout | None:
    layout = header_of(text, _KNOWN, must="state")
    if layout is None or not {"nodename", "node"} & set(layout.columns):
        return None
    names = {"start": "timestart", "end": "timeend", "clustername": "cluster", "node": "nodename"}
    columns = tuple(names.get(column, column) for column in layout.columns)
    return Layout(layout.delimiter, columns) if "timestart" in columns else None


def _bare(text: str) -> Layout | None:
    for delimiter in DELIMITERS:
        for columns in (DOCUMENTED, DEFAULT):
            layout = Layout(delimiter, columns)
            if len(layout.split(text)) == len(columns):
                fields = dict(zip(columns, layout.split(text), strict=True))
                if _fits(fields) and fields["timestart"].strip() and fields["state"].strip():
                    return layout
    return None


def _fits(fields: dict[str, str]) -> bool:
    checks = (("timestart", _TIME), ("timeend", _TIME), ("state", _STATE))
    return all(pattern.fullmatch(fields.get(name, "").strip()) for name, pattern in checks)


def _past(row: Item, context: Context, outages: Outages) -> Iterator[Event] | None:
    """One event of the accounting."""
    fields: dict[str, str] = row.value
    start = fields.get("timestart", "").strip()
    if start.lower() in _NO_TIME:
        raise RowProblem("no start")
    begun = ended = context.times.parse(start)
    end = fields.get("timeend", "").strip()
    is_over = end.lower() not in _NO_TIME
    if is_over:
        ended = context.times.parse(end)
        context.coverage(ended.t_us)
    context.coverage(begun.t_us)
    if ended.t_us < begun.t_us:
        context.clock_correction(1, begun.t_us - ended.t_us, "an outage ends before it starts")
        ended = begun
    tres = fields.get("tres", "")
    node = fields.get("nodename", "").strip()
    if not node:
        context.ignore(row, "an event of the whole cluster")
        devices = devices_of(tres, gpus_of_tres, row, context)
        if devices:
            context.note(f"the accounting lists clusters with up to {devices} accelerators")
        return None
    state = state_in(fields.get("state", "").split("+"))
    if state is None:
        context.ignore(row, "the node was in service")
        return None
    devices = devices_of(tres, gpus_of_tres, row, context)
    outage = Outage(
        cluster=fields.get("cluster", "").strip() or context.options.cluster,
        node=node,
        start_us=begun.t_us,
        end_us=ended.t_us if is_over else None,
        start_name_us=begun.name_us,
        end_name_us=ended.name_us if is_over else None,
        is_inferred=begun.is_inferred or ended.is_inferred,
        state=state,
        recorded=fields.get("state", "").strip(),
        reason=said(fields.get("reason", "")),
        user=said(fields.get("user", "")) or None,
        devices=context.options.devices_per_node if devices is None else devices,
    )
    return outages.of(outage, row)
