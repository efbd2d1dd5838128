"""What `scontrol show node` shows: each node at one moment, as text in records of several lines or as JSON.

A present state is no history. A node in service is at risk since it was booted, as far as this output can tell; a node
out of service has been so since the stamp of its reason, and gets the same incident that the accounting's own record of
that moment gets, so that importing both counts once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lastgood.ledger.event import Event
from lastgood.ledger.importers.importer import Context, RowProblem
from lastgood.ledger.importers.json_scan import Item
from lastgood.ledger.importers.slurm_outages import Outage, Outages, state_of
from lastgood.ledger.importers.slurm_text import NO_COUNT, gpus_of_gres, gpus_of_tres
from lastgood.ledger.importers.source import Line
from lastgood.ledger.importers.times import ParsedTime

RECORD_LINES_MAX = 200
RECORD_CHARS_MAX = 65_536
KEYS_MAX = 500
NO_TIME = frozenset(("", "unknown", "none", "n/a", "0", "(null)"))
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_/:]{0,40})=")
_STAMP = re.compile(r"([^\[\]]{0,200})@([^\[\]@]{1,40})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """One node as it is shown."""

    node: str
    words: list[str]
    reason: str
    user: str | None
    since: ParsedTime | None
    """When the reason was set."""
    boot: ParsedTime | None
    devices: int | None
    cluster: str | None


def present(node: Present, outages: Outages, row: Item) -> Iterator[Event] | None:
    """At risk since the boot; out of service since the reason was set."""
    context = outages.context
    state = state_in(node.words)
    since = None if state is None else node.since
    if since is None and (state is not None or node.boot is None or not node.devices):
        why = (
            "in service"
            if state is None
            else f"out of service, and nobody says since when ({state})"
        )
        context.ignore(row, f"the node is {why}")
        return
    context.note(
        "scontrol shows one moment: the nodes count as at risk since they were booted; import sacctmgr show event as well"
    )
    outage = Outage(
        cluster=node.cluster,
        node=node.node,
        start_us=0 if since is None else since.t_us,
        end_us=None,
        start_name_us=0 if since is None else since.name_us,
        end_name_us=None,
        is_inferred=any(t.is_inferred for t in (node.since, node.boot) if t is not None),
        state=state or "IDLE",
        recorded="+".join(node.words),
        reason=node.reason,
        user=node.user,
        devices=node.devices,
    )
    boot = node.boot
    is_up_before = since is None or boot is None or boot.t_us < since.t_us
    if node.devices and boot is not None and is_up_before:
        yield outages.join(outage, row, boot)
    if since is not None:
        context.coverage(since.t_us)
        yield from outages.of(outage, row)


def read_records(lines: Iterable[Line]) -> Iterator[Item]:
    """Each node's record: from its `NodeName=` to the next one."""
    held: list[Line] = []
    for line in lines:
        if line.text.startswith("NodeName=") and held:
            yield _record(held)
            held = []
        if line.text.strip() and len(held) < RECORD_LINES_MAX:
            held.append(line)
    if held:
        yield _record(held)


def _record(held: list[Line]) -> Item:
    raw = b"\n".join(line.raw for line in held)
    return Item(held[0].number, raw, "\n".join(line.text for line in held))


def from_text(row: Item, context: Context) -> Present:
    """A node from text: pairs `Key=value` of a record; a value goes up to the next key, because reasons hold blanks."""
    text: str = row.value
    if len(text) > RECORD_CHARS_MAX:
        raise RowProblem("a record that is too long", f"{len(text):,} characters")
    keys = list(itertools.islice(_KEY.finditer(text), KEYS_MAX))
    fields: dict[str, str] = {}
    for at, match in enumerate(keys):
        end = keys[at + 1].start() if at + 1 < len(keys) else len(text)
        value = text[match.end() : end]
        if match[1] == "Reason" and "Reason" not in fields:
            # A reason may hold words that look like keys: it goes up to the stamp, or to the end of its line.
            value = re.split(r"\n(?!\s{6})|(?<=\])\s", text[match.end() :], maxsplit=1)[0]
        fields.setdefault(match[1], value.strip())
    if not fields.get("NodeName"):
        raise RowProblem("no NodeName")
    if "State" not in fields:
        raise RowProblem("the record is cut: no State")
    reason, user, since, boot = fields.get("Reason", ""), None, None, None
    words, _, stamp = reason.rpartition("[")
    stamped = _STAMP.fullmatch(stamp.rstrip())
    if stamped is not None:
        reason, user = words.rstrip(), stamped[1] or None
        if stamped[2].lower() not in NO_TIME:
            since = context.times.parse(stamped[2])
    if fields.get("BootTime", "").lower() not in NO_TIME:
        boot = context.times.parse(fields["BootTime"])
    devices = devices_of(fields.get("Gres", ""), gpus_of_gres, row, context)
    if devices is None:
        devices = devices_of(fields.get("CfgTRES", ""), gpus_of_tres, row, context)
    if devices is None:
        devices = context.options.devices_per_node
    return Present(
        node=fields["NodeName"],
        words=fields["State"].split("+"),
        reason=said(reason),
        user=user,
        since=since,
        boot=boot,
        devices=devices,
        cluster=context.options.cluster,
    )


def from_json(row: Item, context: Context) -> Present:
    """A node from an item of `nodes`."""
    node = row.value
    if not isinstance(node, dict) or not isinstance(node.get("name"), str) or not node["name"]:
        raise RowProblem("no name of a node")
    state = node.get("state")
    words = [*_words(state), *_words(node.get("state_flags"))]
    if not words:
        raise RowProblem("no node state")
    gres = node.get("gres")
    devices = devices_of(gres if isinstance(gres, str) else "", gpus_of_gres, row, context)
    tres = node.get("tres")
    if devices is None:
        devices = devices_of(tres if isinstance(tres, str) else "", gpus_of_tres, row, context)
    if devices is None:
        devices = context.options.devices_per_node
    user = node.get("reason_set_by_user")
    reason = node.get("reason")
    return Present(
        node=node["name"],
        words=words,
        reason=said(reason) if isinstance(reason, str) else "",
        user=user if isinstance(user, str) and user else None,
        since=_epoch(node.get("reason_changed_at"), context),
        boot=_epoch(node.get("boot_time"), context),
        devices=devices,
        cluster=_text(node.get("cluster_name")) or context.options.cluster,
    )


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split("+")
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str)]
    return []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _epoch(value: Any, context: Context) -> ParsedTime | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return None
    return context.times.epoch(value, unit="s")


def state_in(words: list[str]) -> str | None:
    """The state that keeps a node out of service; a `RowProblem` for a word that is none."""
    try:
        return state_of(words)
    except ValueError as error:
        raise RowProblem("no node state", str(error)) from error


def devices_of(
    text: str, read: Callable[[str], int | None], row: Item, context: Context
) -> int | None:
    """Accelerators that a text names; None where it names none, or a number that cannot be, which is counted."""
    try:
        return read(text)
    except ValueError as error:
        context.leave_out(row, NO_COUNT, str(error))
        return None


def said(text: str) -> str:
    """A text, or nothing for the words that stand for nothing."""
    text = text.strip()
    return "" if text.lower() in {"none", "(null)"} else text
