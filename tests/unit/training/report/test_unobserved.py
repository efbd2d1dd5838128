"""A watched job whose supervisor was killed, and that is started again: what nobody saw is said, and is no outage."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.contract.load import default_contract
from lastgood.ledger.ettr import measure_run
from lastgood.ledger.event import new_event
from lastgood.training.report.section import build_section
from lastgood.training.resuming.interrupted import Resumption, closing_entries, read_history

SECOND_US = 1_000_000
KILLED_US, AGAIN_US, END_US = 10 * SECOND_US, 28 * SECOND_US, 40 * SECOND_US


def event(kind, t_us, *, attempt=1, **fields):
    return new_event(kind, clock=ManualClock(t_us), run="r", attempt=attempt, **fields)


def steps(first, began_us, count, *, attempt):
    ended_us = [began_us + SECOND_US * (n + 1) for n in range(count)]
    body = {"first": first, "last": first + count - 1, "began_us": began_us, "ended_us": ended_us}
    return event("step", ended_us[-1], attempt=attempt, t_occurred_us=began_us, body=body)


def started_again(mode, *, has_stepped=True):
    """Steps up to the kill, 18 s without anybody, and a second start that goes on to its end."""
    body = {"command": ["train.py"], "world": 1, "mode": mode}
    join = {"ranks": (0,), "devices": 1, "body": {"worker": "r0a1", "rank": 0}}
    events = [
        event("run.start", 0, body=body),
        event("attempt.start", SECOND_US, body={"world": 1}),
        event("exposure.join", SECOND_US, **join),
    ]
    if has_stepped:
        events.append(steps(1, 2 * SECOND_US, 8, attempt=1))
    history = read_history(events)
    before = Resumption(last_attempt=1, alive_us=history.alive_us)
    for kind, fields in closing_entries(history, before):
        events.append(event(kind, AGAIN_US, **fields))
    events += [
        event("run.start", AGAIN_US, attempt=2, body=body),
        event("attempt.start", AGAIN_US, attempt=2, body={"world": 1}),
        event("exposure.join", AGAIN_US, attempt=2, **join),
        steps(20, AGAIN_US + 2 * SECOND_US, 10, attempt=2),
        event("exposure.leave", END_US, attempt=2, **join),
        event("attempt.end", END_US, attempt=2, body={"reason": "run ended"}),
        event("run.end", END_US, attempt=2, body={"exit_code": 0}),
    ]
    return events


def test_what_nobody_saw_is_unknown_time_and_no_outage():
    wall = measure_run(started_again("observe"), run="r", as_of_us=END_US).wall
    assert wall.totals_us["unknown"] == AGAIN_US - KILLED_US
    assert wall.totals_us["down.detect"] == 0
    assert wall.totals_us["productive"] == 18 * SECOND_US


def test_a_start_that_was_killed_in_its_warm_up_warmed_up_until_then():
    events = started_again("observe", has_stepped=False)
    wall = measure_run(events, run="r", as_of_us=END_US).wall
    assert wall.totals_us["unknown"] == AGAIN_US - SECOND_US
    assert wall.totals_us["warmup"] == SECOND_US + 2 * SECOND_US


def test_ranks_that_ended_with_their_supervisor_were_down_until_somebody_noticed():
    wall = measure_run(started_again("act"), run="r", as_of_us=END_US).wall
    assert wall.totals_us["down.detect"] == AGAIN_US - KILLED_US
    assert wall.totals_us["unknown"] == 0


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("observe", "; for 18 s nobody saw what the ranks did; the run ended after 40 s"),
        (
            "act",
            "; its ranks ended with it, and for 18 s nothing ran; the run ended after 40 s",
        ),
    ],
)
def test_the_report_does_not_say_no_fault_without_saying_who_did_not_look(mode, words):
    said = build_section(started_again(mode), default_contract(), as_of_us=END_US).headline
    expected = f"No fault was seen, but the supervisor ended without a word{words} (exit code 0)."
    assert said.sentence == expected
    assert said.state == "unknown"
    assert [(c.question, c.state) for c in said.checks] == [("Watched throughout", "unknown")]


def test_a_run_that_was_stopped_and_started_again_was_watched_throughout():
    events = [e for e in started_again("observe") if e.body.get("result") != "interrupted"]
    events.append(event("run.end", KILLED_US, body={"exit_code": 75}))
    events.sort(key=lambda e: e.t_observed_us)
    said = build_section(events, default_contract(), as_of_us=END_US).headline
    assert (said.state, said.checks) == ("nothing", ())
