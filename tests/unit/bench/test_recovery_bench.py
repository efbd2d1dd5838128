"""bench/recovery: what it makes of a job's own records, and what its tables make of its rows. Nothing is started."""

import sys
from pathlib import Path

import pytest

from lastgood.faults.spec import IN_STEP

RECOVERY = str(Path(__file__).resolve().parents[3] / "bench" / "recovery")
sys.path.append(RECOVERY)  # its scripts run in folders and interpreters of their own
import others  # noqa: E402
import picture  # noqa: E402
import records  # noqa: E402
import summary  # noqa: E402
import systems  # noqa: E402

WORLD = 4
STEP_US = 60_000
HIT_US = 10 * STEP_US + 1
"""Behind step 10 of everybody."""


def steps(numbers, *, at_us, ranks=range(WORLD), pids=(100, 101, 102, 103), generation=1, loss="a"):
    """One line a rank and step, a step every 60 ms from `at_us` on."""
    return [
        {
            "t_us": at_us + place * STEP_US, "event": "step", "pid": pids[rank], "rank": rank, "step": number,
            "loss": loss, "members": len(ranks), "generation": generation,
        }
        for place, number in enumerate(numbers)
        for rank in ranks
    ]  # fmt: skip


BEFORE = steps(range(1, 11), at_us=STEP_US)
REFERENCE = {(rank, step): "a" for rank in range(WORLD) for step in range(1, 31)}
NEW_PIDS = (100, 201, 102, 103)


def judged(events, after):
    return records.judge(events, after, injected_us=HIT_US, world=WORLD, reference=REFERENCE)


def behind_signal(events):
    return judged(events, records.of_others(events, since_us=HIT_US, gone_pid=101))


def behind_fault(events):
    return judged(events, records.of_new_lives(events, since_us=HIT_US))


@pytest.mark.parametrize("judge", [behind_signal, behind_fault])
def test_a_recovery_is_the_first_step_that_all_ranks_did_afterwards(judge):
    back = steps(range(11, 15), at_us=HIT_US + 400_000, pids=NEW_PIDS, generation=2)
    found = judge(BEFORE + back)
    assert (found.recovered_s, found.full_s, found.members) == (0.4, 0.4, 4)
    assert (found.lost_steps, found.losses_equal) == (0, True)


@pytest.mark.parametrize("judge", [behind_signal, behind_fault])
def test_steps_that_are_done_again_are_lost_and_the_way_back_to_new_ones_is_longer(judge):
    back = steps(range(7, 15), at_us=HIT_US + 400_000, pids=NEW_PIDS, generation=2)
    found = judge(BEFORE + back)
    assert found.lost_steps == 4  # 7, 8, 9 and 10 had been done by all
    assert found.caught_up_s == pytest.approx(0.4 + 4 * 0.06)


def test_accepted_steps_between_a_fault_and_its_detection_are_lost_when_they_are_done_again():
    undetected = steps((11, 12), at_us=HIT_US + 1)
    back = steps(range(10, 15), at_us=HIT_US + 400_000, generation=2)
    assert behind_fault(BEFORE + undetected + back).lost_steps == 3  # 10, 11 and 12


def test_steps_of_the_generation_that_was_hit_are_no_recovery():
    slow = steps(range(11, 30), at_us=HIT_US + 1)
    assert behind_fault(BEFORE + slow).recovered_s is None


def test_a_step_that_the_killed_process_still_ended_is_no_recovery():
    assert behind_signal(BEFORE + steps((11,), at_us=HIT_US + 1)).recovered_s is None


def test_a_job_that_never_trains_again_has_not_recovered():
    silent = steps((11,), at_us=HIT_US + 1, ranks=(0, 2, 3))
    lonely = [event | {"members": WORLD} for event in silent]
    assert behind_signal(BEFORE + lonely) == records.Recovery(None, None, None, None, None, None)


def test_a_smaller_world_has_a_first_step_and_no_full_world():
    back = steps(range(9, 12), at_us=HIT_US + 900_000, ranks=(0, 2, 3))
    found = behind_signal(BEFORE + back)
    assert (found.recovered_s, found.members, found.full_s) == (0.9, 3, None)
    assert found.losses_equal is None


def test_one_other_bit_of_one_loss_is_seen():
    back = steps(range(11, 15), at_us=HIT_US + 400_000, pids=NEW_PIDS, generation=2)
    back[-1]["loss"] = "b"
    assert behind_fault(BEFORE + back).losses_equal is False


def test_losses_that_nobody_can_compare_are_not_called_equal():
    back = steps(range(31, 35), at_us=HIT_US + 400_000, pids=NEW_PIDS, generation=2)
    assert behind_fault(BEFORE + back).losses_equal is None


def test_the_longest_pause_counts_from_the_fault_on():
    events = steps((1, 2), at_us=0) + steps((3, 4), at_us=900_000) + steps((5,), at_us=1_200_000)
    assert records.longest_pause_s(events, since_us=0, world=WORLD) == 0.84
    assert records.longest_pause_s(events, since_us=950_000, world=WORLD) == 0.24


# --- the drills of the catalogue as faults of the bench ---------------------------------------------------


@pytest.mark.parametrize("name", others.OTHERS)
def test_the_ranks_of_a_fault_move_on_with_the_run_and_so_does_the_expected_culprit(name):
    first, second = others.placed(name, 0, WORLD), others.placed(name, 1, WORLD)
    for a, b in zip(first.faults, second.faults, strict=True):
        assert (a.target.rank + 1) % WORLD == b.target.rank
        assert a.when.step is None or a.when.step >= others.STEPS_BEFORE
    assert sorted((rank + 1) % WORLD for rank in first.expect.ranks) == list(second.expect.ranks)


def test_a_fault_of_a_rank_has_happened_when_the_rank_says_so(tmp_path):
    drill = others.placed("spin", 0, WORLD)
    assert drill.faults[0].kind in IN_STEP
    (tmp_path / "faults").mkdir()
    log = tmp_path / "injector.jsonl"
    log.write_text('{"format":"x"}\n{"fault":"fault","outcome":"left_to_step","monotonic_us":1}\n')
    assert others.injections(drill, tmp_path, tmp_path) == {}
    (tmp_path / "faults" / "in_step.jsonl").write_text(
        '{"fault":"fault","outcome":"fired","monotonic_us":7}\n{"fault":"fau'
    )
    assert others.injections(drill, tmp_path, tmp_path) == {"fault": 7}


def test_a_fault_that_could_not_be_carried_out_is_no_row_of_a_recovery(tmp_path):
    drill = others.placed("flip-parameter", 0, WORLD)
    log = tmp_path / "injector.jsonl"
    log.write_text('{"fault":"fault","outcome":"failed","detail":{"reason":"no permission"}}\n')
    with pytest.raises(RuntimeError, match="no permission"):
        others.injections(drill, tmp_path, tmp_path)


# --- tables -----------------------------------------------------------------------------------------------


def row(system, run, seconds, *, fault="sigkill", **more):
    facts = {
        "recovered_s": seconds,
        "full_s": seconds,
        "members": 4,
        "lost_steps": 0,
        "losses_equal": True,
    }
    if seconds is None:
        facts = dict.fromkeys(facts)
    if system == "lastgood":
        facts |= {"culprit_right": True, "verification": ["equal"]}
    return {"system": system, "fault": fault, "run": run, "load": 1.0 + run, **facts, **more}  # fmt: skip


def line_of(table, *words):
    (found,) = [line for line in table.splitlines() if all(word in line for word in words)]
    return [cell.strip() for cell in found.strip("|").split("|")]


def side_by_side(**wrong):
    rows = [row("lastgood", run, 0.3) for run in range(4)] + [row("lastgood", 4, 0.5, **wrong)]
    return line_of(summary.table(rows), "SIGKILL", "lastgood")


def test_a_row_says_how_many_how_fast_and_at_which_load():
    assert side_by_side() == [
        "SIGKILL", "lastgood", "5", "its end is seen", "0.30 (0.30 to 0.50), 4 members", "0.30 (0.30 to 0.50)",
        "5 of 5", "0", "5 of 5", "1.0 to 5.0",
    ]  # fmt: skip


def test_a_wrong_culprit_shows_in_the_table():
    assert side_by_side(culprit_right=False)[6] == "4 of 5"


def test_a_lost_step_shows_in_the_table():
    assert side_by_side(lost_steps=2)[7] == "0 to 2"


def test_losses_that_differ_or_are_not_known_show_in_the_table():
    assert side_by_side(losses_equal=False)[8] == "4 of 5"
    assert side_by_side(losses_equal=None)[8] == "4 of 5"


def test_a_run_without_recovery_shows_in_the_table_and_pulls_the_median():
    assert side_by_side(recovered_s=None, full_s=None)[5] == "0.30 (0.30 to 0.30), 1 of 5 never"
    rows = [row("lastgood", 0, 0.3), row("lastgood", 1, None), row("lastgood", 2, None)]
    assert line_of(summary.table(rows), "SIGKILL")[5] == "never (0.30 to 0.30), 2 of 3 never"


def test_a_run_that_broke_off_counts_as_one_without_recovery():
    broken = {
        "system": "lastgood",
        "fault": "sigkill",
        "run": 1,
        "load": 1.0,
        "error": "never came to step 25",
    }
    cells = line_of(summary.table([row("lastgood", 0, 0.3), broken]), "SIGKILL")
    assert (cells[2], cells[6], cells[8]) == ("2", "1 of 2", "1 of 2")
    assert "1 of 2 never" in cells[5]


def test_another_fault_has_its_row_with_its_replay():
    rows = [row("lastgood", run, 1.2, fault="deadlock") for run in range(2)]
    rows.append(row("lastgood", 2, 1.3, fault="deadlock", verification=["different"]))
    assert line_of(summary.table(rows), "lock twice")[1:] == [
        "3", "1 s without progress", "1.20 (1.20 to 1.30)", "3 of 3", "0", "3 of 3", "2 of 3", "1.0 to 3.0",
    ]  # fmt: skip


def test_a_fault_that_nobody_recovers_from_has_its_longest_pause():
    rows = [row("lastgood", 0, 0.05, fault="full-ledger", pause_s=0.2, verification=[])]
    cells = line_of(summary.table(rows), "disk under the ledger")
    assert (cells[3], cells[7]) == ("goes on, longest pause 0.20 (0.20 to 0.20)", "no recovery")


# --- how the peers compare --------------------------------------------------------------------------------


def race(ours, **theirs):
    rows = [row("lastgood", run, seconds) for run, seconds in enumerate(ours)]
    for system, times in theirs.items():
        rows += [row(system, run, seconds) for run, seconds in enumerate(times)]
    return rows


def test_the_ratio_is_paired_by_run_and_its_interval_is_that_of_the_sign_test():
    ours = [0.2 + 0.01 * run for run in range(10)]
    rows = race(ours, torchrun=[(run + 1) * seconds for run, seconds in enumerate(ours)])
    found = summary.compare(rows, "sigkill")
    # Ratios 1 to 10. Of 10 values the 2nd and the 9th enclose the median with 1 - 2 * 11 / 1024 = 97.9 %.
    assert (found.peer, found.n) == ("torchrun", 10)
    assert (found.value, found.lo, found.hi) == pytest.approx((5.5, 2, 9))


def test_five_runs_have_a_ratio_and_no_interval():
    found = summary.compare(race([1.0] * 5, torchrun=[3.0] * 5), "sigkill")
    assert (found.value, found.lo, found.hi) == (3.0, None, None)
    assert "too few" in str(found)


def test_the_fastest_peer_is_one_that_brings_the_full_world_back():
    rows = race([1.0] * 6, torchrun=[8.0] * 6, ft_launcher=[5.0] * 6)
    rows += [row("torchft", run, None, recovered_s=2.0, members=3) for run in range(6)]
    assert summary.compare(rows, "sigkill").peer == "ft_launcher"
    assert summary.compare(rows, "sigkill", key="recovered_s").peer == "torchft"


def test_a_peer_that_mostly_stays_small_is_not_the_fastest():
    rows = race([1.0] * 6, torchrun=[8.0] * 6, torchft=[2.0, 2.0, None, None, None, None])
    assert summary.compare(rows, "sigkill").peer == "torchrun"


def test_a_run_in_which_we_did_not_come_back_counts_fully_against_us():
    found = summary.compare(race([1.0] * 6 + [None] * 4, torchrun=[8.0] * 10), "sigkill")
    assert (found.value, found.lo, found.hi) == (8.0, 0.0, 8.0)


def test_without_peers_nothing_is_claimed():
    assert summary.headline(race([0.3] * 10)) == ""


def test_the_headline_has_the_ratio_with_its_interval():
    said = summary.headline(race([0.5] * 10, torchft=[5.0] * 10))
    assert "after 0.50 s (median of 10)" in said
    assert "torchft, takes 10.0 times as long (10.0 to 10.0, n = 10)" in said


# --- the picture ------------------------------------------------------------------------------------------


def test_every_run_is_a_dot_and_one_that_never_came_back_is_seen():
    rows = [
        row("lastgood", 0, 0.3),
        row("torchft", 0, 3.0, recovered_s=1.0),
        row("torchrun", 0, None),
    ]
    found = [(dot["system"], dot["seconds"], dot["what"]) for dot in picture.dots(rows)]
    assert found == [
        ("lastgood", 0.3, picture.FULL),
        ("torchft", 1.0, picture.SMALLER),
        ("torchft", 3.0, picture.FULL),
        ("torchrun", picture.WATCHED_S, picture.NEVER),
    ]


def test_a_picture_of_other_rows_has_another_mark():
    assert picture.mark([row("lastgood", 0, 0.3)]) != picture.mark([row("lastgood", 0, 0.31)])


def test_every_system_says_what_its_detection_waits_for():
    assert set(systems.DETECTION) == set(systems.SYSTEMS)


@pytest.mark.parametrize("system", ["torchrun", "ft_launcher"])
def test_who_restarts_through_torch_gets_the_opt_out_of_the_shared_store(
    system, monkeypatch, tmp_path
):
    seen = {}
    monkeypatch.setattr(systems, "_start", lambda _job, _command, **extra: seen.update(extra))
    systems.SYSTEMS[system](systems.Job(tmp_path), "python")
    assert seen["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
