"""A card, its timeline and the bars of wall time tell of the same times, whatever was tried how often."""

from __future__ import annotations

import pytest

from lastgood.evidence.incident_card import incident_cards
from lastgood.evidence.incident_part import Drill
from lastgood.evidence.report import IncidentCard
from lastgood.ledger.ettr import measure_run
from lastgood.ledger.event import Domain, Verification
from lastgood.ledger.incident import Incident, fold_incidents
from tests.unit.ledger.story import Story, us


def card_of(story: Story, **options) -> IncidentCard:
    times = measure_run(story.events, run="r1", as_of_us=us(10_000))
    return incident_cards(times.incidents, drill=Drill(), as_of_us=0, wall=times.wall, **options)[0]


def figures(card: IncidentCard) -> dict[str, float | None]:
    return {row.label: row.figure.value for row in card.figures}


def diagnosed_again() -> Story:
    """Detected at 52; named at 53 and, with a second rank, again at 56; then two tries to restore."""
    story = Story().start(0).steps(1, 4, 10)
    words = {"incident": "i1", "class_": "fail_stop", "symptom": "process_exit", "ranks": [2]}
    story.tell("incident.open", 52, t_occurred_us=us(51), t_observed_us=us(52), **words)
    story.tell("detect", 52, incident="i1", t_occurred_us=us(51), t_observed_us=us(52))
    story.tell("annotation", 50, incident="i1", body={"text": "a line that an earlier look wrote"})
    story.tell("diagnose", 53, incident="i1", body={"culprits": [2]})
    story.tell("diagnose", 56, incident="i1", body={"culprits": [1, 2]})
    story.tell("isolate", 60, incident="i1")
    story.tell("restore.begin", 61, incident="i1")
    story.tell("restore", 64, incident="i1")
    story.tell("diagnose", 65, incident="i1", body={"culprits": [1, 2]})
    story.tell("isolate", 66, incident="i1")
    story.tell("restore.begin", 67, incident="i1")
    story.tell("restore", 70, incident="i1")
    story.tell("verify", 72, incident="i1", verification={"test": "replay", "result": "equal"})
    # What the closing record states is what was measured inside; a stray number of it changes nothing.
    story.tell("incident.close", 72, incident="i1", diagnose_us=0, body={"outcome": "recovered"})
    return story.steps(5, 6, 72).end(92)


def test_the_timeline_holds_every_record_that_moved_the_incident_on():
    moments = [(m.name, m.since_onset_us, m.detail) for m in card_of(diagnosed_again()).moments]
    assert moments == [
        ("last step", -1_000_000, "down.detect counts from here"),
        ("onset", 0, ""),
        ("detect", 1_000_000, ""),
        ("diagnose", 2_000_000, ""),
        ("diagnose", 5_000_000, "again"),
        ("isolate", 9_000_000, ""),
        ("restoring", 10_000_000, ""),
        ("restore", 13_000_000, ""),
        ("diagnose", 14_000_000, "again"),
        ("isolate", 15_000_000, "again"),
        ("restoring", 16_000_000, "again"),
        ("restore", 19_000_000, "again"),
        ("verify", 21_000_000, ""),
        ("close", 21_000_000, ""),
    ]


def test_durations_on_the_card_are_sums_over_its_timeline_and_equal_the_bars():
    story = diagnosed_again()
    found, wall = figures(card_of(story)), measure_run(story.events, run="r1", as_of_us=us(10_000)).wall  # fmt: skip
    assert found["Detection"] == 1_000_000
    assert found["Diagnosis"] == wall.totals_us["down.diagnose"] == 1_000_000
    assert found["Isolation"] == wall.totals_us["down.isolate"] == 8_000_000
    assert found["Recovery"] == wall.totals_us["down.restart"] + wall.totals_us["restore"] == 8_000_000  # fmt: skip
    assert found["Verification"] == wall.totals_us["down.verify"] == 3_000_000
    since = {m.name: m.since_onset_us for m in card_of(story).moments}
    assert wall.totals_us["down.detect"] == since["detect"] - since["last step"]


def test_the_whole_lasts_to_the_end_of_the_next_accepted_step_and_names_its_source():
    """Onset 51, closed at 72, and step 5 ran from there to 82."""
    card = card_of(diagnosed_again())
    (whole,) = (r.figure for r in card.figures if r.label == "Fault to next accepted step")
    assert (whole.value, whole.unit, whole.kind) == (us(82) - us(51), "us", "measured")
    assert whole.source.startswith("onset of the incident to the end of the first accepted step")
    phases = ("Detection", "Diagnosis", "Isolation", "Recovery", "Verification")
    assert sum(figures(card)[name] for name in phases) == us(72) - us(51)


def test_a_step_that_was_redone_is_not_the_accepted_one():
    """Step 5 of 72 to 82 was thrown away with the next fault; what counts is its second run, to 95."""
    story = diagnosed_again()
    del story.events[-2:]
    story.steps(5, 5, 72).new_attempt(85).steps(5, 6, 85).end(105)
    assert figures(card_of(story))["Fault to next accepted step"] == us(95) - us(51)


def test_behind_the_last_step_of_a_run_nothing_says_how_long_it_took():
    story = diagnosed_again()
    del story.events[-2:]
    assert figures(card_of(story.end(80)))["Fault to next accepted step"] is None


def test_a_line_of_an_earlier_look_moves_no_onset():
    (incident,) = fold_incidents(diagnosed_again().events)
    assert incident.onset_us == us(51)


def test_what_never_happened_stands_in_its_place_without_a_time():
    story = Story().start(0).steps(1, 4, 10)
    story.tell("incident.open", 52, incident="i1", class_="fail_stop", symptom="hang", ranks=[1])
    story.tell("incident.close", 60, incident="i1", body={"outcome": "ended"})
    names = [(m.name, m.at_us is None) for m in card_of(story).moments]
    assert names[-5:] == [("diagnose", True), ("isolate", True), ("restore", True), ("verify", True), ("close", False)]  # fmt: skip


def test_a_replay_that_was_refused_says_so():
    story = Story().start(0).steps(1, 4, 10)
    story.tell("incident.open", 52, incident="i1", class_="sdc", symptom="replay_mismatch")
    story.tell("verify", 60, incident="i1", verification={"test": "replay", "result": "different"})
    assert [m.detail for m in card_of(story).moments if m.name == "verify"] == ["different"]


@pytest.mark.parametrize("many", [True, False])
def test_that_ranks_share_a_host_is_told_only_where_there_are_others(many):
    host = Domain(kind="host", id="node-a")
    made = Incident(id="i", symptom="hang", ranks=(0, 1), domain=(host,), correlated=True, correlated_by=(host,))  # fmt: skip
    (card,) = incident_cards([made], drill=Drill(), as_of_us=0, has_many_hosts=many)
    assert dict(card.facts).get("Correlated") == ("yes, by host node-a" if many else None)
    assert card.title == ("Ranks 0-1 on node-a stopped moving" if many else "Ranks 0-1 stopped moving")  # fmt: skip


def test_who_must_act_is_said_of_an_escalated_incident():
    (card,) = incident_cards([Incident(id="i", outcome="escalated", closed_us=1)], drill=Drill(), as_of_us=0)  # fmt: skip
    assert card.outcome == "handed to a person"


def test_the_test_that_verified_it_is_no_second_time_what_was_seen():
    check = Verification(test="replay step 9 on every rank", result="equal")
    made = Incident(id="i", notes=("rank 2 ended: signal 9", check.test), verification=check)
    (card,) = incident_cards([made], drill=Drill(), as_of_us=0)
    assert card.evidence == ("rank 2 ended: signal 9",)
