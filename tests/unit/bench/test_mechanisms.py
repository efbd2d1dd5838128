"""bench/mechanisms: what its scripts make of what they measured. Nothing is started."""

import multiprocessing
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench" / "mechanisms"))
import cut
import deaths
import meeting

FACTS = {"load": 1.0, "cores": 2, "linux": "6", "python": "3.11", "torch": "2", "mb": 300}
MS = 1_000_000


def test_a_group_takes_from_its_last_ranks_coming_to_its_last_ranks_being_ready():
    early = [meeting.Times(0, 9 * MS, 12 * MS, 1 * MS, 2 * MS)]
    late = [meeting.Times(5 * MS, 8 * MS, 13 * MS, 3 * MS, 4 * MS)]
    assert meeting.columns([early, late]) == {
        "formed_ms": [4.0],
        "reduced_ms": [8.0],
        "formed_cpu_ms": [1.0, 3.0],
        "reduced_cpu_ms": [2.0, 4.0],
    }


def test_the_table_of_meetings_puts_the_stores_side_by_side():
    rows = [
        {
            "store": store, "arrival": arrival, **FACTS, "formed_ms": [ms, ms + 1, ms + 9],
            "reduced_ms": [20.0, 20.0, 20.0], "formed_cpu_ms": [1.0], "reduced_cpu_ms": [2.0],
        }
        for ms, store in enumerate((*meeting.STORES, meeting.LAZY))
        for arrival in meeting.ARRIVALS
    ]  # fmt: skip
    formed = "1.0 (0.0 to 9.0), CPU 1.0 | 2.0 (1.0 to 10.0), CPU 1.0 | 3.0 (2.0 to 11.0), CPU 1.0"
    made = meeting.table(rows)
    assert f"| at once | group formed | {formed} |" in made
    assert f"| within 10 ms | group formed | {formed} |" in made
    assert "over 3 groups of 4 ranks" in made
    assert meeting.table([]) == "Not measured yet."


def test_a_death_that_was_not_seen_is_counted_apart():
    rows = [
        {"is_busy": busy, "descriptor_ms": 28.0 + place, "lock_ms": lock, "memory_ms": 2.0, **FACTS}
        for busy in (False, True)
        for place, lock in enumerate((0.5, 1.5, None if busy else 0.7))
    ]
    made = deaths.table(rows)
    assert "thread comes free | 0.7 (0.5 to 1.5) | 1.0 (0.5 to 1.5), 1 of 3 not seen |" in made
    assert "readable | 29.0 (28.0 to 30.0) | 29.0 (28.0 to 30.0) |" in made
    assert "n = 3 and 3" in made
    assert deaths.table([]) == "Not measured yet."


def test_both_ways_of_cutting_get_the_same_draws_around_the_launch():
    drawn = [cut.drawn(1, number, "stays") for number in range(200)]
    assert drawn == [cut.drawn(1, number, "stays") for number in range(200)]
    assert {trial.leaver for trial in drawn} == {0, 1, 2, 3}
    assert {trial.mb for trial in drawn} == set(cut.SIZES_MB)
    assert {trial.launched for trial in drawn} == {0, 1, 2}, "with all three nobody would wait"
    assert min(trial.cut_s for trial in drawn) < 0 < max(trial.cut_s for trial in drawn)


def test_a_rank_that_says_nothing_in_time_hangs():
    words = [(True, 5 * MS), None, (False, 9 * MS)]
    assert cut.outcome_of(words, cut_ns=4 * MS) == {"hung": 1, "raised": 1, "freed_ms": 5.0}
    assert cut.outcome_of([None], cut_ns=0) == {"hung": 1, "raised": 0, "freed_ms": None}


def test_only_words_said_in_time_are_heard():
    (ours, theirs), (silent, _kept) = multiprocessing.Pipe(), multiprocessing.Pipe()
    theirs.send("freed")
    assert cut.heard_from([ours, silent], 0.05) == {ours: "freed"}


def test_a_trial_with_a_hang_is_counted_once_and_has_no_time():
    rows = [
        {"leaving": "stays", "way": "cut", "hung": hung, "freed_ms": ms, **FACTS}
        for hung, ms in ((0, 1.0), (2, 9.0), (0, 3.0))
    ]
    made = cut.table(rows)
    assert "| leaves its sockets open | cut at once | 1 of 3 | 2.0 (1.0 to 3.0) |" in made
    assert "is killed" not in made, "not measured, so not told"
    assert cut.table([]) == "Not measured yet."
