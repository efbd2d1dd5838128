"""Stacks in the training section: where the processes stood when ranks stopped moving, in groups, the odd ones named.

Equal ranks stand at equal places. The largest group of a kind of process is the usual one, and a rank outside of it
is the one to look at. A run that is recovered dumps its suspects only; an observed one dumps everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from lastgood.base.figures import measured
from lastgood.contract.taxonomy import EventKind, Symptom
from lastgood.evidence.incident_part import ranks_text
from lastgood.evidence.report import Cell, Column, Note, Section, Table
from lastgood.evidence.wording import instant_text
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect, time_of
from lastgood.ledger.incident import Incident
from lastgood.training.report.remarks import remarks_of
from lastgood.training.report.spares import serving
from lastgood.training.watching.job_code import own_frame
from lastgood.training.watching.stack_groups import ProcessStack, group_stacks

SYMPTOMS: Final = frozenset((Symptom.HANG, Symptom.SLOW))
"""Incidents in which the place where a process stands says something."""
FRAMES_MAX: Final = 12
_LAUNCHER: Final = re.compile(r"\(<frozen runpy>|\(lastgood/training/rank/(observed|worker)\.py")
"""Frames of whoever started the script: the same in every process."""
WAITING: Final = "unknown rank"


class Group(NamedTuple):
    """Processes of one kind that stood at the same place."""

    role: str
    ranks: tuple[int, ...]
    process_count: int
    stack: tuple[str, ...]
    """Innermost first."""
    standing: str
    """`usual`, `outlier`, or nothing where nobody is usual."""


def stacks_section(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """One table for each incident, and each remark, that has stacks, with the frames of each group below it."""
    own = [e for e in in_effect(events) if e.run == run and _is_about_stacks(e)]
    tables: list[Table] = []
    bare: list[str] = []
    for number, incident in enumerate(times.incidents, start=1):
        groups = groups_of(own, incident)
        if groups:
            tables.extend(_tables(str(number), f"Incident {number}", groups, times.wall.as_of_us))
        elif incident.symptom in SYMPTOMS:
            bare.append(str(number))
    for number, event in enumerate(remarks_of(events, run), start=1):
        groups = _read_groups(event.body.get("stack_groups"))
        if groups:
            at = instant_text(time_of(event), with_date=False)
            title = f"Remark of {at}"
            tables.extend(_tables(f"remark-{number}", title, groups, times.wall.as_of_us))
    if not tables and not bare:
        note = Note(text="No rank hung or fell behind, so no stacks were taken.")
        return Section(name="stacks", title="Where hung ranks stood", notes=(note,))
    notes = ()
    if bare:
        text = (
            f"No stacks are on record for incident{'s' if len(bare) > 1 else ''} {', '.join(bare)}."
        )
        notes = (Note(level="missing", text=text),)
    return Section(
        name="stacks",
        title="Where hung ranks stood",
        lead="Processes whose main threads stood at the same place are one group. With one group, or with a tie, nobody "
        "is usual and nobody is odd.",
        tables=tuple(tables),
        notes=notes,
    )  # fmt: skip


def groups_of(own: Sequence[Event], incident: Incident) -> list[Group]:
    """The groups as an observer wrote them, else those of the dumps that were taken while the incident was diagnosed."""
    written = [
        e.body[key]
        for e in own
        if e.incident == incident.id
        for key in ("stack_groups", "groups")
        if isinstance(e.body.get(key), list)
    ]
    if written:
        return _read_groups(written[-1])
    begin_us = incident.detected_us or incident.opened_us
    if begin_us is None:
        return []
    end_us = incident.isolated_us or incident.closed_us or begin_us
    dumps: dict[str, ProcessStack] = {}
    rank_of: dict[str, int] = {}
    for event in own:
        worker = event.body.get("worker")
        if event.kind == EventKind.INVENTORY and isinstance(event.body.get("rank"), int):
            if time_of(event) <= begin_us:
                rank_of[str(worker)] = event.body["rank"]
        elif event.kind == EventKind.ATTEMPT_START and time_of(event) <= begin_us:
            rank_of |= serving(event.body.get("workers"))
        elif _is_dump(event) and begin_us <= time_of(event) <= end_us:
            rank = rank_of.get(str(worker), -1)
            dumps[str(worker)] = ProcessStack(rank, len(dumps), False, str(event.body.get("text")))
    return _compared(
        Group(g.role, g.ranks, len(g.pids), g.stack, _standing(g.is_usual, g.is_outlier))
        for g in group_stacks(dumps.values())
    )


def _compared(groups: Iterable[Group]) -> list[Group]:
    """The groups, *usual* only where something of its kind is not: one group alone is compared with nobody."""
    found = list(groups)
    odd = {g.role for g in found if g.standing == "outlier"}
    return [g if g.role in odd else g._replace(standing="") for g in found]


def _is_about_stacks(event: Event) -> bool:
    """What holds stacks, and who served which rank: few of the many events of a run."""
    return (
        event.kind in {EventKind.INVENTORY, EventKind.ATTEMPT_START}
        or _is_dump(event)
        or "stack_groups" in event.body
        or "groups" in event.body
    )


def _is_dump(event: Event) -> bool:
    return event.kind == EventKind.OBSERVATION and event.body.get("what") == "stack dump"


def _read_groups(plain: Any) -> list[Group]:
    found = plain if isinstance(plain, list) else ()
    return _compared(g for g in map(_read_group, found) if g is not None)


def _read_group(plain: Any) -> Group | None:
    if not isinstance(plain, dict) or not isinstance(plain.get("stack"), list):
        return None
    ranks = plain.get("ranks")
    pids = plain.get("pids")
    return Group(
        role=str(plain.get("role", "process")),
        ranks=tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else (),
        process_count=len(pids) if isinstance(pids, list) else 1,
        stack=tuple(map(str, plain["stack"])),
        standing=_standing(plain.get("is_usual") is True, plain.get("is_outlier") is True),
    )  # fmt: skip


def _standing(is_usual: bool, is_outlier: bool) -> str:
    return "outlier" if is_outlier else "usual" if is_usual else ""


def _tables(key: str, title: str, groups: Sequence[Group], as_of_us: int) -> list[Table]:
    return [_table(key, title, groups, as_of_us), *_frames(key, title, groups)]


def _table(key: str, title: str, groups: Sequence[Group], as_of_us: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for place, group in enumerate(groups, start=1):
        count = measured(
            f"group {place} processes", group.process_count, "", source="stack dumps", as_of_us=as_of_us
        )  # fmt: skip
        known = [rank for rank in group.ranks if rank >= 0]
        rows.append(
            (
                f"group\u00a0{place}",
                group.role,
                count,
                ranks_text(known) if known else WAITING,
                group.standing or None,
                _shortened(group.stack[0]) if group.stack else None,
                _shortened(own_frame(group.stack)),
            )
        )
    outliers = sorted({r for g in groups if g.standing == "outlier" for r in g.ranks if r >= 0})
    columns = (
        Column(title="Group", is_number=False), Column(title="Process", is_number=False), Column(title="Count"),
        Column(title="Ranks", is_number=False), Column(title="Standing", is_number=False), Column(title="Innermost frame", is_number=False),
        Column(title="Innermost of the job's own code", is_number=False),
    )  # fmt: skip
    return Table(
        name=f"stacks-{key}",
        title=f"{title}: {len(groups)} stack group{'s' if len(groups) > 1 else ''}",
        columns=columns,
        rows=tuple(rows),
        note=f"Outlier{'s' if len(outliers) > 1 else ''}: {'ranks' if len(outliers) > 1 else 'rank'} {ranks_text(outliers)}." if outliers else "",
    )  # fmt: skip


def _frames(key: str, title: str, groups: Sequence[Group]) -> list[Table]:
    """The frames of each group; the outer end of a long stack is the same in every process and says little."""
    found = []
    for place, group in enumerate(groups, start=1):
        told = [frame for frame in group.stack if not _LAUNCHER.search(frame)]
        shown = told[:FRAMES_MAX]
        more = len(told) - len(shown)
        found.append(
            Table(
                name=f"stack-{key}-{place}",
                title=f"{title}, group {place}: frames, innermost first",
                columns=(
                    Column(title="Frame", is_number=False),
                    Column(title="Where", is_number=False),
                ),
                rows=tuple((str(depth), frame) for depth, frame in enumerate(shown, start=1)),
                note=f"{more} more frames further out." if more else "",
                is_folded=True,
            )
        )
    return found


def _shortened(frame: str | None) -> str | None:
    """The frame with the last two parts of its file's path: a table has no room for more, the list of frames has."""
    if frame is None:
        return None
    function, mark, place = frame.rpartition(" (")
    return f"{function}{mark}{'/'.join(place.split('/')[-2:])}"
