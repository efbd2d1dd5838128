"""Remarks have their place in a report, with the stacks that were taken for them; what another part tells is not told twice."""

from __future__ import annotations

import pytest

from lastgood.contract.load import default_contract
from lastgood.training.report.section import build_section
from lastgood.training.states.checkpointing import LATE
from tests.unit.evidence import sample_run
from tests.unit.ledger.story import Story, us

GROUP = {
    "role": "trainer", "ranks": [1], "pids": [7], "stack": ["__del__ (train.py:54)"], "is_usual": False, "is_outlier": False,
}  # fmt: skip
LINGERS = {"text": "behind the end of its script rank 1 (w1) has not ended for 30 s", "stack_groups": [GROUP], "dumped": 1}  # fmt: skip


def report_of(*remarks, **fields):
    story = Story().start().steps(1, 10, 30)
    for at, (ranks, body) in enumerate(remarks, start=140):
        story.tell("annotation", at, ranks=ranks, body=body, **fields)
    story.tell("run.end", 200, body={"exit_code": 0})
    section = build_section(story.events, default_contract(), as_of_us=us(1000))
    return {part.name: part for part in section.parts}


def test_every_remark_is_told_with_its_ranks_and_its_numbers():
    unlimited = {"text": "a section without a limit", "section": "eval", "limit_us": 600_000_000}
    late = {"text": "the ledger could not be written", "since_us": 1_796_004_000_000_000}
    slow = {"text": "performance: suspect", "evidence": ["rank 0 is slow"]}
    (table,) = report_of(([], unlimited), ([], late), ([0], slow))["remarks"].tables
    assert [row[1:] for row in table.rows] == [
        (None, "a section without a limit", "section eval; limit 10 min"),
        (None, "the ledger could not be written", "since 2026-11-30 02:00:00.000 UTC"),
        ("0", "performance: suspect: rank 0 is slow", None),
    ]


def test_a_rank_that_does_not_end_is_said_on_the_first_screen_and_its_stack_is_shown():
    ended = {"text": "behind the end of its script rank 1 (w1) was ended by signal 9"}
    found = report_of(([1], LINGERS), ([1], ended))
    assert [note.text for note in found["remarks"].notes] == [
        f"Remark: {LINGERS['text']} (1 more remark: --full)."
    ]
    assert [table.name for table in found["stacks"].tables] == ["stacks-remark-1", "stack-remark-1-1"]  # fmt: skip
    assert found["stacks"].tables[1].rows == (("1", "__del__ (train.py:54)"),)
    assert found["stacks"].notes == ()


@pytest.mark.parametrize(
    "body",
    [
        {"text": "one step was run again from the same state", "noise": "0x0p+0"},
        {"text": "the twin", "twin": "equal"},
        {"text": LATE, "reason": "busy"},
        {"what": "no text"},
    ],
)
def test_what_another_part_tells_is_no_remark(body):
    assert "remarks" not in report_of(([1], body))


def test_a_note_of_an_incident_and_a_jump_of_a_number_are_told_there():
    assert "remarks" not in report_of(([1], LINGERS), incident="i1")
    assert "remarks" not in report_of(([1], LINGERS), symptom="numeric_jump")


def test_a_run_without_remarks_has_no_such_part_and_says_that_no_stack_was_taken():
    section = build_section(sample_run.undisturbed(), default_contract(), as_of_us=2**62)
    found = {part.name: part for part in section.parts}
    assert "remarks" not in found
    assert "no stacks were taken" in found["stacks"].notes[0].text
