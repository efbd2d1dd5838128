"""An unchanged script under act mode: all ranks start again from the script's own checkpoint, within the contract's limit."""

from __future__ import annotations

import signal

import pytest

from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.verify import verify_ledger
from tests.fault.observed_run import ObservedRun, steps_done
from tests.fault.training_drill import lives, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]
ACT = ("--mode", "act", "--hang-after", "3s")


def test_a_stopped_and_then_a_killed_rank_each_start_all_ranks_again(tmp_path):
    kept = tmp_path / "kept.pt"
    with ObservedRun(tmp_path, "--checkpoint", str(kept), ranks=2, options=ACT) as run:
        run.wait_for(lambda events: kept.exists() and steps_done(events))
        first = [run.pid_of(rank) for rank in range(2)]
        run.signal_rank(1, signal.SIGSTOP)
        run.wait_for(lambda events: [e for e in events if e.kind == "incident.close"])
        second = [run.pid_of(rank) for rank in range(2)]
        run.signal_rank(0, signal.SIGKILL)
        run.wait_for(lambda events: len([e for e in events if e.kind == "incident.close"]) > 1)
        run.process.send_signal(signal.SIGTERM)
        code = run.end()
        events = run.events()
    assert code == 75
    incidents = [i for i in fold_incidents(events) if not i.is_planned]
    assert [(i.symptom, i.ranks, i.outcome) for i in incidents] == [
        ("hang", (1,), "restarted"),
        ("process_exit", (0,), "restarted"),
    ]
    assert not set(first) & set(second)
    isolated = [e for e in events if e.kind == "isolate"]
    assert isolated[0].body["killed"] == ["r0a1", "r1a1"]
    restored = [e.body for e in events if e.kind == "restore"]
    assert [body["numbered_by"] for body in restored] == ["optimizer", "optimizer"]
    assert all(body["step"] % 10 == 0 and body["step"] > 0 for body in restored)
    for incident, body in zip(incidents, restored, strict=True):
        assert incident.lost_steps is not None
        assert 0 <= incident.lost_steps < 60
        assert incident.verification is None
        assert body["tier"] == "script"
    assert [e.attempt for e in events if e.kind == "attempt.start"] == [1, 2, 3]
    assert verify_ledger(run.ledger).ok


@pytest.mark.nightly
def test_an_error_that_comes_back_stops_at_the_contracts_limit_with_93(tmp_path):
    options = ("--raise-at", "3", "--pace-ms", "1", "--optimizer", "SGD")
    with ObservedRun(tmp_path, *options, ranks=2, options=ACT) as run:
        code = run.end(limit_s=150)
        events = run.events()
    assert code == 93
    (escalated,) = [e for e in events if e.kind == "escalate"]
    assert "exception:ValueError" in escalated.body["reason"]
    assert "raised ValueError in step" in escalated.body["reason"]
    assert f"lastgood report {run.ledger} --run" in run.log.read_text()
    assert len([e for e in events if e.kind == "attempt.start"]) == 4
    closed = [e.body for e in events if e.kind == "incident.close"]
    assert {body["outcome"] for body in closed} == {"restarted", "escalated"}
    assert "lost_steps" not in closed[0], "a script without a count cannot say what was lost"


@pytest.mark.nightly
def test_a_rank_that_asks_not_to_be_requeued_is_not_started_again(tmp_path):
    with ObservedRun(tmp_path, "--steps", "5", "--exit-code", "93", ranks=2, options=ACT) as run:
        code = run.end(limit_s=100)
        events = run.events()
    assert code == 93
    assert len([e for e in events if e.kind == "attempt.start"]) == 1


@pytest.mark.nightly
def test_no_rank_outlives_a_supervisor_that_is_killed_while_it_starts(tmp_path):
    with ObservedRun(tmp_path, "--steps", "5", ranks=2, options=ACT) as run:
        run.wait_for(lambda events: any(e.kind == "attempt.start" for e in events))
        pids = [run.pid_of(rank) for rank in range(2)]
        run.process.kill()
        run.process.wait()
        wait_until(lambda: not any(map(lives, pids)))
    for rank in range(2):
        assert (tmp_path / "logs" / f"rank{rank}.log").read_text() == ""


STAYS_IN_ITS_TEARDOWN = """
import os, sys, time
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(600)
if os.environ["RANK"] == "1":
    sys.kept = Slow()
"""


@pytest.mark.nightly
def test_a_rank_that_does_not_end_behind_its_script_is_ended_and_the_job_ends_well(tmp_path):
    script = tmp_path / "stays.py"
    script.write_text(STAYS_IN_ITS_TEARDOWN)
    with ObservedRun(tmp_path, ranks=2, options=ACT, script=script) as run:
        code = run.end(limit_s=150)
        events = run.events()
    assert code == 0
    assert not [e for e in events if e.kind == "incident.open"]
    named, ended = [e for e in events if e.kind == "annotation"]
    assert (named.ranks, ended.ranks) == ((1,), (1,))
    assert any("__del__" in frame for frame in named.body["stack_groups"][0]["stack"])
    assert ended.body["signal"] == signal.SIGKILL
