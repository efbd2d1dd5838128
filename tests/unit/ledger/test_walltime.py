from __future__ import annotations

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.event import Source
from lastgood.ledger.walltime import STATES, WallState, WallTimeRules, partition
from tests.unit.ledger.story import Story, us


def seconds(story: Story, *, as_of: float = 100_000, window=None, rules=None) -> dict[str, float]:
    """Seconds by state, zeros left out."""
    if window is not None:
        window = (us(window[0]), us(window[1]))
    wall = partition(story.events, run="r1", as_of_us=us(as_of), window=window, rules=rules)
    assert sum(wall.totals_us.values()) == wall.window_us
    return {str(state): total / 1e6 for state, total in wall.totals_us.items() if total}


# --- the published cases: ledger without an outage in it shows 100 %, truth is lower ------------------
# 100 steps of 10 s. The expected ratios are arithmetic: 1000 s of accepted steps over the wall time.


def ratio(story: Story) -> float:
    wall = partition(story.events, run="r1", as_of_us=us(100_000))
    return round(100 * wall.productive_us / wall.window_us, 2)


def test_case_a_a_run_without_failure_is_all_productive():
    assert ratio(Story().start().steps(1, 100, 0).end(1000)) == 100.0


def test_case_b_an_outage_that_loses_no_step_still_costs_its_time():
    story = Story().start().steps(1, 50, 0).new_attempt(2900).steps(51, 100, 2900).end(3400)
    assert ratio(story) == 29.41
    assert seconds(story) == {"productive": 1000, "down.detect": 2400}


def test_case_c_ten_steps_that_run_again_are_lost_the_first_time():
    story = Story().start().steps(1, 50, 0).new_attempt(2900).steps(41, 100, 2900).end(3500)
    assert ratio(story) == 28.57
    assert seconds(story) == {"productive": 1000, "lost": 100, "down.detect": 2400}


def test_case_f_a_step_that_hangs_for_an_hour_is_not_an_hour_of_progress():
    story = (
        Story().start().steps(1, 50, 0).steps(51, 51, 500, each=3610).steps(52, 100, 4110).end(4600)
    )
    assert ratio(story) == 21.74
    assert seconds(story) == {"productive": 1000, "stall": 3600}


def test_case_f_with_a_detector_the_hang_is_charged_to_detection():
    story = Story().start().steps(1, 50, 0)
    story.incident("i1", onset=505, detect=4100, diagnose=4100, isolate=4100, begin=4100, restore=4100, verify=4100, close=4100)  # fmt: skip
    story.new_attempt(4100).steps(51, 100, 4100).end(4600)
    assert ratio(story) == 21.74
    assert seconds(story) == {"productive": 1000, "down.detect": 3600}


# --- each state from its records ----------------------------------------------------------------------


def test_an_incident_is_divided_at_its_records():
    story = Story().start().steps(1, 10, 20)
    story.incident("i1", onset=121, detect=130, diagnose=132, isolate=135, begin=139, restore=144, verify=150, close=151)  # fmt: skip
    story.new_attempt(140).steps(11, 12, 153).end(173)
    assert seconds(story) == {
        "warmup": 20
        + 2,  # to the first step of the run, and of the second attempt behind the close
        "productive": 120,
        "down.detect": 10,  # from the last completed step (120), not from the onset
        "down.diagnose": 2,
        "down.isolate": 3,
        "down.restart": 4,
        "restore": 5,
        "down.verify": 7,  # up to the close
    }


def test_a_second_try_inside_an_incident_goes_back_through_the_phases():
    story = Story().start().steps(1, 10, 0)
    story.tell("detect", 110, incident="i1")
    story.tell("isolate", 112, incident="i1")
    story.tell("restore.begin", 113, incident="i1")
    story.tell("restore", 115, incident="i1")
    story.tell("verify", 118, incident="i1", verification={"test": "replay", "result": "different"})
    story.tell("restore.begin", 119, incident="i1")
    story.tell("restore", 122, incident="i1")
    story.tell("verify", 124, incident="i1", verification={"test": "replay", "result": "equal"})
    story.tell("incident.close", 124, incident="i1")
    story.new_attempt(124).steps(11, 11, 124).end(134)
    assert seconds(story) == {
        "productive": 110, "down.detect": 10, "down.diagnose": 2, "down.restart": 1, "restore": 2 + 3,
        "down.verify": 3 + 1 + 2,
    }  # fmt: skip


def test_steps_that_end_while_the_incident_is_open_are_not_productive():
    story = Story().start().steps(1, 12, 0)
    story.incident("i1", onset=95, detect=100, diagnose=100, isolate=130, begin=130, restore=130, verify=130, close=130)  # fmt: skip
    assert seconds(story.end(130)) == {"productive": 100, "down.isolate": 30}


def test_a_failure_before_the_first_step_leaves_the_start_its_warmup():
    story = Story().start()
    story.incident("i1", onset=30, detect=40, diagnose=41, isolate=42, begin=43, restore=43, verify=43, close=43)  # fmt: skip
    story.new_attempt(43).steps(1, 5, 50).end(100)
    assert seconds(story) == {
        "warmup": 30 + 7, "down.detect": 10, "down.diagnose": 1, "down.isolate": 1, "down.restart": 1,
        "productive": 50,
    }  # fmt: skip


def test_a_failure_right_after_a_recovery_does_not_swallow_the_recovery():
    story = Story().start().steps(1, 10, 0)
    story.incident("i1", onset=100, detect=110, diagnose=111, isolate=112, begin=113, restore=114, verify=115, close=116)  # fmt: skip
    story.new_attempt(113)
    story.incident("i2", onset=117, detect=120, diagnose=121, isolate=122, begin=123, restore=124, verify=125, close=126)  # fmt: skip
    story.new_attempt(123).steps(11, 11, 126).end(136)
    found = seconds(story)
    assert found == {
        "productive": 110, "down.detect": 10 + 3, "down.diagnose": 2, "down.isolate": 2, "down.restart": 2,
        "restore": 2, "down.verify": 4, "warmup": 1,
    }  # fmt: skip


def test_waiting_for_a_place_between_an_end_and_the_next_start_is_schedule():
    story = Story().start().steps(1, 10, 0).end(100)
    story.attempt = 2
    story.start(700).steps(11, 20, 730).end(830)
    assert seconds(story) == {"productive": 200, "down.schedule": 600, "warmup": 30}


def started_again(first: int) -> Story:
    """A run that ended and was started again under its name: attempts count from 1 again."""
    story = Story().start(0)
    story.tell("attempt.start", 2)
    story.steps(1, 10, 5, each=1.000001).end(20)
    story.start(620)
    story.tell("attempt.start", 623.5)
    return story.steps(first, first + 9, 630, each=2).end(650.25)


# Until the first step 5 s and 10 s; 600 s between the two parts; behind the last step 20 - 15.00001 s and 0.25 s.
WAITED_US = {"down.schedule": 600_000_000, "warmup": 15_000_000, "unknown": 4_999_990 + 250_000}


@pytest.mark.parametrize(
    ("first", "totals_us", "accepted", "lost"),
    [
        (11, {"productive": 10_000_010 + 20_000_000}, 20, 0),  # goes on from its last checkpoint
        (8, {"productive": 7_000_007 + 20_000_000, "lost": 3_000_003}, 17, 3),  # an older one
        (1, {"productive": 20_000_000, "lost": 10_000_010}, 10, 10),  # begins again
    ],
)
def test_a_run_that_is_started_again_makes_steps_in_both_parts(first, totals_us, accepted, lost):
    wall = partition(started_again(first).events, run="r1", as_of_us=us(100_000))
    assert {str(s): total for s, total in wall.totals_us.items() if total} == WAITED_US | totals_us
    assert (wall.accepted_steps, wall.lost_executions) == (accepted, lost)
    assert wall.window_us == 650_250_000
    schedule = [s for s in wall.spans if s.state is WallState.DOWN_SCHEDULE]
    assert [(s.start_us, s.end_us) for s in schedule] == [(us(20), us(620))]


def test_between_the_last_step_and_a_good_end_no_step_is_made_and_nothing_is_unknown():
    story = Story().start().steps(1, 10, 30)
    story.tell("run.end", 150, body={"exit_code": 0})
    assert seconds(story) == {"warmup": 30, "productive": 100, "stall": 20}


@pytest.mark.parametrize(
    ("code", "section", "ending"), [(0, None, 20), (0, (135, 142), 8), (1, None, 0)]
)
def test_the_ending_is_what_a_good_end_leaves_of_the_stall_behind_the_last_step(code, section, ending):  # fmt: skip
    story = Story().start().steps(1, 10, 30)
    for kind, at in zip(("section.begin", "section.end"), section or (), strict=False):
        story.tell(kind, at, body={"name": "save", "state": "checkpoint.blocking"})
    story.tell("run.end", 150, body={"exit_code": code})
    wall = partition(story.events, run="r1", as_of_us=us(1000))
    assert wall.ending_us == ending * 1_000_000


def test_a_job_that_stands_behind_its_last_fault_until_it_is_ended_is_not_at_its_ending():
    story = Story().start().steps(1, 10, 30)
    hang = {"class_": "fail_slow", "symptom": "hang", "ranks": [1], "incident": "i1"}
    story.tell("incident.open", 140, t_occurred_us=us(130), **hang)
    story.tell("detect", 140, t_occurred_us=us(130), incident="i1")
    story.tell("diagnose", 141, incident="i1")
    story.tell("incident.close", 150, incident="i1", body={"outcome": "ended"})
    story.tell("run.end", 150, body={"exit_code": 1})
    wall = partition(story.events, run="r1", as_of_us=us(1000))
    assert (wall.totals_us[WallState.STALL], wall.ending_us) == (9_000_000, 0)


@pytest.mark.parametrize(("importer", "state"), [("spool", "stall"), ("goodput", "unknown")])
def test_only_who_looked_at_the_ranks_knows_that_they_went_on_behind_the_last_step(importer, state):
    source = Source(importer=importer, version="1", locator="x", raw_sha256="0" * 64)
    story = Story()
    story.tell("run.start", 0, source=source)
    story.steps(1, 10, 30)
    story.tell("run.end", 150, body={"exit_code": 0}, source=source)
    assert seconds(story)[state] == 20


def test_what_lies_between_the_last_step_and_a_bad_end_is_for_an_incident_to_say():
    story = Story().start().steps(1, 10, 30)
    story.tell("run.end", 150, body={"exit_code": 1})
    assert seconds(story) == {"warmup": 30, "productive": 100, "unknown": 20}


def test_the_steps_of_an_earlier_start_give_a_later_one_without_steps_no_tail():
    story = Story().start().steps(1, 10, 30)
    story.tell("run.end", 130, body={"exit_code": 0})
    story.start(200)
    story.tell("run.end", 210, body={"exit_code": 0})
    assert seconds(story)["warmup"] == 40


def test_a_part_without_a_step_is_warmup_and_the_wait_behind_it_is_not():
    story = Story().start(0).end(7)
    story.start(100).steps(1, 2, 103).end(123)
    assert seconds(story) == {"warmup": 7 + 3, "down.schedule": 93, "productive": 20}


def test_two_incidents_of_one_name_do_not_take_the_time_between_them():
    story = Story().start(0).steps(1, 10, 0)
    story.incident("i1", onset=101, detect=102, diagnose=103, isolate=104, begin=105, restore=106, verify=107, close=108)  # fmt: skip
    story.steps(11, 11, 108).end(118)
    story.start(200).steps(12, 13, 205)
    story.incident("i1", onset=226, detect=227, diagnose=228, isolate=229, begin=230, restore=231, verify=232, close=233)  # fmt: skip
    story.steps(14, 14, 233).end(243)
    assert seconds(story) == {
        "productive": 140, "down.detect": 4, "down.diagnose": 2, "down.isolate": 2, "down.restart": 2, "restore": 2,
        "down.verify": 4, "down.schedule": 82, "warmup": 5,
    }  # fmt: skip


def test_an_incident_that_its_run_ended_in_is_over_when_the_run_starts_again():
    story = Story().start(0).steps(1, 10, 0)
    story.tell("detect", 110, incident="i1", t_occurred_us=us(100))
    story.tell("diagnose", 112, incident="i1")
    story.end(115)
    story.start(200).steps(11, 12, 205).end(225)
    assert seconds(story) == {
        "productive": 120, "down.detect": 10, "down.diagnose": 2, "down.isolate": 3, "down.schedule": 85, "warmup": 5,
    }  # fmt: skip


def test_planned_stops_are_planned():
    story = Story().start().steps(1, 10, 0)
    story.tell("planned.begin", 100)
    story.tell("planned.end", 160)
    story.steps(11, 12, 160).tell("planned.begin", 180)
    story.end(190)
    assert seconds(story) == {"productive": 120, "planned": 70}


def test_a_supervisor_that_died_without_a_word_was_down_until_the_next_start():
    story = Story().start().steps(1, 10, 0).start(400)
    story.attempt = 2
    story.steps(11, 20, 420).end(520)
    assert seconds(story) == {"productive": 200, "down.detect": 300, "warmup": 20}


def test_a_section_has_the_state_that_it_declares():
    story = Story().start().steps(1, 10, 0)
    story.tell("section.begin", 100, body={"name": "ckpt", "state": "checkpoint.blocking"})
    story.tell("section.end", 130, body={"name": "ckpt", "state": "checkpoint.blocking"})
    story.steps(11, 11, 130)
    story.tell("section.begin", 140, body={"name": "eval", "state": "productive"})
    story.tell("section.end", 200, body={"name": "eval", "state": "productive"})
    story.tell("section.begin", 200, body={"name": "odd", "state": "coffee"})
    story.tell("section.end", 205, body={"name": "odd", "state": "coffee"})
    assert seconds(story.end(205)) == {"productive": 170, "checkpoint.blocking": 30, "unknown": 5}


def test_a_section_that_was_never_ended_ends_at_the_next_detection():
    story = Story().start().steps(1, 10, 0)
    story.tell("section.begin", 100, body={"name": "eval", "state": "productive"})
    story.incident("i1", onset=120, detect=150, diagnose=150, isolate=150, begin=150, restore=160, verify=160, close=160)  # fmt: skip
    wall = partition(story.end(160).events, run="r1", as_of_us=us(900))
    # The detector says that progress ended with the last step, and detection stands before the section.
    assert wall.totals_us[WallState.DOWN_DETECT] == 50_000_000
    assert wall.totals_us[WallState.RESTORE] == 10_000_000


def test_a_section_that_its_run_ended_in_lasts_up_to_that_end():
    story = Story().start().steps(1, 10, 0)
    story.tell("section.begin", 100, body={"name": "ckpt", "state": "checkpoint.blocking"})
    story.end(130).start(400)
    story.attempt = 2
    story.steps(11, 11, 400)
    wall = partition(story.end(410).events, run="r1", as_of_us=us(900))
    assert wall.totals_us[WallState.CHECKPOINT_BLOCKING] == wall.inferred_us == 30_000_000


def test_a_planned_stop_that_nobody_ended_ends_with_its_run():
    story = Story().start().steps(1, 10, 0)
    story.tell("planned.begin", 100)
    story.end(110).start(400)
    story.attempt = 2
    assert seconds(story.steps(11, 11, 400).end(410)) == {
        "productive": 110, "planned": 10, "down.schedule": 290,
    }  # fmt: skip


def test_an_open_run_is_measured_up_to_now_and_its_newest_time_is_unknown():
    story = Story().start().steps(1, 10, 0)
    assert seconds(story, as_of=140) == {"productive": 100, "unknown": 40}


def test_an_open_incident_keeps_its_phase_up_to_now():
    story = Story().start().steps(1, 10, 0)
    story.tell("detect", 110, incident="i1")
    story.tell("isolate", 115, incident="i1")
    wall = partition(story.events, run="r1", as_of_us=us(175))
    assert wall.totals_us[WallState.DOWN_RESTART] == 60_000_000
    assert wall.spans[-1].is_inferred
    assert wall.inferred_us == 60_000_000


def test_a_late_record_moves_work_to_lost_in_retrospect():
    story = Story().start().steps(1, 50, 0)
    assert seconds(story, as_of=500) == {"productive": 500}
    story.incident("i1", onset=500, detect=500, diagnose=500, isolate=500, begin=500, restore=510, verify=520, close=520, target=30, class_="sdc", symptom="replica_divergence")  # fmt: skip
    assert seconds(story, as_of=520) == {
        "productive": 300,
        "lost": 200,
        "restore": 10,
        "down.verify": 10,
    }
    # What was known at 500 s stays what it was.
    assert seconds(story, as_of=500) == {"productive": 500}


def test_a_refused_verification_takes_nothing_away():
    story = Story().start().steps(1, 50, 0)
    story.tell(
        "verify", 500, body={"target": 30}, verification={"test": "replay", "result": "different"}
    )
    assert seconds(story.end(500)) == {"productive": 500}


def test_only_the_newest_execution_of_a_step_counts():
    story = Story().start().steps(1, 10, 0).new_attempt(100).steps(6, 8, 100).new_attempt(130)
    story.steps(7, 12, 130)
    wall = partition(story.end(190).events, run="r1", as_of_us=us(900))
    assert (wall.accepted_steps, wall.lost_executions) == (12, 5 + 2)
    assert wall.totals_us[WallState.PRODUCTIVE] == 120_000_000


def test_what_lies_between_two_chunks_of_one_attempt_is_the_loader():
    story = Story().start().steps(1, 5, 0).steps(6, 10, 50.5).end(100.5)
    assert seconds(story) == {"productive": 100.5}


def test_a_gap_between_chunks_that_do_not_follow_each_other_is_unknown():
    story = Story().start().steps(1, 5, 0).steps(8, 10, 70).end(100)
    assert seconds(story) == {"productive": 80, "unknown": 20}


def test_slow_steps_are_taken_off_only_beyond_a_declared_factor():
    story = Story().start().steps(1, 20, 0).steps(21, 22, 200, each=25).steps(23, 30, 250).end(330)
    assert seconds(story) == {"productive": 330}
    rules = WallTimeRules(degraded_factor=2.0)
    assert seconds(story, rules=rules) == {"productive": 300, "degraded.excess": 30}
    assert seconds(story, rules=WallTimeRules(degraded_factor=3.0)) == {"productive": 330}


def test_the_first_step_of_an_attempt_may_take_longer():
    story = Story().start().steps(1, 1, 0, each=500).steps(2, 20, 500).end(690)
    assert seconds(story) == {"productive": 690}


def test_declared_stretches_do_not_count():
    story = Story().start().steps(1, 10, 0).end(100)
    rules = WallTimeRules(excluded=((us(20), us(50)),))
    wall = partition(story.events, run="r1", as_of_us=us(900), rules=rules)
    assert wall.totals_us[WallState.EXCLUDED] == 30_000_000
    assert (wall.window_us, wall.counted_us) == (100_000_000, 70_000_000)


def test_a_window_is_clipped_to_the_life_of_the_run():
    story = Story().start(100).steps(1, 10, 100).end(200)
    assert seconds(story, window=(0, 150)) == {"productive": 50}
    assert seconds(story, window=(150, 5000)) == {"productive": 50}
    assert seconds(story, window=(300, 400)) == {}
    with pytest.raises(BadInput, match="window"):
        seconds(story, window=(400, 300))


def test_other_runs_are_not_looked_at():
    story, other = Story().start().steps(1, 10, 0).end(100), Story("r2").start(50)
    assert seconds(story) == {"productive": 100}
    story.events += other.events
    assert seconds(story) == {"productive": 100}


def test_a_run_without_records_has_no_time():
    wall = partition([], run="r1", as_of_us=us(5))
    assert (wall.window_us, wall.spans) == (0, ())
    assert set(wall.totals_us) == set(STATES)


def test_a_superseded_record_does_not_count():
    story = Story().start().steps(1, 10, 0)
    wrong = story.tell("planned.begin", 50)
    story.tell("correction", 60, links={"supersedes": wrong.id})
    assert seconds(story.end(100)) == {"productive": 100}


def test_a_clock_that_went_back_is_clamped_and_counted():
    story = Story().start().steps(1, 3, 0)
    body = {"first": 4, "last": 5, "began_us": us(30), "ended_us": [us(20), us(50)]}
    story.tell("step", 50, body=body)
    wall = partition(story.end(50).events, run="r1", as_of_us=us(900))
    assert wall.clamped_count == 1
    assert wall.totals_us[WallState.PRODUCTIVE] == 50_000_000


def test_a_step_record_of_another_form_is_counted_and_not_believed():
    story = Story().start()
    story.tell("step", 50, body={"first": "one"})
    wall = partition(story.end(50).events, run="r1", as_of_us=us(900))
    assert (wall.clamped_count, wall.accepted_steps) == (1, 0)


def test_the_states_stand_in_the_order_of_the_design():
    assert list(STATES) == [
        "planned",
        "excluded",
        "down.schedule",
        "down.detect",
        "down.diagnose",
        "down.isolate",
        "down.restart",
        "restore",
        "down.verify",
        "warmup",
        "checkpoint.blocking",
        "stall",
        "degraded.excess",
        "lost",
        "productive",
        "unknown",
    ]


@pytest.mark.parametrize(
    "rules", [{"stall_factor": 1.0}, {"degraded_factor": 0.9}, {"excluded": ((5, 4),)}]
)
def test_rules_that_mean_nothing_are_refused(rules):
    with pytest.raises(BadInput):
        WallTimeRules(**rules)


# --- a script that tells no step number ---------------------------------------------------------------


def restarted(*, is_counted_on: bool, numbered_by: str = "count") -> Story:
    """Five steps, a kill, and the whole job of eight steps again, numbered on or from 1."""
    first = 6 if is_counted_on else 1
    story = Story().start().steps(1, 5, 0)
    story.tell("attempt.end", 50)
    story.new_attempt(60).steps(first, first + 7, 60)
    if is_counted_on:
        story.tell("restore", 75, body={"step": None, "tier": "script", "numbered_by": numbered_by})
    else:
        story.tell("annotation", 75, body={"numbered_by": numbered_by})
    return story.end(140)


@pytest.mark.parametrize("is_counted_on", [True, False])
def test_what_ran_before_a_restart_that_only_counts_is_neither_accepted_nor_lost(is_counted_on):
    wall = partition(restarted(is_counted_on=is_counted_on).events, run="r1", as_of_us=us(1000))
    assert (wall.accepted_steps, wall.lost_executions, wall.unsure_executions) == (8, 0, 5)
    assert wall.totals_us[WallState.PRODUCTIVE] == us(80) - us(0)
    assert wall.totals_us[WallState.LOST] == 0
    assert wall.totals_us[WallState.UNKNOWN] == wall.unsure_us == us(50) - us(0)


def test_a_restart_whose_script_tells_its_number_leaves_nothing_unsure():
    story = restarted(is_counted_on=False, numbered_by="optimizer")
    wall = partition(story.events, run="r1", as_of_us=us(1000))
    assert (wall.accepted_steps, wall.lost_executions, wall.unsure_executions) == (8, 5, 0)


@pytest.mark.parametrize("has_stepped", [False, True])
def test_a_watched_start_that_failed_before_its_first_step_warms_up_no_more(has_stepped):
    """Its ranks wait in the forming of their group until the launcher ends them, 30 s behind the diagnosis."""
    story = Story().start(0)
    if has_stepped:
        story.steps(1, 1, 1, each=1)
    story.tell("incident.open", 3, incident="i1", t_occurred_us=us(2), symptom="group_error")
    story.tell("detect", 3, incident="i1", t_occurred_us=us(2))
    story.tell("diagnose", 4, incident="i1")
    story.tell("incident.close", 34, incident="i1", body={"outcome": "ended"})
    story.end(34)
    behind = {"productive": 1, "warmup": 1, "stall": 30} if has_stepped else {"warmup": 2, "down.isolate": 30}  # fmt: skip
    assert seconds(story) == {**behind, "down.detect": 1, "down.diagnose": 1}
