"""Reports made by hand, one per corner that a renderer must survive: no ledger and no builder is involved."""

from __future__ import annotations

from lastgood.base.figures import Figure, FigureKind, Interval, assumed, measured
from lastgood.evidence.report import (
    Chart,
    Check,
    Column,
    Data,
    FigureRow,
    Headline,
    IncidentCard,
    Mark,
    Moment,
    Note,
    Report,
    Reproduction,
    Section,
    Table,
    Verification,
    Words,
)  # fmt: skip

AS_OF_US = 1_796_004_090_500_000
S = 1_000_000


def seconds(name: str, value_s: float | None, *, n: int | None = None) -> Figure:
    """A measured duration, given in seconds."""
    value = None if value_s is None else round(value_s * S)
    return measured(name, value, "us", source="ledger events", n=n, as_of_us=AS_OF_US)


def table() -> Table:
    """Numbers of very different size, a cell without anything, one not observed, one of another kind."""
    columns = (
        Column(title="Class", is_number=False), Column(title="Count"), Column(title="Detection", unit="s"),
        Column(title="Recovery", unit="s"), Column(title="Words", is_number=False),
    )  # fmt: skip
    rows = (
        (
            "fail_stop",
            measured("count", 2, "incidents", source="ledger"),
            seconds("detect", 0.05),
            seconds("recover", 0.44),
            "fine",
        ),
        (
            "fail_slow",
            measured("count", 1, "incidents", source="ledger"),
            seconds("detect", 1.35),
            None,
            "fine",
        ),
        (
            "sdc",
            measured("count", 1234, "incidents", source="ledger"),
            seconds("detect", None),
            assumed("limit", 12 * S, "us"),
            "<b>&",
        ),
    )
    return Table(
        name="classes", title="Stops by class", columns=columns, rows=rows, note="Medians."
    )


def strip() -> Chart:
    """Five states, two marks."""
    rows = (
        ("warmup", 0.0, 4.0), ("productive", 4.0, 13.0), ("down.detect", 13.0, 13.4), ("restore", 13.4, 14.0),
        ("lost", 14.0, 14.2), ("productive", 14.2, 30.0), ("unknown", 30.0, 31.0),
    )  # fmt: skip
    columns = (
        Column(title="State", is_number=False),
        Column(title="Begin", unit="s"),
        Column(title="End", unit="s"),
    )
    return Chart(
        name="strip", title="Wall time", form="strip", alt='States of wall time: "productive" & others', caption="Each lane is a state.",
        data=Data(columns=columns, rows=rows, kind=FigureKind.MEASURED), marks=(Mark(at=13.0, label="1"), Mark(at=30.0, label="2")),
    )  # fmt: skip


def waterfall() -> Chart:
    """Three losses and their sum."""
    rows = (
        ("down.detect", 0.4, "loss"),
        ("restore", 0.6, "loss"),
        ("lost", 0.2, "loss"),
        ("all lost", 1.2, "total"),
    )
    columns = (
        Column(title="State", is_number=False),
        Column(title="Time", unit="s"),
        Column(title="Role", is_number=False),
    )
    return Chart(name="waterfall", title="Lost time", form="waterfall", alt="Lost time by state",
                 data=Data(columns=columns, rows=rows, kind=FigureKind.MEASURED))  # fmt: skip


def line() -> Chart:
    """Two series."""
    rows = tuple(
        (k, 0.15 + 0.01 * (k % 3), "accepted" if k % 7 else "redone") for k in range(1, 60)
    )
    columns = (
        Column(title="Step"),
        Column(title="Step time", unit="s"),
        Column(title="Series", is_number=False),
    )
    return Chart(name="steps", title="Step time", form="line", alt="Step time per step",
                 data=Data(columns=columns, rows=rows, kind=FigureKind.MEASURED))  # fmt: skip


def card(number: int = 1, *, is_verified: bool = True) -> IncidentCard:
    """One incident with a moment that no record tells."""
    return IncidentCard(
        number=number, id=f"0198-{number}", title="Rank 2 ended by signal 9", is_injected=True,
        facts=(("Class", "fail_stop"), ("Symptom", "process_exit"), ("Cause", "unknown (unknown)"), ("Ranks", "2")),
        moments=(
            Moment(name="onset", at_us=AS_OF_US, since_onset_us=0), Moment(name="detect", at_us=AS_OF_US + 52_000, since_onset_us=52_000),
            Moment(name="diagnose", at_us=None, since_onset_us=None), Moment(name="close", at_us=AS_OF_US + S, since_onset_us=S),
        ),
        figures=(FigureRow(label="Detection", figure=seconds("detect", 0.052)), FigureRow(label="Lost steps", figure=measured("lost", 0, "steps", source="ledger"))),
        verification=Verification(test="replay step 60 on every rank", result="equal", evidence="77a0" * 16) if is_verified else None,
        outcome="recovered", evidence=("rank 2 (w2) ended by signal 9",), notes=(Note(text="A note.", level="warning"),),
    )  # fmt: skip


def full_report() -> Report:
    """Every kind of part at once."""
    ettr = measured("ettr", 0.8731, "ratio", source="productive / wall time", n=1, as_of_us=AS_OF_US,
                    interval=Interval(lo=0.85, hi=0.9, level=0.95, method="block bootstrap"))  # fmt: skip
    inner = Section(name="time", title="Where the time went", lead="Every microsecond has one state.", charts=(strip(), waterfall(), line()),
                    figures=(FigureRow(label="Wall time", figure=seconds("wall", 90.5)),), tables=(table(),))  # fmt: skip
    incidents = Section(
        name="incidents", title="Incidents", cards=(card(1), card(2, is_verified=False))
    )
    contract = Section(name="contract", title="The contract", words=(Words(title="Workload", sentences=("training on 4 devices.", "Accepted work: a step.")),),
                       notes=(Note(text="No owner.", level="missing"), Note(text="Fine.")))  # fmt: skip
    section = Section(
        name="training", title="Training", is_injected=True, parts=(inner, incidents, contract),
        headline=Headline(state="held", sentence="All 2 injected faults were detected, contained, recovered and verified.", checks=(
            Check(question="Detected", state="held", detail="2 of 2"), Check(question="Verified", state="not_held", detail="1 of 2"),
            Check(question="Final weights", state="unknown", detail="not compared"))),
        figures=(FigureRow(label="ETTR", figure=ettr, is_key=True), FigureRow(label="Unknown time", figure=seconds("unknown", None), is_key=True)),
    )  # fmt: skip
    return Report(
        title="Lastgood report, training run", subject="demo-1", as_of_us=AS_OF_US, sections=(section,),
        reproduction=Reproduction(ledger="ledger.db", root="ab" * 32, size=1234, origin="lastgood.dev/ledger/1", version="0.1.0", command="lastgood recompute b.tar"),
    )  # fmt: skip
