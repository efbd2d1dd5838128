"""An attached job in its report: who failed, on which host and when; whose records are missing; how clocks stand."""

from __future__ import annotations

import pytest

from lastgood.contract.load import default_contract
from lastgood.evidence.report import Section
from lastgood.evidence.terminal import visible
from lastgood.training.report.section import build_section
from tests.unit.ledger.importers.test_spool_statements import HOUR, SECOND, Host, Import, T


@pytest.fixture
def imported(tmp_path) -> Import:
    return Import(tmp_path)


def section_of(imported: Import) -> Section:
    events = imported.events
    return build_section(events, default_contract("training"), as_of_us=T + 2 * HOUR, run="r")


def part(section: Section, name: str) -> Section:
    return next(p for p in section.parts if p.name == name)


def notes(section: Section) -> list[str]:
    return [visible(note.text) for note in part(section, "hosts").notes]


def job(*, behind_us: int = 0) -> tuple[Host, Host]:
    a, b = Host("node-a", 0, 1, world=4), Host("node-b", 2, 3, world=4, behind_us=behind_us)
    for host in (a, b):
        host.steps(T)
    b.names(T + 3 * SECOND, 2)
    for host in (a, b):
        host.ends(T + 8 * SECOND)
    return a, b


def test_the_report_of_an_attached_job_says_who_hung_where_and_when(imported):
    imported(*job())
    section = section_of(imported)
    assert section.headline is not None
    assert section.headline.sentence.startswith(
        "Rank 2 on node-b stopped moving at 00:00:13 UTC; it is still open. "
    )
    (card,) = part(section, "incidents").cards
    assert card.title == "Rank 2 on node-b stopped moving"
    assert dict(card.facts)["Fault domain"] == "host node-b"


def test_a_run_whose_logs_hold_no_failure_has_no_part_for_them(imported):
    a, b = Host("node-a", 0, world=2).steps(T), Host("node-b", 1, world=2).steps(T)
    imported(a.ends(T + SECOND, 0), b.ends(T + SECOND, 0))
    section = section_of(imported)
    assert "incidents" not in [p.name for p in section.parts]
    assert notes(section) == []


def test_a_clock_that_stands_apart_is_said_with_what_was_done_about_it(imported):
    imported(*job(behind_us=HOUR))
    section = section_of(imported)
    assert notes(section) == ["The clock of node-b stood 1 h ahead of that of node-a; its times were set right."]  # fmt: skip
    rows = {row[0]: row for row in part(section, "hosts").tables[0].rows}
    assert rows["node-b"][2].value == HOUR


def test_ranks_without_a_spool_and_a_host_without_an_end_are_said(imported):
    a = Host("node-a", 0, world=6).steps(T).ends(T + SECOND)
    imported(a, Host("node-b", 1, 2, world=6).steps(T))
    assert notes(section_of(imported)) == [
        "No records of ranks 3-5 in attempt 1, of 6 ranks: the spool of that host is missing here.",
        "How the ranks of node-b ended is not on record.",
    ]
