"""Incidents in words and rows, from incidents made by hand."""

from __future__ import annotations

import pytest

from lastgood.base.figures import measured
from lastgood.evidence.incident_card import incident_cards
from lastgood.evidence.incident_part import (
    Drill,
    headline,
    ranks_text,
    ranks_words,
    settled,
    title_of,
)
from lastgood.evidence.stops_part import class_table
from lastgood.ledger.ettr import measure_run
from lastgood.ledger.event import Verification
from lastgood.ledger.incident import Incident
from tests.unit.ledger.story import Story, us

EXPOSURE = measured("exposure", 1.5, "device-h", source="joins")
TIMES = {
    "onset_us": 0, "detected_us": 1, "diagnosed_us": 2, "isolated_us": 3, "restored_us": 4, "verified_us": 5, "closed_us": 6,
}  # fmt: skip


def incident(name: str = "i1", *, result: str = "equal", **fields) -> Incident:
    """A fault that was recovered and verified, unless told otherwise."""
    defaults = {"class_": "fail_stop", "symptom": "process_exit", "ranks": (2,), "outcome": "recovered",
                "verification": Verification(test="replay step 9", result=result)}  # fmt: skip
    return Incident(id=name, **{**TIMES, **defaults, **fields})


def said(*incidents: Incident, drill: Drill | None = None):
    return headline(incidents, drill=drill or Drill(), ending="the run ended")


def test_the_death_of_a_supervisor_is_not_that_of_a_rank():
    assert (
        title_of(Incident(id="r/interruption-1", symptom="process_exit")) == "The supervisor ended"
    )


def test_blast_radius_of_a_class_is_the_largest_and_lost_steps_are_summed():
    made = [
        incident("a", blast_radius=2, lost_steps=1),
        incident("b", blast_radius=8, lost_steps=3),
        incident("c"),
    ]
    row = class_table(made, exposure=EXPOSURE, as_of_us=9, rule="links").rows[1]
    assert (row[10].value, row[11].value, row[11].n) == (8, 4, 2)


def test_what_no_incident_of_a_class_records_is_not_observed_and_not_zero():
    row = class_table([incident()], exposure=EXPOSURE, as_of_us=9, rule="links").rows[1]
    assert row[11].value is None


def test_a_later_verification_that_failed_outweighs_an_earlier_one():
    answer = said(incident(result="different"))
    assert answer.sentence.startswith("0 of 1 fault was detected")
    assert "1 closed without an accepted verification" in answer.sentence


@pytest.mark.parametrize("missing", ["detected_us", "isolated_us", "restored_us", "verified_us"])
def test_each_of_the_four_questions_can_break_the_answer(missing):
    answer = said(incident(**{missing: None}))
    assert answer.state == "not_held"
    assert not answer.sentence.startswith("The one fault was")


def test_an_escalated_incident_is_not_recovered():
    answer = said(incident(outcome="escalated"))
    assert {c.question: c.state for c in answer.checks}["Recovered"] == "not_held"
    assert "1 was handed to a person" in answer.sentence


def test_one_fault_is_spoken_of_in_the_singular():
    assert (
        said(incident()).sentence
        == "The one fault was detected, contained, recovered and verified, bit for bit."
    )


def test_two_runs_of_one_step_are_not_said_to_be_what_was_published():
    twice = Verification(test="run step 9 twice on every rank", result="equal")
    again = incident(verification=twice)
    assert said(again).sentence.endswith("verified, bit for bit between two runs of one step.")
    assert said(again, incident("i2")).sentence.endswith(
        "verified, bit for bit, 1 of them between two runs of one step."
    )


def test_planned_stops_are_no_faults():
    assert said(incident(class_="planned")).sentence == "No fault was recorded; the run ended."


@pytest.mark.parametrize(
    ("is_injected", "stated", "covers"),
    [
        (False, None, False),
        (False, True, True),
        (True, None, True),
        (True, False, False),
        (True, True, True),
    ],
)
def test_an_incident_is_injected_when_it_says_so_or_its_run_does_and_it_does_not_deny_it(
    is_injected, stated, covers
):
    assert Drill(is_injected=is_injected).covers(incident(injected=stated)) is covers


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((), "none named"), ((3,), "3"), ((0, 1, 2, 5), "0-2, 5"), ((7, 7, 6), "6-7")],
)
def test_runs_of_ranks_are_folded(ranks, text):
    assert ranks_text(ranks) == text


@pytest.mark.parametrize(
    ("symptom", "ranks", "title"),
    [
        ("process_exit", (2,), "Rank 2 ended"),
        ("hang", (1, 2), "Ranks 1-2 stopped moving"),
        ("hang", (), "A rank stopped moving"),
        ("group_error", (1,), "The process group broke at rank 1"),
        ("group_error", (), "The process group broke, no rank named"),
        ("link_error", (4,), "Link error at rank 4"),
        ("link_error", (), "Link error"),
        (None, (), "Unknown symptom"),
    ],
)
def test_the_title_says_what_was_seen(symptom, ranks, title):
    assert title_of(incident(symptom=symptom, ranks=ranks)) == title


def test_a_symptom_with_braces_is_printed_as_it_is():
    assert title_of(incident(symptom="odd {x} thing", ranks=())) == "Odd {x} thing"


@pytest.mark.parametrize(
    ("cause", "said"),
    [(None, "not known"), ("unknown", "not known"), ("gpu.memory", "gpu.memory (supported)")],
)
def test_a_cause_comes_with_how_well_it_is_known(cause, said):
    card = incident_cards(
        [incident(cause=cause, cause_status="supported")], drill=Drill(), as_of_us=9
    )[0]
    assert dict(card.facts)["Cause"] == said


def test_an_open_incident_warns_that_its_times_are_lower_bounds():
    card = incident_cards([incident(closed_us=None, outcome=None)], drill=Drill(), as_of_us=9)[0]
    assert card.outcome == "still open"
    assert [note.level for note in card.notes] == ["warning"]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((), "none named"), ((0,), "rank 0"), ((0, 1, 2, 5), "ranks 0-2, 5")],
)
def test_ranks_at_fault_are_named_so_that_rank_0_is_not_read_as_none(ranks, words):
    assert ranks_words(ranks) == words


def test_a_planned_stop_that_the_run_ended_in_is_not_still_open():
    story = Story().start(0).steps(1, 4, 10)
    story.tell("planned.begin", 52, class_="planned")
    story.end(60)
    times = measure_run(story.events, run="r1", as_of_us=us(100))
    (planned,) = settled(times.incidents, times.wall)
    assert (planned.closed_us, planned.outcome) == (us(60), "the run ended with it")
    open_run = measure_run(story.events[:-1], run="r1", as_of_us=us(100))
    assert settled(open_run.incidents, open_run.wall)[0].is_open


def test_on_one_host_nothing_is_called_correlated():
    table = class_table([incident()], exposure=EXPOSURE, as_of_us=9, rule="links", has_many_hosts=False)  # fmt: skip
    assert [row[0] for row in table.rows] == ["planned", "fail-stop", "fail-slow", "SDC"]
    assert "Correlated" not in table.note
