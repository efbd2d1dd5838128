"""A run that is started again: what the ledger left open, what shared memory holds, and whether it is the same run."""

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from lastgood.base.clock import ManualClock, boot_id
from lastgood.base.errors import Refused
from lastgood.ledger.ettr import measure_run
from lastgood.ledger.event import new_event
from lastgood.ledger.incident import fold_incidents
from lastgood.training.options import RunOptions
from lastgood.training.resuming.interrupted import (
    Claim,
    claim_folder,
    closing_entries,
    opening_entries,
    read_history,
    resumption_of,
)
from lastgood.training.resuming.life import LastSign, LifePage, Tail
from lastgood.training.resuming.owned import OwnedFolder, owned_folder
from lastgood.training.resuming.same_run import identity_of
from lastgood.training.rundir import RunDir

NOW_US = 9_000_000


def event(kind, t_us, *, attempt=1, **fields):
    return new_event(kind, clock=ManualClock(t_us), run="r", attempt=attempt, **fields)


def killed_run():
    """Two ranks, two recorded steps, a checkpoint and an incident that nobody ended."""
    return [
        event("run.start", 1_000_000),
        event("attempt.start", 1_100_000, body={"world": 2}),
        event("exposure.join", 1_100_000, ranks=(0,), devices=1, body={"worker": "w0", "rank": 0}),
        event("exposure.join", 1_100_000, ranks=(1,), devices=1, body={"worker": "w1", "rank": 1}),
        event(
            "step", 1_200_000,
            body={"first": 1, "last": 2, "began_us": 1_200_000, "ended_us": [1_300_000, 1_400_000]},
        ),
        event("checkpoint.begin", 1_400_000, body={"step": 2}),
        event("incident.open", 1_500_000, incident="r/incident-3", body={}),
    ]  # fmt: skip


def sign(*, tail=None, turn_wall_us=2_000_000, assessed_step=4):
    return LastSign(1, assessed_step, 500_000, turn_wall_us, None, 77, tail)


def claim(found):
    return Claim(found, ())


def words(entries):
    return [(e.kind, e.fields.get("ranks") or e.fields.get("incident")) for e in entries]


def test_a_new_run_has_no_history_and_nothing_is_closed_or_opened():
    history = read_history([])
    resumption = resumption_of(history, claim(None), run_id="r")
    assert (resumption.last_attempt, resumption.incident, resumption.has_slots) == (0, None, False)
    assert closing_entries(history, resumption) == []
    assert opening_entries(resumption, now_us=NOW_US, world=2) == []


def test_everything_that_a_killed_supervisor_left_open_is_closed_at_its_last_turn():
    tail = Tail(3, 1_400_000, (1_700_000, 1_900_000), (0.5, None))
    history = read_history(killed_run())
    resumption = resumption_of(history, claim(sign(tail=tail)), run_id="r")
    entries = closing_entries(history, resumption)
    assert words(entries) == [
        ("step", None),
        ("checkpoint.fail", None),
        ("incident.close", "r/incident-3"),
        ("exposure.leave", (0,)),
        ("exposure.leave", (1,)),
        ("attempt.end", None),
        ("run.end", None),
    ]
    assert {e.fields["t_occurred_us"] for e in entries[1:] if e.kind != "exposure.leave"} == {
        2_000_000
    }
    steps = entries[0].fields
    assert steps["t_occurred_us"] == 1_400_000
    assert (steps["body"]["first"], steps["body"]["last"]) == (3, 4)
    assert steps["body"]["ended_us"] == [1_700_000, 1_900_000]
    assert "loss" not in steps["body"]
    assert entries[2].fields["body"]["outcome"] == "interrupted"
    assert entries[-1].fields["body"]["result"] == "interrupted"
    assert resumption.last_step == 4
    assert history.incident_count == 3


def test_steps_that_had_got_into_the_ledger_are_not_told_twice():
    tail = Tail(1, 1_200_000, (1_300_000, 1_400_000), (None, None))
    history = read_history(killed_run())
    entries = closing_entries(history, resumption_of(history, claim(sign(tail=tail)), run_id="r"))
    assert "step" not in [e.kind for e in entries]


def test_without_live_files_the_last_sign_of_life_is_the_last_record():
    history = read_history(killed_run())
    resumption = resumption_of(history, claim(None), run_id="r")
    assert (resumption.alive_us, resumption.last_step, resumption.has_slots) == (
        1_500_000, 2, False,
    )  # fmt: skip
    closed = [e for e in closing_entries(history, resumption) if e.kind != "exposure.leave"]
    assert {e.fields["t_occurred_us"] for e in closed} == {1_500_000}


def recorded(entries, *, attempt=2, at_us=NOW_US):
    made = []
    for kind, fields in entries:
        fields = {"attempt": attempt, **fields}
        made.append(new_event(kind, clock=ManualClock(at_us), run="r", **fields))
    return made


def test_the_interruption_is_an_incident_of_its_own_from_the_last_turn_on():
    history = read_history(killed_run())
    resumption = resumption_of(history, claim(sign()), run_id="r")
    entries = opening_entries(resumption, now_us=NOW_US, world=2)
    (incident,) = fold_incidents(recorded(entries, at_us=NOW_US + 15_000))
    assert incident.id == "r/interruption-1"
    assert (incident.class_, incident.symptom, incident.ranks) == ("fail_stop", "process_exit", ())
    assert (incident.onset_us, incident.detected_us) == (2_000_000, NOW_US)
    assert incident.detect_us == NOW_US - 2_000_000
    assert (incident.diagnosed_us, incident.isolated_us) == (NOW_US, NOW_US), "all at once"
    assert (incident.diagnose_us, incident.isolate_us) == (0, 0)
    assert incident.blast_radius == 2
    assert any("process 77" in note for note in incident.notes)
    assert any("step 4" in note for note in incident.notes)


def test_the_devices_stand_still_for_the_run_until_it_is_started_again():
    """So the lost device time of the run holds that of the interruption, and the wait is charged to nobody knowing."""
    events = killed_run()
    history = read_history(events)
    resumption = resumption_of(history, claim(sign()), run_id="r")
    events += recorded(closing_entries(history, resumption), attempt=1)
    events.append(event("run.start", NOW_US, attempt=2))
    events += recorded(opening_entries(resumption, now_us=NOW_US, world=2))
    for rank in (0, 1):
        body = {"worker": f"w{rank}", "rank": rank}
        events.append(
            event("exposure.join", NOW_US, attempt=2, ranks=(rank,), devices=1, body=body)
        )
    closed_us = NOW_US + 500_000
    lost_us = 2 * (closed_us - 2_000_000)
    events.append(event("incident.close", closed_us, attempt=2, incident="r/interruption-1", lost_device_us=lost_us))  # fmt: skip
    times = measure_run(events, run="r", as_of_us=closed_us)
    assert times.lost_device_time.value * 1e6 >= lost_us
    assert times.wall.totals_us["down.detect"] >= NOW_US - 2_000_000
    assert times.wall.totals_us["down.schedule"] == 0


def test_a_start_that_failed_too_goes_on_with_the_same_incident():
    """The second start ended with a refusal before it came to the state: the interruption is not over."""
    events = killed_run()
    history = read_history(events)
    resumption = resumption_of(history, claim(sign()), run_id="r")
    events += recorded(closing_entries(history, resumption), attempt=1)
    events.append(event("run.start", NOW_US, attempt=2))
    events += recorded(opening_entries(resumption, now_us=NOW_US, world=2))
    events.append(event("run.end", NOW_US + 10, attempt=2, body={"exit_code": 3}))
    again = read_history(events)
    assert not again.is_open
    third = resumption_of(again, claim(sign()), run_id="r")
    assert (third.incident, third.is_new_incident, third.last_attempt) == (
        "r/interruption-1", False, 2,
    )  # fmt: skip
    assert closing_entries(again, third) == []
    assert [e.kind for e in opening_entries(third, now_us=NOW_US, world=2)] == ["isolate"]
    events.append(event("incident.close", NOW_US + 20, attempt=3, incident="r/interruption-1"))
    events.append(event("run.start", NOW_US + 30, attempt=3))
    fourth = resumption_of(read_history(events), claim(None), run_id="r")
    assert (fourth.incident, fourth.is_new_incident) == ("r/interruption-2", True)


def test_a_run_that_ended_in_order_is_no_interruption_and_its_attempts_are_counted_on():
    events = [*killed_run(), event("run.end", 3_000_000, body={"exit_code": 75})]
    history = read_history(events)
    resumption = resumption_of(history, claim(None), run_id="r")
    assert (resumption.last_attempt, resumption.alive_us, resumption.incident) == (1, None, None)
    assert closing_entries(history, resumption) == []


# --- the folder in shared memory --------------------------------------------------------------------


def options_for(tmp_path, **changes):
    made = RunOptions(
        script=tmp_path / "train.py", ranks=2, run_id="r", ledger=tmp_path / "l.db", root=tmp_path / "run",
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def leave_behind(tmp_path, **changes):
    """What a supervisor leaves that is killed after step 7: in another process, since a lock dies with its owner."""
    identity = {**identity_of(options_for(tmp_path), contract_digest="c"), **changes}
    code = (
        "import json, os, sys; from pathlib import Path; from lastgood.training.rundir import RunDir\n"
        "from lastgood.training.resuming.life import LifePage\n"
        "run = RunDir.create(Path(sys.argv[1]), ranks=2)\n"
        "run.identity.write_text(sys.argv[2])\n"
        "LifePage(run.life).begin_generation(3, step=7)\n"
        "run.snapshot(0, 7).write_bytes(b'state')\n"
        "run.store(3).write_bytes(b'addresses of the dead')\n"
        "run.status('w0').write_bytes(b'old')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), json.dumps(identity)]
    assert subprocess.run(command, check=False).returncode == -9


@contextmanager
def claimed(tmp_path, **changes):
    """The folder as the next start has taken it over, with what it found there."""
    options = options_for(tmp_path, **changes)
    with owned_folder(options) as folder:
        found = claim_folder(folder, identity_of(options, contract_digest="c"))
        yield folder.run_dir, found.sign


def test_the_same_run_takes_over_the_snapshots_and_nothing_else(tmp_path):
    leave_behind(tmp_path)
    with claimed(tmp_path) as (run_dir, sign):
        assert (sign.generation, sign.assessed_step) == (3, 7)
        assert run_dir.snapshot(0, 7).read_bytes() == b"state"
        assert not run_dir.store(3).exists()
        assert not run_dir.status("w0").exists()
        with pytest.raises(Refused, match="owner is alive"):
            OwnedFolder(options_for(tmp_path))


def test_a_state_that_was_never_taken_up_is_kept_for_the_next_start(tmp_path):
    leave_behind(tmp_path)
    for _ in range(2):
        with claimed(tmp_path) as (run_dir, sign):
            assert sign.assessed_step == 7
            assert run_dir.snapshot(0, 7).read_bytes() == b"state"


def test_a_lent_folder_is_emptied_at_once_and_its_name_is_free_when_it_is_given_back(tmp_path):
    options = options_for(tmp_path)
    with owned_folder(options) as folder:
        lent = folder.lend()
        lent.snapshot(0, 7).write_bytes(b"state")
        lent.remove()
        assert list(lent.root.iterdir()) == []
        with pytest.raises(Refused):
            OwnedFolder(options)
    assert not lent.root.exists()


def test_what_a_supervisor_leaves_in_a_lent_folder_stays_in_it(tmp_path):
    options = options_for(tmp_path)
    with owned_folder(options) as folder:
        lent = folder.lend()
        lent.snapshot(0, 7).write_bytes(b"state")
        lent.release()
        with pytest.raises(Refused):
            OwnedFolder(options)
    assert lent.snapshot(0, 7).read_bytes() == b"state"
    with owned_folder(options) as folder:
        assert folder.is_kept


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({"script": "/elsewhere/other.py"}, r"script /elsewhere/other\.py there.*the same script"),
        ({"world": 4}, r"world 4 there, 2 here.*as many ranks"),
        ({"contract_digest": "d" * 64}, r"contract_digest d{12}\.\.\. there|contract_digest d+"),
    ],
)
def test_another_script_world_or_contract_is_refused_and_the_state_stays(tmp_path, there, words):
    leave_behind(tmp_path, **there)
    for _ in range(2):
        with pytest.raises(Refused, match=words) as caught, claimed(tmp_path):
            pass
        assert "state 7 is still in shared memory" in str(caught.value)
        assert f"rm -r {tmp_path / 'run'}" in str(caught.value)
    assert RunDir(tmp_path / "run").snapshot(0, 7).read_bytes() == b"state"


@pytest.mark.parametrize("there", [{"boot_id": "an earlier boot"}])
def test_what_an_earlier_boot_left_is_cleared_since_its_times_mean_nothing(tmp_path, there):
    leave_behind(tmp_path, **there)
    with claimed(tmp_path) as (run_dir, sign):
        assert sign is None
        assert run_dir.snapshots(0) == []


def test_a_folder_without_a_state_or_a_name_is_cleared(tmp_path):
    leave_behind(tmp_path)
    LifePage(RunDir(tmp_path / "run").life).begin_generation(1, step=-1)
    assert identity_of(options_for(tmp_path), contract_digest="c")["boot_id"] == boot_id()
    with claimed(tmp_path) as (_, sign):
        assert sign is None
    assert not (tmp_path / "run").exists()
    leave_behind(tmp_path)
    (tmp_path / "run" / "run.json").write_text("{")
    with claimed(tmp_path) as (_, sign):
        assert sign is None


def test_another_ledger_or_other_arguments_are_the_same_run(tmp_path):
    leave_behind(tmp_path)
    more = {"arguments": ("--more",), "ledger": tmp_path / "other.db"}
    with claimed(tmp_path, **more) as (run_dir, sign):
        assert sign.assessed_step == 7
        assert json.loads(run_dir.identity.read_text())["arguments"] == ["--more"]


def test_its_owner_is_this_process(tmp_path):
    leave_behind(tmp_path)
    page = LifePage(RunDir(tmp_path / "run").life)
    page.close()
    with claimed(tmp_path) as (_, sign):
        assert sign.pid == os.getpid()
