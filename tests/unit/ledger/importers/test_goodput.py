"""Logs of ml-goodput-measurement, in the shapes in which the library and the cloud write them."""

from __future__ import annotations

import json
import random

import pytest

from lastgood.ledger.importers.goodput_jobs import CHUNK_STEPS_MAX, LATE_US
from lastgood.ledger.walltime import partition
from tests.unit.ledger.importers.import_cases import NOW_US, import_text

T0 = 1_790_000_000
US = 1_000_000


def us(seconds: float) -> int:
    return round((T0 + seconds) * US)


def told(**fields) -> dict:
    """One entry; seconds count from the start of the run."""
    return {"job_name": "j"} | {
        key: T0 + value if key.endswith("_time") else value for key, value in fields.items()
    }


def start(at: float = 0) -> dict:
    return told(job_start_time=at)


def end(at: float) -> dict:
    return told(job_end_time=at)


def steps(first: int, last: int, at: float, *, each: float = 10) -> list[dict]:
    return [
        told(step_count=n, step_start_time=at + each * (n - first)) for n in range(first, last + 1)
    ]


def lines(entries) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def envelopes(entries, *, delay: float = 1.5, behind: float = 0) -> list[dict]:
    """What the cloud's own tool exports; the receiver's clock is the true one."""
    from datetime import UTC, datetime

    def iso(at: float) -> str:
        return datetime.fromtimestamp(at, tz=UTC).isoformat().replace("+00:00", "Z")

    wrapped = []
    for number, entry in enumerate(entries):
        at = next(v for k, v in entry.items() if k.endswith("_time"))
        wrapped.append(
            {
                "insertId": f"i{number}",
                "jsonPayload": entry,
                "receiveTimestamp": iso(at + behind + delay),
                "severity": "INFO",
                "timestamp": iso(at),
            }
        )
    return wrapped


def ratio(found) -> float:
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert sum(wall.totals_us.values()) == wall.window_us
    return round(100 * wall.productive_us / wall.window_us, 2)


def kinds(found) -> list[str]:
    return [event.kind for event in sorted(found.events, key=lambda e: (e.t_occurred_us, e.kind))]


WHOLE = [start(), *steps(0, 9, 0), end(100)]


def test_one_job_is_one_run_with_its_start_its_steps_and_its_end(tmp_path):
    found = import_text(tmp_path, lines(WHOLE))
    assert found.file.format == "goodput"
    assert kinds(found) == ["attempt.start", "run.start", "step", "run.end"]
    assert {event.run for event in found.events} == {"j"}
    chunk = next(event.body for event in found.events if event.kind == "step")
    # Ten steps were started; the tenth has no end of its own.
    assert (chunk["first"], chunk["last"], chunk["began_us"]) == (0, 9, us(0))
    assert chunk["ended_us"] == [us(10 * n) for n in range(1, 10)]
    assert ratio(found) == 100.0
    assert (found.quality.read, found.quality.accepted) == (12, 12)


@pytest.mark.parametrize("shape", ["lines", "array", "pretty"])
def test_an_array_is_read_like_lines(tmp_path, shape):
    text = {
        "lines": lines(WHOLE),
        "array": json.dumps(WHOLE),
        "pretty": json.dumps(WHOLE, indent=2),
    }[shape]
    assert ratio(import_text(tmp_path, text)) == 100.0


@pytest.mark.parametrize("key", ["jsonPayload", "json_payload", "payload"])
def test_the_entry_is_found_inside_its_envelope(tmp_path, key):
    found = import_text(tmp_path, lines({key: e, "timestamp": "2026-09-01T00:00:00Z"} for e in WHOLE))  # fmt: skip
    assert ratio(found) == 100.0


def test_the_receivers_time_is_the_time_of_observation(tmp_path):
    found = import_text(tmp_path, lines(envelopes(WHOLE)))
    begun = next(e for e in found.events if e.kind == "run.start")
    assert (begun.t_occurred_us, begun.t_observed_us) == (us(0), us(1.5))


def test_an_export_with_the_newest_entry_first_gives_the_same_events(tmp_path):
    entries = envelopes(
        [start(), *steps(0, 199, 0), start(2400), *steps(195, 300, 2400), end(3460)]
    )
    oldest = import_text(tmp_path, lines(entries), name="a.jsonl", ledger="a")
    newest = import_text(tmp_path, json.dumps(entries[::-1]), name="b.json", ledger="b")
    told_by = lambda found: {(e.id, json.dumps(e.body)) for e in found.events}
    assert told_by(oldest) == told_by(newest)
    assert newest.quality.notes == ["the newest entry came first: the file was read from its end"]


def test_bare_entries_with_the_newest_first_are_turned_too(tmp_path):
    assert ratio(import_text(tmp_path, lines(WHOLE[::-1]))) == 100.0


def test_entries_are_put_in_the_order_in_which_they_were_received(tmp_path):
    entries = envelopes(WHOLE)
    random.Random(3).shuffle(entries)
    assert ratio(import_text(tmp_path, lines(entries))) == 100.0


def test_importing_twice_and_files_that_overlap_change_nothing(tmp_path):
    entries = [start(), *steps(0, 299, 0), end(3000)]
    once = import_text(tmp_path, lines(entries), ledger="once")
    again = import_text(tmp_path, lines(entries), ledger="once")
    assert len(again.events) == len(once.events)
    assert again.quality.events_new == 0
    tail = import_text(tmp_path, lines(entries[101:]), name="tail.jsonl", ledger="once")
    # The chunk that the tail begins inside of, and its first record as a start: all else is known.
    assert tail.quality.events_new == 2 + 1  # and the time that the file covers
    parts = (entries[:130], entries[100:220], entries[200:])
    for number, part in enumerate(parts):
        joined = import_text(tmp_path, lines(part), name=f"{number}.jsonl", ledger="joined")
    wall = partition(joined.events, run="j", as_of_us=NOW_US)
    assert (wall.accepted_steps, wall.lost_executions) == (300, 0)
    assert wall.productive_us == wall.window_us == 3_000_000_000


def test_the_same_entry_twice_in_a_file_is_taken_once(tmp_path):
    found = import_text(tmp_path, lines([*WHOLE[:6], *WHOLE[3:]]))
    assert ratio(found) == 100.0
    assert found.quality.ignored == {"the same entry came before": 3}


def test_a_chunk_holds_a_bounded_number_of_steps(tmp_path):
    found = import_text(tmp_path, lines([start(), *steps(5, 300, 0), end(2960)]))
    sizes = [len(e.body["ended_us"]) for e in found.events if e.kind == "step"]
    assert max(sizes) == CHUNK_STEPS_MAX
    assert ratio(found) == 100.0


def test_a_step_before_a_restart_is_left_open(tmp_path):
    found = import_text(tmp_path, lines([start(), *steps(1, 5, 0), start(500), *steps(6, 9, 500)]))
    first = next(e.body for e in found.events if e.kind == "step" and e.body["first"] == 1)
    assert (first["last"], len(first["ended_us"])) == (5, 4)
    assert kinds(found).count("run.start") == 1
    assert kinds(found).count("attempt.start") == 2


def test_a_job_that_ended_and_starts_again_is_the_same_run(tmp_path):
    found = import_text(tmp_path, lines([*WHOLE, start(700), *steps(10, 19, 700), end(800)]))
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "productive": 200, "down.schedule": 600,
    }  # fmt: skip


def test_a_number_that_runs_again_shows_a_restart_that_nobody_recorded(tmp_path):
    found = import_text(
        tmp_path, lines([start(), *steps(0, 49, 0), *steps(40, 99, 2900), end(3500)])
    )
    assert ratio(found) == 28.57
    unsaid = [e for e in found.events if e.kind == "attempt.start" and "reason" in e.body]
    assert [e.t_occurred_us for e in unsaid] == [us(2900)]


def test_a_clock_that_went_back_shows_one_too(tmp_path):
    entries = [start(), *steps(0, 49, 0), *steps(50, 99, 100), end(600)]
    wrapped = envelopes(entries[:51]) + envelopes(entries[51:], behind=600)
    assert ratio(import_text(tmp_path, lines(wrapped))) == 83.33


def test_a_step_that_arrives_late_is_no_restart(tmp_path):
    entries = [start(), *steps(0, 9, 0), end(100)]
    entries[5], entries[6] = entries[6], entries[5]
    found = import_text(tmp_path, lines(entries))
    assert ratio(found) == 100.0
    assert kinds(found).count("attempt.start") == 1
    assert LATE_US > 10 * US


def test_a_clock_that_was_adjusted_a_little_is_clamped_and_counted(tmp_path):
    entries = [start(), *steps(0, 4, 0), *steps(5, 9, 38), end(88)]
    found = import_text(tmp_path, lines(entries))
    assert ratio(found) == 100.0
    assert (found.quality.clock_corrections, found.quality.clock_corrected_us) == (1, 2 * US)


def test_preparations_are_warmup_and_custom_events_stall(tmp_path):
    found = import_text(
        tmp_path,
        lines([
            start(), told(tpu_init_start_time=0), told(tpu_init_end_time=30), told(training_prep_start_time=30),
            told(training_prep_end_time=50), told(data_loading_start_time=50), told(data_loading_end_time=60),
            *steps(0, 4, 60),
            told(custom_badput_event_start_time=105, custom_badput_event_type="eval_step"),
            told(custom_badput_event_end_time=108, custom_badput_event_type="eval_step"),
            told(data_loading_start_time=108), told(data_loading_end_time=109), *steps(5, 9, 113), end(163),
        ]),
    )  # fmt: skip
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "warmup": 60, "productive": 100, "stall": 3,
    }  # fmt: skip
    names = {e.body["name"]: e.body["state"] for e in found.events if e.kind == "section.begin"}
    assert names["custom: EVAL_STEP"] == "stall"
    assert names["data_loading"] == "parallel"  # the second one ran beside the steps


def test_a_checkpoint_manager_holds_up_the_job_for_as_long_as_it_says(tmp_path):
    save = {
        "job_name": "j", "event_type": "save", "step": 4, "checkpoint_manager_blocking_start_time": T0 + 43,
        "checkpoint_manager_blocking_duration_secs": 5.5,
    }  # fmt: skip
    restore = {
        "event_type": "restore", "step": 4, "checkpoint_manager_start_time": T0 + 101,
        "checkpoint_manager_duration_secs": 7,
    }  # fmt: skip
    found = import_text(
        tmp_path, lines([start(), *steps(0, 4, 0), save, *steps(5, 9, 50), start(100), restore, *steps(10, 11, 110), end(130)])
    )  # fmt: skip
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "productive": 94.5 + 20, "checkpoint.blocking": 5.5, "restore": 7, "warmup": 3,
    }  # fmt: skip


def test_waiting_for_a_slice_is_schedule_and_coming_back_is_warmup(tmp_path):
    wait = [told(elastic_wait_start_time=43, elastic_wait_event_type="SLICE_DOWN")]
    wait += [told(elastic_wait_end_time=103, elastic_wait_event_type="SLICE_DOWN")]
    again = [told(elastic_reinit_start_time=103), told(elastic_reinit_end_time=113)]
    slices = {"job_name": "j", "active_slices": 3, "elastic_slice_counts_timestamp": T0 + 43}
    found = import_text(
        tmp_path, lines([start(), *steps(0, 4, 0), slices, *wait, *again, *steps(5, 9, 113), end(163)])
    )  # fmt: skip
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "productive": 43 + 50, "down.schedule": 60, "warmup": 10,
    }  # fmt: skip
    assert found.quality.ignored == {"an entry without a time of the job": 1}


def test_a_file_that_begins_inside_a_run_still_names_it(tmp_path):
    tail = import_text(tmp_path, lines([*steps(50, 99, 500), end(1000)]), ledger="one")
    assert [e.body.get("begins_inside") for e in tail.events if e.kind == "run.start"] == [True]
    assert ratio(tail) == 100.0
    both = import_text(
        tmp_path, lines([start(), *steps(0, 50, 0)]), name="head.jsonl", ledger="one"
    )
    assert ratio(both) == 100.0
    wall = partition(both.events, run="j", as_of_us=NOW_US)
    assert (wall.accepted_steps, wall.window_us) == (100, 1_000_000_000)


def test_the_start_that_a_tail_stands_for_is_none_once_the_head_is_there(tmp_path):
    pause = [told(custom_badput_event_start_time=505), told(custom_badput_event_end_time=506)]
    tail = [*pause, *steps(51, 99, 510), end(1000)]
    import_text(tmp_path, lines(tail), name="tail.jsonl", ledger="one")
    head = [start(), *steps(0, 50, 0)]
    both = import_text(tmp_path, lines(head), name="head.jsonl", ledger="one")
    wall = partition(both.events, run="j", as_of_us=NOW_US)
    assert {str(s): t / US for s, t in wall.totals_us.items() if t} == {
        "productive": 999, "stall": 1,
    }  # fmt: skip


def test_the_run_may_be_named_by_the_person(tmp_path):
    found = import_text(tmp_path, lines(WHOLE), run="pretrain")
    assert {e.run for e in found.events} == {"pretrain"}


def test_two_jobs_in_one_file_are_two_runs(tmp_path):
    other = [e | {"job_name": "k"} for e in WHOLE]
    both = [entry for pair in zip(WHOLE, other, strict=True) for entry in pair]
    found = import_text(tmp_path, lines(both))
    assert sorted({e.run for e in found.events}) == ["j", "k"]
    assert ratio(found) == 100.0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"job_name": "j", "step_count": 3, "step_start_time": "soon"}, "step_start_time is no number of seconds"),
        ({"job_name": "j", "step_count": 3, "step_start_time": True}, "step_start_time is no number of seconds"),
        ({"job_name": "j", "step_count": 3, "step_start_time": 5}, "step_start_time is no time between 1990 and 2100"),
        ({"job_name": "j", "step_count": 3, "step_start_time": 1e300}, "step_start_time is no time between 1990 and 2100"),
        ({"job_name": "j", "step_count": "x", "step_start_time": T0}, "step_count is no whole number"),
        ({"job_name": "j", "step_count": -1, "step_start_time": T0}, "step_count is no whole number"),
        ({"job_name": "j", "step_start_time": T0}, "step_count is no whole number"),
        ({"job_name": "", "job_start_time": T0}, "job_name is missing"),
        ({"job_name": ["j"], "job_start_time": T0}, "job_name is missing"),
        ({"job_name": "j" * 513, "job_start_time": T0}, "job_name is too long for a name"),
        ([1, 2], "an entry that is no object"),
        (
            {"job_name": "j", "event_type": "save", "checkpoint_manager_blocking_start_time": T0,
             "checkpoint_manager_blocking_duration_secs": -4},
            "checkpoint_manager_blocking_duration_secs is no length of time",
        ),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_costs_itself_only(tmp_path, bad, reason):
    found = import_text(tmp_path, lines([*WHOLE[:5], bad, *WHOLE[5:]]), format="goodput")
    assert list(found.quality.rejected) == [reason]
    assert found.quality.rejected[reason].examples[0].locator.endswith("#6")
    assert ratio(found) == 100.0
    q = found.quality
    assert q.read == q.accepted + q.ignored_count + q.rejected_count == 13


def test_entries_about_something_else_are_ignored_and_counted(tmp_path):
    found = import_text(
        tmp_path,
        lines([{"message": "hello"}, {"job_name": "j", "note": 1}, *WHOLE]),
        format="goodput",
    )
    assert found.quality.ignored == {
        "an entry of another kind": 1, "an entry without a time of the job": 1,
    }  # fmt: skip


def test_a_log_that_was_cut_in_the_middle_of_an_entry_says_so(tmp_path):
    found = import_text(tmp_path, lines(WHOLE)[:-20])
    assert found.quality.rejected_count == 1
    wall = partition(found.events, run="j", as_of_us=NOW_US)
    assert wall.productive_us == 90 * US


def test_other_json_is_not_taken_for_it():
    from lastgood.ledger.importers.goodput import IMPORTER
    from lastgood.ledger.importers.importer import Head

    def sure(text: str) -> int:
        return IMPORTER.recognises(Head(text.encode(), text, "x.json"))

    assert sure(lines(WHOLE)) > 90
    assert sure('{"job_name": "j", "state": "RUNNING"}') == 0
    assert sure("job_name step_start_time") == 0
