"""Integrity in the training section: what said that the numbers are wrong, and which states nobody may build upon.

An alert that stopped the run is an incident. A jump of the loss or of the gradients is a remark: it is recorded, and
nothing is restarted for it. A state that was found wrong stays in the record with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.base.figures import measured
from lastgood.contract.taxonomy import EventKind, Symptom
from lastgood.evidence.incident_part import ranks_text
from lastgood.evidence.report import Cell, Column, FigureRow, Note, Section, Table
from lastgood.evidence.wording import instant_text
from lastgood.ledger.ettr import RunTimes
from lastgood.ledger.event import Event, in_effect, time_of

ALERTS: Final = (
    Symptom.NONFINITE, Symptom.NUMERIC_JUMP, Symptom.REPLICA_DIVERGENCE, Symptom.SNAPSHOT_MISMATCH, Symptom.REPLAY_MISMATCH,
)  # fmt: skip
"""Symptoms that say the numbers are wrong, not that something stopped."""
DISTRUSTED: Final = frozenset(("suspect", "tainted"))
"""Trust states of a snapshot or checkpoint that recovery leaves aside."""
ROWS_MAX: Final = 20
SOURCE: Final = "incidents and remarks of the ledger"


def integrity_section(events: Sequence[Event], run: str, times: RunTimes) -> Section:
    """Alerts by symptom, the remarks one by one, and the states that were refused."""
    own = [e for e in in_effect(events) if e.run == run]
    remarks = [e for e in own if _is_remark(e)]
    refused = [e for e in own if e.kind == EventKind.STATE_TRUST and e.body.get("state") in DISTRUSTED]  # fmt: skip
    checked = [e for e in own if e.kind == EventKind.STATE_TRUST and e.body.get("state") == "verified"]  # fmt: skip
    alerts = [i for i in times.incidents if i.symptom in set(ALERTS)]
    in_memory = [e for e in refused if _tier(e) != "checkpoint"]

    def row(label: str, name: str, value: int, n: int | None = None) -> FigureRow:
        figure = measured(name, value, "", source=SOURCE, n=n, as_of_us=times.wall.as_of_us)
        return FigureRow(label=label, figure=figure)

    trust_count = len(refused) + len(checked)
    if not (trust_count or alerts or remarks):
        note = Note(
            level="missing",
            text="Integrity was not observed: no record says that a state or a number was checked.",
        )
        return Section(name="integrity", title="Integrity of the numbers", notes=(note,))
    return Section(
        name="integrity",
        title="Integrity of the numbers",
        lead="Digests compare the replicas with each other: wrong values that all of them share, and that are finite, "
        "are in no record.",
        figures=(
            row("Alerts that stopped the run", "integrity alerts", len(alerts), len(times.incidents)),
            row("Remarks for which nothing was restarted", "integrity remarks", len(remarks)),
            row("States found wrong and not built upon", "states refused", len(refused), trust_count),
            row("Snapshots among them", "snapshots refused", len(in_memory), trust_count),
            row("Checkpoints among them", "checkpoints refused", len(refused) - len(in_memory), trust_count),
        ),
        tables=(
            _alerts(times, remarks),
            *((_remark_table(remarks),) if remarks else ()),
            *((_refused_table(refused),) if refused else ()),
        ),
    )  # fmt: skip


def _is_remark(event: Event) -> bool:
    return (
        event.kind in {EventKind.ANNOTATION, EventKind.OBSERVATION}
        and event.symptom in set(ALERTS)
        and event.incident is None
    )


def _tier(event: Event) -> str:
    return str(event.body.get("tier", "unknown"))


def _alerts(times: RunTimes, remarks: Sequence[Event]) -> Table:
    """Alerts by symptom, with what came of them."""
    rows: list[tuple[Cell, ...]] = []
    for symptom in ALERTS:
        members = [i for i in times.incidents if i.symptom == symptom]
        said = [e for e in remarks if e.symptom == symptom]
        verified = sum(i.verified_us is not None for i in members)

        def count(name: str, value: int) -> Cell:
            return measured(name, value, "", source=SOURCE, as_of_us=times.wall.as_of_us)

        ranks = sorted({r for i in members for r in i.ranks} | {r for e in said for r in e.ranks})
        rows.append(
            (
                symptom.replace("_", " "),
                count(f"{symptom} alerts", len(members)),
                count(f"{symptom} verified", verified),
                count(f"{symptom} remarks", len(said)),
                ranks_text(ranks) if members or said else None,
            )
        )
    columns = (
        Column(title="Alert", is_number=False), Column(title="Stopped the run"), Column(title="Closed by a verified restore"),
        Column(title="Remarks"), Column(title="Ranks", is_number=False),
    )  # fmt: skip
    return Table(
        name="alerts", title="Numerical-integrity alerts", columns=columns, rows=tuple(rows)
    )


def _remark_table(remarks: Sequence[Event]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for event in remarks[-ROWS_MAX:]:
        said = event.body.get("evidence")
        told = "; ".join(map(str, said)) if isinstance(said, list) else ""
        rows.append(
            (
                str(event.symptom).replace("_", " "),
                instant_text(time_of(event)),
                ranks_text(event.ranks),
                told or str(event.body.get("text", "not recorded")),
            )
        )
    return _words_table(
        "remarks", "Remarks", ("Remark", "When", "Ranks", "What was seen"), rows, len(remarks)
    )


def _refused_table(refused: Sequence[Event]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for event in refused[-ROWS_MAX:]:
        body = event.body
        rows.append(
            (
                f"state {body.get('step', 'of unknown step')}",
                _tier(event),
                str(body["state"]),
                instant_text(time_of(event)),
                str(body.get("reason") or "not recorded"),
            )
        )
    titles = ("State", "Tier", "Found", "When", "Why")
    return _words_table(
        "refused", "States found wrong and not built upon", titles, rows, len(refused)
    )


def _words_table(
    name: str, title: str, titles: Sequence[str], rows: Sequence[tuple[Cell, ...]], count: int
) -> Table:
    return Table(
        name=name,
        title=title,
        columns=tuple(Column(title=t, is_number=False) for t in titles),
        rows=tuple(rows),
        note="" if count <= ROWS_MAX else f"The last {ROWS_MAX} of {count}.",
    )
