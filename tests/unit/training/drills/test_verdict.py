"""Expected beside found: each line is held against the records, and a record that is missing is never in favour."""

import dataclasses

import pytest

from lastgood.base.clock import ManualClock
from lastgood.faults.spec import FaultKind
from lastgood.ledger.event import Verification, new_event
from lastgood.training.drills.drill import Drill, Expectation, JobSettings, Outcome, Seen, a_fault
from lastgood.training.drills.verdict import Records, judge_job

CLOCK = ManualClock(10_000_000)
INJECTED_US = 5_000_000


def event(kind, at_us, incident=None, **fields):
    links = None if incident is None else {"incident": incident}
    return new_event(
        kind, clock=CLOCK, run="r", attempt=1, topology="t", versions={"a": "1"},
        t_occurred_us=at_us, t_observed_us=at_us, links=links, **fields,
    )  # fmt: skip


def incident(name, at_us, *, symptom="process_exit", ranks=(2,), outcome="recovered", lost_steps=0):
    verification = Verification(test="replay", result="equal", evidence="aa")
    is_good = outcome == "recovered"
    return [
        event("incident.open", at_us, name, ranks=ranks, symptom=symptom, class_="fail_stop"),
        event("detect", at_us, name, ranks=ranks),
        event("isolate", at_us + 10, name, ranks=ranks),
        *([event("verify", at_us + 50, name, verification=verification)] if is_good else []),
        event(
            "incident.close", at_us + 60_000, name, ranks=ranks,
            verification=verification if is_good else None,
            body={"outcome": outcome, "lost_steps": lost_steps},
        ),
    ]  # fmt: skip


def drill(name="kill", *, rank=2, symptom="process_exit", outcome=Outcome.RECOVERED, **expect):
    return Drill(
        name=name,
        group="tests",
        title="a test",
        faults=(a_fault(FaultKind.SIGKILL, rank),),
        expect=Expectation(outcome=outcome, symptom=symptom, ranks=(rank,), **expect),
    )


def records(events, **more):
    given = {
        "run": "r",
        "folder": "jobs/x",
        "events": events,
        "injected_us": {"kill/fault": INJECTED_US},
        "not_injected": {},
        "exit_code": 0,
        "is_bitwise_equal": True,
    }
    return Records(**{**given, **more})


def judged(one, given):
    (verdict,) = judge_job([one], given, {one.name: one.owner})
    return verdict


def broken(one, given):
    return [line.what for line in judged(one, given).broken]


GOOD = incident("i1", INJECTED_US + 100_000)


def test_a_drill_that_went_as_expected_holds_and_says_its_times():
    verdict = judged(
        drill(incidents=1, lost_steps_max=0, detected_within_us=100_000), records(GOOD)
    )
    assert verdict.has_held
    assert (verdict.detected_us, verdict.recovered_us, verdict.lost_steps) == (100_000, 160_000, 0)


def test_each_line_names_the_event_that_shows_it():
    shown = {line.what: line.event for line in judged(drill(lost_steps_max=0), records(GOOD)).lines}
    ids = {e.kind: f"{e.kind} {e.id}" for e in GOOD}
    assert shown["outcome"] == ids["incident.close"]
    assert shown["culprit"] == ids["incident.open"]
    assert shown["lost steps"] == ids["incident.close"]


@pytest.mark.parametrize(
    ("expect", "given", "what"),
    [
        ({}, records(incident("i", INJECTED_US + 1, ranks=(1,))), ["culprit"]),
        ({}, records(incident("i", INJECTED_US + 1, symptom="hang")), ["symptom"]),
        ({"class_": "sdc"}, records(GOOD), ["class"]),
        ({"lost_steps_max": 0}, records(incident("i", INJECTED_US + 1, lost_steps=1)), ["lost steps"]),
        ({"detected_within_us": 99_999}, records(GOOD), ["detected within"]),
        ({"incidents": 2}, records(GOOD), ["incidents"]),
        ({}, records(GOOD, is_bitwise_equal=False), ["final weights and the twin's"]),
        ({}, records(GOOD, is_bitwise_equal=None), ["final weights and the twin's"]),
        ({}, records(GOOD, exit_code=1), ["job", "exit code"]),
        ({}, records(GOOD, unread="torn"), ["ledger"]),
        ({"seen": (Seen(kind="state.trust"),)}, records(GOOD), ["on record"]),
        ({"never": (Seen(kind="isolate"),)}, records(GOOD), ["not on record"]),
        ({"says": "no space"}, records(GOOD, errors="all well"), ["says"]),
        ({}, records(incident("i", INJECTED_US + 1, outcome="escalated")), ["outcome"]),
        ({}, records([*GOOD, *incident("j", INJECTED_US + 9_000_000, outcome="escalated")]), ["outcome"]),
    ],
)  # fmt: skip
def test_a_line_that_is_not_so_does_not_hold(expect, given, what):
    assert broken(drill(**expect), given) == what


def test_a_fault_that_was_never_carried_out_holds_nothing():
    verdict = judged(
        drill(), records([], injected_us={}, not_injected={"kill/fault": "time was up"})
    )
    assert verdict.broken[0].found == "0; fault: time was up"
    assert "outcome" in [line.what for line in verdict.broken]


def test_an_incident_belongs_to_the_drill_whose_fault_came_last_before_it():
    second = drill("stop", rank=1, symptom="hang")
    later_us = INJECTED_US + 8_000_000
    given = records(
        [*GOOD, *incident("i2", later_us + 5, symptom="hang", ranks=(1,))],
        injected_us={"kill/fault": INJECTED_US, "stop/fault": later_us},
    )
    verdicts = judge_job([drill(), second], given, {"kill": "a", "stop": "b"})
    assert [v.has_held for v in verdicts] == [True, True]
    assert [v.owner for v in verdicts] == ["a", "b"]


def test_an_incident_before_any_fault_counts_against_the_first_drill():
    early = incident("i0", INJECTED_US - 1_000_000, symptom="hang", ranks=(0,))
    assert "culprit" in broken(drill(incidents=1), records([*early, *GOOD]))


def test_a_job_that_could_not_run_is_said_first_with_its_last_words():
    verdict = judged(drill(), records([], exit_code=1, injected_us={}, last_words="No module x"))
    assert verdict.broken[0].found == "it ended with code 1: No module x"


@pytest.mark.parametrize(
    ("outcome", "events", "code", "has_held"),
    [
        (Outcome.ESCALATED, incident("i", INJECTED_US + 1, outcome="escalated"), 93, True),
        (Outcome.ESCALATED, GOOD, 93, False),
        (Outcome.FINISHED, [], 0, True),
        (Outcome.FINISHED, GOOD, 0, False),
        (Outcome.REFUSED, [], 3, True),
        (Outcome.REFUSED, [], 0, False),
        (Outcome.OBSERVED, [GOOD[0], GOOD[1]], 0, True),
        (Outcome.OBSERVED, GOOD, 0, False),
        (Outcome.OBSERVED, [], 0, False),
    ],
)
def test_every_outcome_has_its_own_proof(outcome, events, code, has_held):
    one = dataclasses.replace(drill(), expect=Expectation(outcome=outcome))
    (line,) = [x for x in judged(one, records(events, exit_code=code)).lines if x.what == "outcome"]
    assert line.has_held is has_held


@pytest.mark.parametrize(
    ("wanted", "found", "is_seen"),
    [
        ("disk", "no space on disk", True),
        ("left early", ["rank 1: it left early", "other"], True),
        ("left early", ["other"], False),
        (3, 3, True),
        (3, [1, 3], True),
        (True, None, False),
        (
            {"role": "trainer", "is_usual": True},
            [{"role": "loader"}, {"role": "trainer", "is_usual": True, "n": 3}],
            True,
        ),
        ({"role": "trainer", "is_usual": True}, [{"role": "trainer", "is_usual": False}], False),
    ],
)
def test_a_field_of_an_event_agrees_by_part_of_its_text_or_one_of_its_items(wanted, found, is_seen):
    noted = event("annotation", INJECTED_US + 5, body={"field": found})
    seen = Seen(kind="annotation", body=(("field", wanted),))
    one = drill(seen=(seen,))
    assert judged(one, records([*GOOD, noted])).has_held is is_seen


def test_settings_that_a_job_of_this_process_cannot_have_ask_for_a_process():
    base = drill()
    assert not base.needs_process
    for run in (JobSettings(options=("--mode", "observe")), JobSettings(starts=2),
                JobSettings(env=(("A", "b"),)), JobSettings(is_own_process=True)):  # fmt: skip
        assert dataclasses.replace(base, run=run).needs_process
