from __future__ import annotations

import json
import math

import pytest

from lastgood.base.canonical import canonical_bytes
from lastgood.base.errors import BadInput, LastgoodError, LedgerError
from lastgood.contract.taxonomy import TAXONOMY_ID, EventKind
from lastgood.ledger.event import (
    Domain,
    Event,
    Links,
    body_float,
    content_id,
    decode_event,
    encode_event,
    new_event,
    new_id,
)
from tests.unit.ledger.cases import START_US, clock_at, some_event

FULL = {
    "run": "r1", "attempt": 2, "ranks": [3, 5], "devices": 4, "class_": "fail_stop", "symptom": "process_exit",
    "cause": "host.memory", "cause_status": "hypothesis", "role": "initiating",
    "domain": [{"kind": "rank", "id": "3"}, Domain(kind="host", id="h1")],
    "versions": {"torch": "2.13.0"}, "topology": "sha256:aa", "detect_us": 0, "diagnose_us": 7, "isolate_us": 8,
    "recover_us": 9, "verify_us": 10, "checkpoint_age_us": 11, "lost_device_us": 12, "first_divergent_step": 13,
    "verification": {"test": "replay step 4", "result": "equal", "evidence": "ab"},
    "source": {"importer": "slurm", "version": "1", "locator": "f#3", "raw_sha256": "cd"},
    "links": {"parent": "p", "supersedes": "s"}, "incident": "i1", "body": {"loss": 0.1, "note": "text"},
}  # fmt: skip


def test_an_event_with_every_field_survives_its_bytes():
    event = new_event("incident.open", clock=clock_at(), **FULL)
    assert decode_event(encode_event(event)) == event
    assert event.links == Links(incident="i1", parent="p", supersedes="s")
    assert event.incident == "i1"
    assert (event.ranks, event.class_, event.taxonomy) == ((3, 5), "fail_stop", TAXONOMY_ID)
    assert event.domain == (Domain(kind="rank", id="3"), Domain(kind="host", id="h1"))


def test_every_field_of_the_design_has_a_place():
    """Design section 5, in its order."""
    named = [
        "schema",
        "id",
        "seq",
        "kind",
        "t_occurred_us",
        "t_observed_us",
        "t_recorded_us",
        "clock",
        "class",
        "taxonomy",
        "symptom",
        "cause",
        "cause_status",
        "role",
        "domain",
        "run",
        "attempt",
        "ranks",
        "devices",
        "versions",
        "topology",
        "detect_us",
        "diagnose_us",
        "isolate_us",
        "recover_us",
        "verify_us",
        "checkpoint_age_us",
        "lost_device_us",
        "first_divergent_step",
        "verification",
        "source",
        "links",
        "body",
    ]
    assert set(Event.__struct_encode_fields__) - {"\x7fextra"} == set(named)


def test_zero_is_written_and_null_is_not():
    plain = json.loads(encode_event(some_event(detect_us=0, verify_us=None)))
    assert plain["detect_us"] == 0
    assert "verify_us" not in plain
    assert decode_event(canonical_bytes(plain)).verify_us is None


def test_what_a_newer_writer_added_is_kept_at_every_level():
    plain = json.loads(encode_event(new_event("incident.open", clock=clock_at(), **FULL)))
    plain["new_field"] = {"a": [1, None]}
    for part in (
        plain["clock"],
        plain["links"],
        plain["source"],
        plain["verification"],
        plain["domain"][0],
    ):
        part["new_part"] = "x"
    data = canonical_bytes(plain)
    event = decode_event(data)
    assert event.extra == {"new_field": {"a": [1, None]}}
    assert event.run == "r1"
    assert encode_event(event) == data


def test_floats_in_a_body_are_hex_text_and_come_back_exactly():
    event = decode_event(
        encode_event(some_event(body={"loss": 0.1, "deep": [{"x": -2.5}], "n": 3}))
    )
    assert event.body == {
        "loss": "0x1.999999999999ap-4",
        "deep": [{"x": "-0x1.4000000000000p+1"}],
        "n": 3,
    }
    assert body_float(event, "loss") == 0.1
    assert body_float(event, "n") == 3.0
    assert body_float(event, "absent") is None


def test_a_not_a_number_can_be_recorded():
    event = decode_event(encode_event(some_event(body={"loss": math.nan})))
    assert math.isnan(body_float(event, "loss"))


def test_the_bytes_are_sorted_without_spaces():
    assert encode_event(Event(kind="step", id="x", seq=0, body={"b": 1, "a": "\u00e9"})) == (
        '{"body":{"a":"\u00e9","b":1},"id":"x","kind":"step","schema":"lastgood.event/1","seq":0}'.encode()
    )


def test_a_live_event_knows_when_and_by_which_clock():
    event = new_event("annotation", clock=clock_at())
    assert (event.t_occurred_us, event.t_observed_us, event.t_recorded_us) == (
        START_US,
        START_US,
        None,
    )
    assert event.clock is not None
    assert event.clock.source == "host"
    earlier = new_event("detect", clock=clock_at(), t_occurred_us=START_US - 5)
    assert (earlier.t_occurred_us, earlier.t_observed_us) == (START_US - 5, START_US)


def test_ids_are_unique_and_sort_by_time():
    ids = [new_id(START_US + number * 1000) for number in range(1000)]
    assert ids == sorted(ids)
    assert len({new_id(START_US) for _ in range(1000)}) == 1000
    assert all(text[14] == "7" and text[19] in "89ab" for text in ids)


def test_the_same_imported_line_has_the_same_id_and_another_line_another():
    told = {"source": "slurm", "locator": "a.log#3", "raw": b"line"}
    assert content_id(**told) == content_id(**told)
    others = [{"source": "otlp"}, {"locator": "a.log#4"}, {"raw": b"lin"}]
    assert len({content_id(**told), *(content_id(**told | other) for other in others)}) == 4


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"class_": "crash"}, "fail_slow | fail_stop | planned | sdc"),
        ({"symptom": "gremlins"}, "process_exit"),
        ({"cause": "gpu"}, "gpu.memory"),
        ({"cause_status": "sure"}, "established"),
        ({"role": "guilty"}, "initiating"),
        ({"domain": [{"kind": "planet", "id": "x"}]}, "rack"),
        ({"rank": 3}, "no such field"),
        ({"attempt": "two"}, "attempt"),
        ({"detect_us": 1.5}, "detect_us"),
        ({"domain": [{"id": "x"}]}, "kind"),
    ],
)
def test_a_wrong_word_or_form_stops_its_writer_and_names_what_is_needed(fields, part):
    with pytest.raises(BadInput) as caught:
        new_event("annotation", clock=clock_at(), **fields)
    assert part in str(caught.value)


def test_a_kind_that_the_taxonomy_does_not_have_is_refused():
    with pytest.raises(BadInput, match="event"):
        new_event("incident.opened", clock=clock_at())


def test_every_kind_of_the_taxonomy_can_be_made():
    assert [new_event(kind, clock=clock_at()).kind for kind in EventKind] == [
        str(k) for k in EventKind
    ]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"id":"x"}', b'{"id":1,"kind":"step","new":2}', b"\xff"]
)
def test_bytes_that_are_no_event_are_refused(data):
    with pytest.raises(LedgerError, match="not an event"):
        decode_event(data)


def test_a_number_that_no_other_reader_could_hold_is_refused():
    with pytest.raises(LastgoodError):
        encode_event(some_event(body={"big": 2**70}))


def test_text_that_utf8_cannot_hold_is_spelled_when_an_event_is_made():
    name = b"\xff.py".decode("utf-8", "surrogateescape")
    event = new_event(
        "annotation", clock=clock_at(), run=name, body={"command": [name, 1], name: {"trace": name}}
    )
    assert event.run == "\\xff.py"
    assert event.body == {"command": ["\\xff.py", 1], "\\xff.py": {"trace": "\\xff.py"}}
    assert decode_event(encode_event(event)) == event
