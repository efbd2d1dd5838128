"""Wall time of runs that were read from logs: starts of steps only, attempts only, missing ends, wrong clocks.

Ratios are arithmetic: one hundred steps of 10 s are 1,000 s of accepted work, over the time that really passed.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from lastgood.base.errors import BadInput
from lastgood.ledger.skew import NO_SKEW
from lastgood.ledger.walltime import WallTime, WallTimeRules, partition
from tests.unit.ledger.story import Story, us


class Log(Story):
    """A story as an importer tells it: every record has a source, and steps have starts only."""

    def tell(self, kind: str, at: float, **fields):
        fields.setdefault("source", {"importer": "goodput", "version": "1"})
        return super().tell(kind, at, **fields)

    def starts(self, first: int, last: int, began: float, *, each: float = 10, **fields) -> Log:
        """Steps of which only the starts are known: the last one is left open."""
        ended = [us(began + each * n) for n in range(1, last - first + 1)]
        body = {"first": first, "last": last, "began_us": us(began), "ended_us": ended}
        self.tell("step", began, body=body, **fields)
        return self


def log(at: float = 0) -> Log:
    story = Log().start(at)
    story.tell("attempt.start", at)
    return story


def job(at: float = 0) -> Log:
    """A run as a scheduler tells it: from its submission."""
    return Log().start(at)


def wall_of(story: Story, *, as_of: float = 1_000_000, **rules) -> WallTime:
    wall = partition(story.events, run="r1", as_of_us=us(as_of), rules=WallTimeRules(**rules))
    assert sum(wall.totals_us.values()) == wall.window_us
    return wall


def seconds(wall: WallTime) -> dict[str, float]:
    return {str(state): total / 1e6 for state, total in wall.totals_us.items() if total}


# --- steps without an end -----------------------------------------------------------------------------


def test_the_last_step_ends_with_its_run_when_that_end_is_on_record():
    wall = wall_of(log().starts(1, 100, 0).end(1000))
    assert seconds(wall) == {"productive": 1000}
    assert (wall.accepted_steps, wall.inferred_steps, wall.inferred_us) == (100, 0, 0)


def test_a_step_before_a_restart_that_goes_on_behind_it_was_finished():
    wall = wall_of(log().starts(1, 50, 0).new_attempt(2900).starts(51, 100, 2900).end(3400))
    assert seconds(wall) == {"productive": 1000, "down.detect": 2400}
    assert wall.inferred_steps == 1
    assert next((s.start_us, s.end_us) for s in wall.spans if s.is_inferred) == (us(490), us(500))


def test_a_step_that_runs_again_was_cut_off_and_its_time_is_lost():
    wall = wall_of(log().starts(1, 50, 0).new_attempt(2900).starts(41, 100, 2900).end(3500))
    assert seconds(wall) == {"productive": 1000, "lost": 100, "down.detect": 2400}
    assert (wall.accepted_steps, wall.lost_executions) == (100, 10)


def test_a_cut_off_step_cannot_have_lasted_longer_than_up_to_the_restart():
    wall = wall_of(log().starts(1, 50, 0).new_attempt(493).starts(50, 50, 493).end(503))
    assert seconds(wall) == {"productive": 490 + 10, "lost": 3}


def test_without_a_record_behind_it_the_last_step_counts_for_nothing():
    wall = wall_of(log().starts(1, 50, 0))
    assert seconds(wall) == {"productive": 490, "unknown": 600}
    assert wall.is_end_inferred
    assert (wall.accepted_steps, wall.inferred_us) == (49, 600_000_000)


def test_a_run_that_was_alive_a_moment_ago_is_measured_up_to_now():
    wall = wall_of(log().starts(1, 50, 0), as_of=700)
    assert seconds(wall) == {"productive": 490, "unknown": 210}
    assert not wall.is_end_inferred


def test_a_run_with_long_steps_may_be_silent_for_longer():
    wall = wall_of(log().starts(1, 10, 0, each=1000))
    assert seconds(wall) == {"productive": 9000, "unknown": 2000}  # two usual steps


def test_a_start_that_never_made_a_step_warms_up_to_the_last_sign_of_life():
    story = log().starts(1, 50, 0).new_attempt(900)
    story.tell("section.begin", 950, body={"name": "x", "state": "parallel"})
    found = seconds(wall_of(story))
    assert (found["warmup"], found["unknown"]) == (50, 600)


def test_the_silence_that_means_death_can_be_declared():
    assert seconds(wall_of(log().starts(1, 50, 0), liveness_us=60_000_000))["unknown"] == 60
    with pytest.raises(BadInput, match="zero or more"):
        WallTimeRules(liveness_us=-1)


# --- records that are missing -------------------------------------------------------------------------


def without(lost: set[int], *, last: int = 100) -> Log:
    """Steps 1 to 100 of 10 s, of which some records were lost."""
    story, first = log(), None
    for step in range(1, last + 2):
        if step in lost or step > last:
            if first is not None:
                story.starts(first, step - 1, 10 * (first - 1))
            first = None
        elif first is None:
            first = step
    return story.end(10 * last)


def test_missing_records_whose_time_fits_their_number_are_taken_to_be_steps():
    lost = {5, 14, 23, 32, 41, 54, 55, 68, 77, 89}
    wall = wall_of(without(lost))
    assert seconds(wall) == {"productive": 1000}
    # Each lost record also takes the end from the step before it: nine gaps, ten lost steps.
    assert (wall.accepted_steps, wall.inferred_steps) == (100, 19)
    assert wall.inferred_us == 190_000_000


def test_what_is_longer_than_the_missing_steps_need_is_unknown():
    story = log().starts(1, 50, 0).starts(53, 100, 2900).end(3380)
    wall = wall_of(story)
    assert seconds(wall) == {"productive": 490 + 30 + 480, "unknown": 2380}


def test_a_gap_between_two_steps_that_follow_each_other_is_no_progress():
    wall = wall_of(log().starts(1, 50, 0).starts(51, 100, 4100).end(4600))
    assert seconds(wall) == {"productive": 1000, "stall": 3600}


def test_a_jump_of_the_number_beyond_reason_is_no_run_of_lost_records():
    wall = wall_of(log().starts(1, 50, 0).starts(10**15, 10**15, 600).end(610))
    assert seconds(wall) == {"productive": 490 + 10, "unknown": 110}


@pytest.mark.parametrize("number", [60_000, 75, 67])
def test_a_jump_that_no_steps_fit_into_is_no_run_of_lost_records(number):
    wall = wall_of(log().starts(1, 50, 0).starts(number, number, 600).end(610))
    # From step 50 at 490 s on there is time for eleven steps, or sixteen quick ones.
    assert seconds(wall) == {"productive": 490 + 10, "unknown": 110}


def test_quick_steps_between_two_records_are_taken_to_be_steps():
    wall = wall_of(log().starts(1, 50, 0).starts(66, 66, 600).end(610))
    assert seconds(wall) == {"productive": 610}


def test_without_any_usual_step_time_nothing_is_inferred():
    wall = wall_of(log().starts(1, 1, 0).starts(3, 3, 20).end(30))
    assert seconds(wall) == {"productive": 10, "unknown": 20}


def test_two_files_that_overlap_tell_of_each_step_once():
    story = log().starts(1, 60, 0).starts(40, 100, 390).end(1000)
    wall = wall_of(story)
    assert seconds(wall) == {"productive": 1000}
    assert (wall.accepted_steps, wall.lost_executions) == (100, 0)


# --- attempts without steps ---------------------------------------------------------------------------


def test_time_of_a_job_whose_steps_nobody_recorded_is_unknown():
    story = job()
    story.tell("attempt.start", 0)
    story.tell("attempt.end", 7200)
    story.new_attempt(7800).tell("attempt.end", 9000)
    wall = wall_of(story.end(9000))
    assert seconds(wall) == {"unknown": 7200 + 1200, "down.schedule": 600}
    assert wall.productive_us == 0


def test_waiting_before_the_first_attempt_is_schedule_too():
    story = job()
    story.tell("attempt.start", 99)
    story.tell("attempt.end", 7200)
    assert seconds(wall_of(story.end(7200))) == {"down.schedule": 99, "unknown": 7101}


def test_an_attempt_without_an_end_closes_at_the_next_start_by_rule():
    story = job()
    story.tell("attempt.start", 0)
    story.new_attempt(1000).tell("attempt.end", 1500)
    wall = wall_of(story.end(1500))
    assert seconds(wall) == {"unknown": 1500}
    assert wall.inferred_us == 1_000_000_000


def test_a_job_that_still_ran_when_the_log_was_written_ends_by_rule_after_that():
    story = job()
    story.tell("attempt.start", 0, body={"alive_until_us": us(7200)})
    wall = wall_of(story)
    assert seconds(wall) == {"unknown": 7800}
    assert wall.is_end_inferred


def test_a_supervised_run_keeps_its_warm_up_without_a_step():
    story = Story().start().end(30)
    assert seconds(wall_of(story)) == {"warmup": 30}


def test_sections_of_a_log_have_their_states_and_work_beside_the_steps_takes_nothing():
    story = log()
    for name, state, begin, end in (
        ("init", "warmup", 0, 60),
        ("load", "restore", 60, 90),
        ("prefetch", "parallel", 100, 150),
        ("eval", "stall", 150, 170),
    ):
        story.tell("section.begin", begin, body={"name": name, "state": state})
        story.tell("section.end", end, body={"name": name, "state": state})
    story.starts(1, 10, 90)
    assert seconds(wall_of(story.end(190))) == {
        "warmup": 60, "restore": 30, "productive": 80, "stall": 20,
    }  # fmt: skip


# --- clocks -------------------------------------------------------------------------------------------


def behind(by: float, *, has_receiver: bool) -> Log:
    """Steps 1 to 50, 200 s down, steps 51 to 100 on a host whose clock is wrong by so much."""

    def seen(at: float) -> dict:
        return {"t_observed_us": us(at + 0.5) if has_receiver else None}

    story = Log()
    story.tell("run.start", 0, **seen(0))
    story.starts(1, 50, 0, **seen(0))
    story.attempt = 2
    story.tell("attempt.start", 700 - by, **seen(700))
    story.starts(51, 100, 700 - by, **seen(700))
    story.tell("run.end", 1200 - by, **seen(1200))
    return story


def test_a_restarted_host_whose_clock_is_behind_is_moved_by_the_receivers_time():
    wall = wall_of(behind(600, has_receiver=True))
    assert round(100 * wall.productive_us / wall.window_us, 1) == 83.3  # 1000 of 1200 s
    assert seconds(wall) == {"productive": 1000, "down.detect": 200}
    assert wall.skew == (3, 600_000_000, False)


def test_without_a_receivers_time_the_order_is_clamped_and_said_to_be_a_lower_bound():
    story = behind(600, has_receiver=False)
    # The story's clock stamps a time of observation, which such a log has not.
    story.events = [structs.replace(event, t_observed_us=None) for event in story.events]
    wall = wall_of(story)
    assert wall.skew == (3, 390_000_000, True)  # from 100 to the last start before it at 490
    # What the order needs leaves no time for step 50, and none for the wait that nobody measured.
    assert seconds(wall) == {"productive": 990}
    assert wall.accepted_steps == 100


def test_a_clock_that_contradicts_nothing_is_left_alone():
    assert wall_of(behind(100, has_receiver=True)).skew == NO_SKEW
    assert wall_of(behind(0, has_receiver=True)).skew == NO_SKEW


def test_an_order_within_the_declared_uncertainty_is_left_alone():
    story = behind(600, has_receiver=True)
    assert wall_of(story, skew_us_max=400_000_000).skew == NO_SKEW


def test_the_order_of_a_schedulers_records_is_not_questioned():
    story = Log()
    for kind, at, attempt in (("run.start", 0, 1), ("run.end", 500, 1), ("run.start", 100, 2)):
        story.tell(kind, at, attempt=attempt)
    assert wall_of(story).skew == NO_SKEW


def test_records_that_a_wrong_clock_dated_earlier_were_known_when_they_were_read():
    story = behind(600, has_receiver=False)
    story.events = [structs.replace(event, t_observed_us=None) for event in story.events]
    # The last row of the log says 600 s; what it tells of happened behind 490 s.
    assert seconds(wall_of(story, as_of=600)) == {"productive": 990}
    assert wall_of(story, as_of=600).accepted_steps == 100


def test_starts_are_told_apart_by_their_recorded_time_where_nothing_numbers_them():
    story = behind(600, has_receiver=True)
    story.events = [
        structs.replace(
            e, attempt=None, body=e.body | {"start_us": us(0 if e.attempt == 1 else 100)}
        )
        for e in story.events
    ]
    wall = wall_of(story)
    assert seconds(wall) == {"productive": 1000, "down.detect": 200}
    assert wall.skew == (3, 600_000_000, False)


def test_without_a_receivers_time_the_order_of_starts_is_that_of_the_lines():
    story = behind(600, has_receiver=False)
    story.events = [
        structs.replace(
            e,
            attempt=None,
            t_observed_us=None,
            source=structs.replace(e.source, locator=f"run.jsonl#{number}"),
            body=e.body | {"start_us": us(0 if e.attempt == 1 else 100)},
        )
        for number, e in enumerate(story.events, start=1)
    ]
    assert wall_of(story).skew == (3, 390_000_000, True)


def test_an_attempt_that_ends_and_one_that_starts_in_one_second_leave_the_run_open():
    story = Log()
    story.tell("run.start", 0)
    story.tell("run.start", 100, attempt=2)
    story.tell("run.end", 100, attempt=1)
    assert wall_of(story, as_of=150).window_us == 150_000_000


# --- verdicts that come late --------------------------------------------------------------------------


def test_a_verdict_of_silent_corruption_moves_the_steps_behind_it_to_lost_from_then_on():
    story = log().starts(1, 100, 0).end(1000)
    before = wall_of(story)
    story.tell(
        "observation", 60, class_="sdc", first_divergent_step=31, t_observed_us=us(5000)
    )  # it happened at 60 s and was found at 5,000
    early, late = wall_of(story, as_of=4999), wall_of(story, as_of=5000)
    assert early.totals_us == before.totals_us
    assert seconds(late) == {"productive": 300, "lost": 700}
    assert (late.accepted_steps, late.lost_executions) == (30, 70)
    assert (early.as_of_us, late.as_of_us) == (us(4999), us(5000))


@pytest.mark.parametrize("kind", ["record", "annotation", "incident.open"])
def test_a_verdict_that_a_person_adds_leaves_the_run_one_that_was_read_from_logs(kind):
    story = log().starts(1, 100, 0)
    story.tell(kind, 5000, class_="sdc", first_divergent_step=31, source=None)
    wall = wall_of(story)
    # Step 100 has no end on record; it is behind the first wrong one in any case.
    assert seconds(wall) == {"productive": 300, "lost": 690, "unknown": 600}
    assert wall.is_end_inferred


def test_a_verdict_without_a_step_or_of_another_class_takes_nothing():
    story = log().starts(1, 100, 0).end(1000)
    story.tell("observation", 500, class_="sdc")
    story.tell("observation", 500, class_="fail_stop", first_divergent_step=3)
    assert seconds(wall_of(story)) == {"productive": 1000}


def test_steps_done_again_after_a_verdict_count():
    story = log().starts(1, 100, 0)
    story.tell("observation", 1000, class_="sdc", first_divergent_step=31)
    story.new_attempt(1000).starts(31, 100, 1000)
    wall = wall_of(story.end(1700))
    assert seconds(wall) == {"productive": 1000, "lost": 700}


# --- an end before its start --------------------------------------------------------------------------


def from_line(number: int) -> dict:
    return {"importer": "goodput", "version": "1", "locator": f"a.jsonl#{number}"}


def test_an_end_that_is_written_after_its_start_and_dated_before_it_is_not_believed():
    """One of two clocks is wrong: their difference is no wall time, and no wait for a place."""
    story = Log()
    story.tell("run.end", 0, source=from_line(9))
    story.tell("run.start", 0, body={"begins_inside": True}, source=from_line(9))
    story.tell("run.start", 1000, source=from_line(1))
    story.tell("attempt.start", 1000, source=from_line(1))
    wall = wall_of(story.starts(1, 100, 1000), as_of=1990)
    assert (wall.start_us, wall.has_end) == (us(1000), False)
    assert (wall.impossible_ends, wall.clamped_count) == (1, 1)
    assert "down.schedule" not in seconds(wall)


@pytest.mark.parametrize("lines", [(1, 2, 3, 4), (4, 3, 2, 1)], ids=["cut", "newest first"])
def test_an_end_before_a_later_start_is_believed_where_files_are_written_so(lines):
    """The end of an earlier start at the head of a cut log; or a log that is turned round."""
    first, start, again, end = lines
    story = Log()
    story.tell("run.end", 0, source=from_line(first))
    story.tell("run.start", 1000, source=from_line(start))
    story.tell("attempt.start", 1000, source=from_line(again))
    story.tell("run.end", 2000, source=from_line(end))
    wall = wall_of(story)
    assert (wall.impossible_ends, wall.has_end, wall.end_us) == (0, True, us(2000))


def test_an_end_within_the_declared_uncertainty_before_its_start_is_left_alone():
    story = Log()
    story.tell("run.end", 0, source=from_line(2))
    story.tell("run.start", 4, source=from_line(1))
    assert wall_of(story, as_of=10).impossible_ends == 0
    assert wall_of(story, as_of=10, skew_us_max=1_000_000).impossible_ends == 1
