"""The report as data: it can be hashed, and every figure in it has a path."""

from __future__ import annotations

import json

import msgspec

from lastgood.base.canonical import canonical_bytes, float_from_hex
from lastgood.evidence.report import Words, canonical_plain, figures_in, plain
from tests.unit.evidence.made_reports import full_report


def test_a_report_has_canonical_bytes():
    assert canonical_bytes(canonical_plain(full_report())).startswith(b'{"as_of_us":')


def test_a_float_is_stored_exactly_as_hex():
    section = canonical_plain(full_report())["sections"][0]
    assert float_from_hex(section["figures"][0]["figure"]["value"]) == 0.8731


def test_the_plain_form_is_json_and_keeps_floats_and_kinds_readable():
    section = json.loads(json.dumps(plain(full_report())))["sections"][0]
    figure = section["figures"][0]["figure"]
    assert (figure["value"], figure["kind"], figure["kinds"]) == (0.8731, "measured", ["measured"])


def test_every_figure_is_found_once_with_its_path():
    found = figures_in(full_report())
    paths = [path for path, _ in found]
    # 2 key figures, 1 wall time, 8 table cells (one of nine is a dash), 2 on each of 2 cards.
    assert len(found) == 2 + 1 + 8 + 4
    assert len(set(paths)) == len(paths)
    assert "training/time/classes/2/3" in paths
    assert "training/incidents/incident-2/lost" in paths


def test_answers_are_left_out_while_empty_so_that_an_older_bundle_stays_equal():
    report = full_report()
    assert "answers" not in plain(report)["sections"][0]
    answer = Words(title="How many?", sentences=("Two.",))
    section = msgspec.structs.replace(report.sections[0], answers=(answer,))
    told = plain(msgspec.structs.replace(report, sections=(section,)))["sections"][0]
    assert told["answers"] == [{"title": "How many?", "sentences": ["Two."]}]
