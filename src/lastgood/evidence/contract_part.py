"""The contract in a report: in plain words, which of its values nobody declared, and which evidence is owed."""

from __future__ import annotations

from typing import Final

from lastgood.base.figures import assumed
from lastgood.contract.explain import assumed_paths, explain
from lastgood.contract.model import FailureContract
from lastgood.contract.recovery_table import TRANSITIONS
from lastgood.contract.values import OnTimeout
from lastgood.evidence.report import Column, Note, Section, Table, Words

ON_TIMEOUT: Final = {
    OnTimeout.WIDEN: "widen the fault domain",
    OnTimeout.FALL_BACK: "fall back to an older state",
    OnTimeout.ESCALATE: "escalate",
}
_ELSEWHERE: Final = frozenset(("Objectives", "Budgets", "Evidence duties", "Assumed"))
"""Parts of the explanation that have a section of their own."""


def contract_section(contract: FailureContract) -> Section:
    """What counts, what must be reached and who acts by when, as declared or as assumed."""
    lead = (
        "Nobody passed a contract, so these defaults apply. They are assumptions, not agreements."
        if contract.is_assumed
        else f"Contract {contract.metadata.display_name or contract.metadata.name}, as declared."
    )
    in_table = tuple(f"{name}: " for name in TRANSITIONS)
    words = tuple(
        Words(title=p.title, sentences=tuple(s for s in p.sentences if not s.startswith(in_table)))
        for p in explain(contract)
        if p.title not in _ELSEWHERE
    )
    return Section(
        name="contract",
        title="The contract in plain words",
        lead=lead,
        words=words,
        tables=(_recovery_table(contract),),
        notes=_assumed(contract),
    )


def _recovery_table(contract: FailureContract) -> Table:
    source = "default" if contract.is_assumed else "contract"
    rows = []
    for name in TRANSITIONS:
        row = contract.spec.recovery.row(name)
        limit = assumed(f"{name} time-out", row.timeout_us, "us", source=source)
        rows.append((name, limit, row.owner, row.accept, ON_TIMEOUT[row.on_timeout]))
    columns = (
        Column(title="Transition", is_number=False),
        Column(title="Time-out", unit="s"),
        Column(title="Owner", is_number=False),
        Column(title="Ends when", is_number=False),
        Column(title="On time-out", is_number=False),
    )
    return Table(name="recovery", title="Who does what by when", columns=columns, rows=tuple(rows))


def _assumed(contract: FailureContract) -> tuple[Note, ...]:
    if contract.is_assumed:
        return (
            Note(
                text="Every value above is assumed. Declare your own with: lastgood contract init -o contract.yaml"
            ),
        )
    paths = assumed_paths(contract)
    if not paths:
        return (Note(text="Every value stands in the contract; none is assumed."),)
    return (Note(text=f"Not declared, so assumed: {', '.join(paths)}."),)


def duties_section(contract: FailureContract) -> Section:
    """What the layer owes as proof. Missing parts are printed as missing and stop nothing."""
    kind = contract.spec.workload.kind
    duty = contract.spec.duties.of(kind)
    parts = (
        ("replay test", duty.replay_test),
        ("injection that exercises recovery", duty.injection),
        ("accepted when", duty.accept),
        ("owner of failed evidence", duty.owner),
    )
    rows = tuple((name, text or "missing") for name, text in parts)
    missing = [name for name, text in parts if not text]
    notes = (
        (
            Note(
                level="missing",
                text=f"{', '.join(missing)}. Declare {'it' if len(missing) == 1 else 'them'} under spec.duties.{kind} of the contract.",
            ),
        )
        if missing
        else ()
    )
    columns = (Column(title="Duty", is_number=False), Column(title="Declared", is_number=False))
    table = Table(name="duties", title=f"Duties of the {kind} layer", columns=columns, rows=rows)
    lead = "For every layer: a replay test, a fault injection that exercises the recovery path, a criterion, and an owner for failed evidence."
    return Section(
        name="duties", title="Evidence that is owed", lead=lead, tables=(table,), notes=notes
    )
