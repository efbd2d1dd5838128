"""Laws of the columnar view: it gives the answers of the objects, whatever the events."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.base.clock import ManualClock
from lastgood.ledger.columns import (
    NO_TIME,
    EventTable,
    exposure_steps,
    fold_table,
    read_events,
    remap_table,
)
from lastgood.ledger.event import Event, encode_event, new_event
from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.grouping import parse_rule
from lastgood.ledger.importers.mapping import Mapping, Row, remap
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.parquet import FLAGS
from lastgood.ledger.parquet_export import export_parquet
from lastgood.ledger.store import open_store
from lastgood.ledger.table import CODED_COLUMNS, DOMAIN_KINDS, TIME_COLUMNS
from lastgood.ledger.table_builder import TableBuilder
from tests.unit.ledger.cases import START_US

KINDS = (
    "observation", "observation", "observation", "incident.open", "incident.close", "detect", "diagnose", "isolate",
    "restore", "verify", "escalate", "planned.begin", "planned.end", "run.start", "run.end", "annotation",
)  # fmt: skip
RULES = tuple(
    map(
        parse_rule,
        (
            "links", "gap:0us@host", "gap:40us@host", "gap:15us@rack", "gap:25us@site", "gap:90us@device",
            "merge:20us@site", "gap:10us@host+merge:50us@host", "gap:5us+merge:30us@rack+correlated:12us",
            "links+correlated:0us", "gap:30us+correlated:40us",
        ),
    )
)  # fmt: skip
DOMAINS = [
    {"kind": kind, "id": f"{kind[0]}{number}"}
    for kind in ("rank", "device", "host", "rack", "switch", "power", "site")
    for number in range(3 if kind == "host" else 2)
]
maybe = lambda strategy: st.none() | strategy
durations = maybe(st.integers(0, 300))


@st.composite
def an_event(draw) -> dict:
    kind = draw(st.sampled_from(KINDS))
    body = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "label": st.sampled_from(("A/b", "C")),
                "injected": st.sampled_from((True, False, None)),
                "outcome": st.sampled_from(("recovered", "escalated", "odd", 3)),
                "code": st.sampled_from(("79", 48)),
            },
        )
    )
    fields = {
        "kind": kind,
        "at": draw(st.integers(0, 120)),
        "t_occurred_us": draw(st.sampled_from((True, True, True, False))),
        "t_observed_us": draw(maybe(st.integers(0, 120))),
        "class_": draw(maybe(st.sampled_from(("fail_stop", "fail_slow", "planned")))),
        "cause": draw(maybe(st.sampled_from(("gpu.memory", "unknown")))),
        "symptom": draw(maybe(st.sampled_from(("hang", "device_error")))),
        "role": draw(maybe(st.sampled_from(("initiating", "cascade", "context")))),
        "incident": draw(st.sampled_from((None, None, "i1", "i2", "zz"))),
        "domain": draw(st.lists(st.sampled_from(DOMAINS), max_size=4)),
        "run": draw(maybe(st.sampled_from(("r1", "r2")))),
        "body": body,
    }
    if kind in {"incident.close", "detect"}:
        fields |= {"detect_us": draw(durations), "recover_us": draw(durations)}
    if kind == "verify":
        fields["verification"] = {
            "test": "t",
            "result": draw(st.sampled_from(("equal", "different"))),
        }
    if draw(st.integers(0, 30)) == 0:
        fields["links"] = {"supersedes": name_of(draw(st.integers(0, 9)))}
    return fields


def name_of(number: int) -> str:
    return f"e{(number * 7) % 10}{number}"


def events_of(plan: list[dict]) -> list[Event]:
    """Ids in another order than the sequence, so that ties of time are decided by them."""
    events = []
    for number, fields in enumerate(plan):
        fields = dict(fields)
        kind, at = fields.pop("kind"), START_US + fields.pop("at")
        has_occurred = fields.pop("t_occurred_us")
        observed = fields.pop("t_observed_us")
        event = new_event(
            kind,
            clock=ManualClock(at),
            id=name_of(number),
            t_occurred_us=at,
            t_observed_us=at if observed is None else START_US + observed,
            **fields,
        )
        plain = {"t_occurred_us": event.t_occurred_us if has_occurred else None, "seq": number}
        if observed is None and has_occurred:
            plain["t_observed_us"] = None
        events.append(replaced(event, **plain))
    return events


def replaced(event: Event, **fields) -> Event:
    import msgspec

    return msgspec.structs.replace(event, **fields)


def table_of(events: list[Event]) -> EventTable:
    builder = TableBuilder()
    builder.add([encode_event(event) for event in events])
    return builder.build()


def first_of(values):
    return next((value for value in values if value is not None), None)


def as_row(incident: Incident, by_id: dict[str, Event]) -> dict:
    """What the table must say about an incident."""
    members = [by_id[name] for name in incident.event_ids]
    domains = {
        kind: first_of(d.id if d.kind == kind else None for d in incident.domain)
        for kind in ("rank", "device", "host", "rack", "switch", "power")
    }
    is_made = incident.id.startswith(("gap:", "planned:"))
    began = next(t for t in (incident.onset_us, incident.opened_us) if t is not None)
    return domains | {
        "begin_us": began,
        "end_us": incident.closed_us,
        "class_": incident.class_,
        "cause": incident.cause,
        "symptom": incident.symptom,
        "run": incident.run,
        "incident": None if is_made else incident.id,
        "detect_us": incident.detect_us,
        "diagnose_us": incident.diagnose_us,
        "isolate_us": incident.isolate_us,
        "recover_us": incident.recover_us,
        "verify_us": incident.verify_us,
        "injected": incident.injected,
        "planned": incident.is_planned,
        "correlated": incident.correlated,
        "event_count": len(members),
        "first_seq": members[0].seq,
    }


def table_rows(table) -> list[dict]:
    columns: dict[str, list] = {}
    for name in as_row(
        Incident(id="x", opened_us=0, event_ids=("x",)), {"x": Event(kind="k", id="x")}
    ):
        column = getattr(table, name)
        if hasattr(column, "texts"):
            columns[name] = column.texts()
        elif name == "injected":
            columns[name] = [{-1: None, 0: False, 1: True}[value] for value in column.tolist()]
        else:
            columns[name] = [None if value == NO_TIME else value for value in column.tolist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@settings(max_examples=100, deadline=None)
@given(plan=st.lists(an_event(), max_size=20), rule=st.sampled_from(RULES))
def test_a_table_folds_into_the_incidents_of_the_objects(plan, rule):
    events = events_of(plan)
    by_id = {event.id: event for event in events}
    expected = [as_row(incident, by_id) for incident in fold_incidents(events, rule)]
    folded = fold_table(table_of(events), rule)
    assert table_rows(folded) == expected
    assert folded.rule == str(rule)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@settings(max_examples=1_500, deadline=None)
@given(plan=st.lists(an_event(), max_size=60), rule=st.sampled_from(RULES))
def test_many_tables_fold_into_the_incidents_of_the_objects(plan, rule):
    events = events_of(plan)
    by_id = {event.id: event for event in events}
    expected = [as_row(incident, by_id) for incident in fold_incidents(events, rule)]
    assert table_rows(fold_table(table_of(events), rule)) == expected


# --- exposure -----------------------------------------------------------------------------------------


@st.composite
def an_exposure_event(draw) -> dict:
    return {
        "kind": draw(
            st.sampled_from(("exposure.join", "exposure.leave", "run.end", "observation"))
        ),
        "at": draw(st.integers(0, 60)),
        "t_occurred_us": True,
        "t_observed_us": None,
        "run": draw(maybe(st.sampled_from(("r1", "r2")))),
        "devices": draw(maybe(st.integers(0, 9))),
        "domain": draw(st.lists(st.sampled_from(DOMAINS[:7]), max_size=2)),
        "body": draw(st.sampled_from(({}, {"worker": "w1"}, {"rank": 0}))),
    }


@settings(max_examples=100, deadline=None)
@given(plan=st.lists(an_exposure_event(), max_size=16), late_us=st.integers(0, 20))
def test_the_steps_of_exposure_add_up_to_the_exposure_of_the_objects(plan, late_us):
    events = events_of(plan)
    as_of_us = START_US + 60 + late_us
    expected = measure_exposure(events, as_of_us=as_of_us)
    total, by_host = exposure_steps(table_of(events), as_of_us=as_of_us)
    assert total.device_us(START_US, as_of_us) == expected.device_us
    assert max(total.devices.tolist(), default=0) == expected.devices_max
    some = measure_exposure(events, as_of_us=as_of_us, window=(START_US + 10, START_US + 30))
    assert total.device_us(START_US + 10, START_US + 30) == some.device_us
    named = sum(steps.device_us(START_US, as_of_us) for steps in by_host.values())
    assert named <= expected.device_us


# --- mapping tables -----------------------------------------------------------------------------------

CODES = ("79", "48", "48/new", "13", "*/x")


@st.composite
def a_mapping(draw) -> Mapping:
    row = st.builds(
        Row,
        class_=maybe(st.sampled_from(("fail_stop", "sdc"))),
        cause=maybe(st.just("gpu.bus")),
        cause_status=maybe(st.just("supported")),
        symptom=maybe(st.just("hang")),
        role=maybe(st.sampled_from(("cascade", "initiating"))),
    )
    rows = draw(st.dictionaries(st.sampled_from((*CODES, "*", "48")), row, max_size=4))
    return Mapping("xid/2@sha256:x", "xid", "2", "made up", rows)


@settings(max_examples=40, deadline=None)
@given(plan=st.lists(an_event(), max_size=12), mapping=a_mapping(), data=st.data())
def test_a_table_reads_through_another_mapping_as_the_objects_do(plan, mapping, data):
    for fields in plan:
        fields["body"] = dict(fields["body"]) | data.draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "code": st.sampled_from((*CODES, 48, None)),
                    "mapping": st.sampled_from(("xid/1@sha256:y", "slurm/1@z", "xidx/1", 7)),
                    "lone": st.sampled_from((True, False, 1)),
                },
            )
        )
    events = events_of(plan)
    seen = remap_table(table_of(events), mapping)
    again = table_of(list(remap(events, mapping)))
    for name in ("class_", "cause", "cause_status", "symptom", "role", "mapping", "code"):
        assert getattr(seen, name).texts() == getattr(again, name).texts(), name


# --- Parquet ------------------------------------------------------------------------------------------


def as_plain(table: EventTable) -> dict:
    """Every column as a list of what it says, whatever the codes are."""
    said = {}
    for name in (*CODED_COLUMNS, *TIME_COLUMNS, *FLAGS, "seq", "t_us", "devices", "injected"):
        column = getattr(table, name)
        said[name] = column.texts() if hasattr(column, "texts") else column.tolist()
    more = table.more_domains
    said["more"] = [
        (row, DOMAIN_KINDS[at], getattr(table, DOMAIN_KINDS[at]).names[code])
        for row, at, code in zip(more.row, more.kind, more.code, strict=True)
    ]
    return said | {"coverage": table.coverage, "head": (table.origin, table.size, table.root)}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(an_event(), min_size=5, max_size=30),
    months=st.lists(st.integers(0, 2), min_size=30, max_size=30),
)
def test_an_export_is_read_as_the_ledger_itself(tmp_path_factory, plan, months):
    pytest.importorskip("pyarrow", reason="the extra analysis is not installed")
    folder = tmp_path_factory.mktemp("export")
    moved = [
        replaced(event, t_occurred_us=event.t_occurred_us + month * 31 * 86_400_000_000)
        if event.t_occurred_us is not None
        else event
        for event, month in zip(events_of(plan), months, strict=False)
    ]
    with open_store(folder / "ledger.db", clock=ManualClock(START_US)) as store:
        store.import_events(moved)
    export_parquet(folder / "ledger.db", folder / "out")
    assert as_plain(read_events(folder / "out")) == as_plain(read_events(folder / "ledger.db"))
