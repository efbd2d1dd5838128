from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lastgood.base.errors import LedgerError
from lastgood.ledger.columns import (
    NO_TIME,
    Coverage,
    Window,
    exposure_steps,
    fold_table,
    observed_windows,
    read_events,
)
from lastgood.ledger.event import Event, encode_event
from lastgood.ledger.grouping import parse_rule
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from lastgood.ledger.table_builder import TableBuilder
from tests.unit.ledger.cases import START_US, S, clock_at, some_event
from tests.unit.ledger.story import Story


def table_of(events: list[Event]):
    builder = TableBuilder()
    builder.add([encode_event(e) for e in numbered(events)])
    return builder.build()


def numbered(events: list[Event]) -> list[Event]:
    import msgspec

    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events)]


def on(**domain: str) -> list[dict[str, str]]:
    return [{"kind": kind, "id": name} for kind, name in domain.items()]


def test_a_ledger_is_read_as_columns_in_the_order_of_time(tmp_path: Path):
    path = tmp_path / "ledger.db"
    with open_store(path, clock=clock_at()) as store:
        store.append(
            [
                some_event(5, kind="observation", class_="fail_stop", domain=on(host="h1", device="h1/0")),
                some_event(1, kind="observation", run=None, body={"label": "L", "code": "79", "mapping": "xid/1@x"}),
                some_event(3, kind="annotation", devices=8, links={"supersedes": "event-5"}),
            ]
        )  # fmt: skip
        head = store.head()
    table = read_events(path)
    assert len(table) == 2  # event-5 was corrected
    assert table.seq.tolist() == [1, 2]
    assert table.t_us.tolist() == [START_US + 1 * S, START_US + 3 * S]
    assert table.kind.texts() == ["observation", "annotation"]
    assert table.run.texts() == [None, "r1"]
    assert (table.label.text(0), table.code.text(0), table.mapping.text(0)) == (
        "L",
        "79",
        "xid/1@x",
    )
    assert table.class_.texts() == [None, None]
    assert table.devices.tolist() == [-1, 8]
    assert table.detect_us.tolist() == [NO_TIME, NO_TIME]
    assert (table.origin, table.size, table.root) == (head.origin, 3, head.root)


def test_an_empty_ledger_is_an_empty_table(tmp_path: Path):
    open_store(tmp_path / "ledger.db").close()
    table = read_events(tmp_path / "ledger.db")
    assert len(table) == len(fold_table(table)) == 0
    assert len(fold_table(table, parse_rule("gap:1s+merge:1s"))) == 0
    assert observed_windows(table) == []
    total, by_host = exposure_steps(table)
    assert (len(total.t_us), by_host) == (0, {})


def test_a_path_without_a_ledger_is_named(tmp_path: Path):
    with pytest.raises(LedgerError, match="no such ledger"):
        read_events(tmp_path / "none.db")


def test_a_column_of_words_answers_about_its_words():
    story = Story()
    for class_ in ("sdc", None, "fail_stop", "sdc"):
        story.tell("observation", 0, class_=class_)
    column = table_of(story.events).class_
    assert column.counts() == {"sdc": 2, "fail_stop": 1}
    assert column.is_one_of(["sdc", "nothing"]).tolist() == [True, False, False, True]
    assert column.code_of("nothing") not in column.codes
    assert (column.codes == column.code_of("fail_stop")).tolist() == [False, False, True, False]


def test_columns_that_say_nothing_take_no_memory():
    table = table_of([some_event(n) for n in range(100)])
    assert table.class_.codes.strides == table.detect_us.strides == (0,)


def test_part_of_a_table_keeps_the_further_domains_of_its_rows():
    story = Story()
    for at in range(4):
        story.tell("observation", at, domain=[*on(host=f"a{at}"), *on(host=f"b{at}")])
    part = table_of(story.events).take([False, True, False, True])
    assert part.host.texts() == ["a1", "a3"]
    assert part.more_domains.row.tolist() == [0, 1]
    assert [part.host.names[code] for code in part.more_domains.code] == ["b1", "b3"]


# --- correlated ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "expected"), [("7s", [False] * 3), ("8s", [True] * 3), ("9s", [True] * 3)]
)
def test_the_end_of_a_window_belongs_to_it(window, expected):
    """The window from 0 to 8 seconds holds both members; the last failure is 16 seconds after the first."""
    story = Story()
    for at, host in ((0, "a"), (8, "b"), (16, "b")):
        story.tell("observation", at, class_="fail_stop", domain=on(host=host, rack="r"))
    folded = fold_table(table_of(story.events), parse_rule(f"gap:0us+correlated:{window}"))
    assert folded.correlated.tolist() == ([*expected[:2], False])


def test_what_lies_within_the_window_of_two_members_is_correlated_up_to_its_end():
    story = Story()
    for at, host in ((0, "a"), (1, "b"), (8, "b"), (9, "b")):
        story.tell("observation", at, class_="fail_stop", domain=on(host=host, rack="r"))
    folded = fold_table(table_of(story.events), parse_rule("gap:0us+correlated:8s"))
    assert folded.correlated.tolist() == [True, True, True, False]


# --- coverage -----------------------------------------------------------------------------------------


def covered(begin: int, end: int, *, declared: bool = False, format: str = "xid") -> Event:
    body = {"coverage": {"begin_us": begin, "end_us": end, "format": format, "declared": declared}}
    return some_event(begin, body=body)


def test_the_observed_time_is_the_union_of_what_the_files_cover():
    table = table_of(
        [covered(50, 70), covered(0, 10, declared=True), covered(10, 20), covered(60, 65)]
    )
    assert observed_windows(table) == [Window(0, 20), Window(50, 70)]
    assert table.coverage[0] == Coverage(begin_us=0, end_us=10, format="xid", is_declared=True)


def test_a_log_of_a_jobs_own_steps_speaks_about_no_failures():
    table = table_of([covered(0, 10), covered(5, 900, format="goodput")])
    assert observed_windows(table) == [Window(0, 10)]
    assert len(table.coverage) == 2


def test_without_coverage_the_observed_time_is_inferred_from_the_records():
    table = table_of([some_event(3), some_event(9)])
    assert observed_windows(table) == [Window(START_US + 3 * S, START_US + 9 * S, is_inferred=True)]


def test_a_coverage_that_cannot_be_read_covers_nothing():
    events = [some_event(n, body={"coverage": said}) for n, said in enumerate(
        ("x", {"begin_us": 5}, {"begin_us": 9, "end_us": 1}, {"begin_us": "1", "end_us": 2})
    )]  # fmt: skip
    assert table_of(events).coverage == ()


# --- exposure -----------------------------------------------------------------------------------------


def test_devices_at_risk_are_steps_in_all_and_by_host():
    story = Story()
    story.tell("exposure.join", 0, devices=8, domain=on(host="h1"))
    story.tell("exposure.join", 10, devices=4, domain=on(host="h2"))
    story.tell("exposure.leave", 30, devices=8, domain=on(host="h1"))
    story.tell("observation", 50)
    total, by_host = exposure_steps(table_of(story.events))
    assert ((total.t_us - START_US) // S).tolist() == [0, 10, 30, 50]
    assert total.devices.tolist() == [8, 12, 4, 0]
    assert ((by_host["h2"].t_us - START_US) // S).tolist() == [10, 50]
    assert total.device_us(START_US + 5 * S, START_US + 40 * S) == (8 * 5 + 12 * 20 + 4 * 10) * S
    assert np.array_equal(by_host["h1"].devices, [8, 0])


def test_a_failure_on_several_hosts_joins_the_incident_of_the_first_that_it_names():
    """As the objects do: y failed before z, and z is named before y."""
    story = Story()
    for at, hosts in enumerate(("y", "z", "pzy")):
        domain = [part for host in hosts for part in on(host=host)]
        story.tell("observation", at, class_="fail_stop", domain=domain)
    rule = parse_rule("gap:1min@host")
    assert fold_table(table_of(story.events), rule).event_count.tolist() == [1, 2]
    assert [len(i.event_ids) for i in fold_incidents(story.events, rule)] == [1, 2]


def test_single_signals_have_no_end_and_are_not_still_open():
    story = Story()
    story.tell("observation", 0, class_="fail_stop", domain=on(host="a"))
    story.tell("incident.open", 100, incident="i1", class_="fail_stop")
    story.tell("incident.open", 200, incident="i2", class_="fail_stop")
    story.tell("incident.close", 300, incident="i2")
    story.tell("planned.begin", 400)
    folded = fold_table(table_of(story.events), parse_rule("gap:1s"))
    assert folded.is_open.tolist() == [True, True, False, True]
    assert folded.is_interval.tolist() == [False, True, True, True]


def test_a_body_may_hold_anything_and_null_is_null():
    builder = TableBuilder()
    builder.add(
        [
            b'{"kind":"observation","id":"a","seq":0,"t_occurred_us":1,"body":{"label":["x"],"code":7,"outcome":{}}}',
            b'{"kind":"observation","id":"b","seq":1,"t_occurred_us":2,"devices":null,"detect_us":null,"body":{"label":"L"}}',
        ]
    )
    table = builder.build()
    assert table.label.texts() == [None, "L"]
    assert (table.code.names, table.outcome.names) == ((), ())
    assert (table.devices.tolist(), table.detect_us.tolist()) == ([-1, -1], [NO_TIME, NO_TIME])


def test_a_number_that_no_column_holds_is_refused_in_words():
    with pytest.raises(LedgerError, match="no column holds"):
        TableBuilder().add([b'{"kind":"k","id":"a","seq":0,"t_occurred_us":18446744073709551615}'])
    with pytest.raises(LedgerError, match="not an event"):
        TableBuilder().add([b'{"kind":"k"}'])


def test_an_incident_has_the_first_host_and_label_and_the_newest_class():
    story = Story()
    story.tell("incident.open", 0, incident="i1")
    for at, name in ((1, "a"), (2, "b")):
        story.tell(
            "observation", at, incident="i1", domain=on(host=name), body={"label": name},
            class_={"a": "fail_slow", "b": "sdc"}[name],
        )  # fmt: skip
    story.tell("incident.close", 3, incident="i1")
    folded = fold_table(table_of(story.events))
    assert (folded.host.text(0), folded.label.text(0)) == ("a", "a")
    assert folded.class_.text(0) == "sdc"
    assert folded.event_count.tolist() == [4]
