"""An unchanged script under observe mode: a stopped rank is named and not touched, a dead one is named and reported."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

import pytest

from lastgood.ledger.event import Event
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.verify import verify_ledger
from tests.fault.observed_run import ObservedRun, steps_done
from tests.fault.training_drill import lives, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]
RANKS = 3
STOP_AT = 100


class Seen:
    """What one observed run left: a stop that ended by itself, then a kill.

    The rank stops itself, in its own code: a stop from outside may hit it where its peers wait too, and then no stack
    stands out.
    """

    def __init__(self, folder: Path) -> None:
        options = ("--hang-after", "2s")
        job = ("--loaders", "1", "--stop-at", str(STOP_AT))
        with ObservedRun(folder, *job, ranks=RANKS, options=options) as run:
            run.wait_for(steps_done)
            self.pids = [run.pid_of(rank) for rank in range(RANKS)]
            run.wait_for(lambda events: any(e.kind == "diagnose" for e in events))
            self.living_in_the_hang = [pid for pid in self.pids if Path(f"/proc/{pid}").exists()]
            run.signal_rank(1, signal.SIGCONT)
            run.wait_for(lambda events: any(e.kind == "incident.close" for e in events))
            run.signal_rank(2, signal.SIGKILL)
            self.exit_code = run.end(limit_s=120)
        self.events = run.events()
        self.incidents = fold_incidents(self.events)
        self.ledger = run.ledger
        self.output = run.log.read_text()

    def of(self, kind: str, incident: Incident) -> list[Event]:
        return [e for e in self.events if e.kind == kind and e.incident == incident.id]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("observe"))


def test_a_stopped_rank_is_named_and_the_incident_closes_when_it_goes_on(seen):
    incident = seen.incidents[0]
    assert (incident.symptom, incident.ranks) == ("hang", (1,))
    assert incident.outcome == "resolved"
    assert incident.lost_steps == 0
    assert (incident.detect_us or 0) >= 2_000_000
    assert incident.isolated_us is None
    assert incident.restored_us is None


def test_the_culprit_is_named_with_the_stacks_that_were_asked_for(seen):
    (diagnose,) = seen.of("diagnose", seen.incidents[0])
    assert diagnose.body["culprits"] == [1]
    assert diagnose.body["asked"] >= RANKS


@pytest.mark.nightly  # a dump has 5 s for all processes, and a busy machine may not give them to it
def test_the_stacks_of_all_ranks_are_grouped_and_the_stopped_one_stands_out(seen):
    (diagnose,) = seen.of("diagnose", seen.incidents[0])
    trainers = [g for g in diagnose.body["stack_groups"] if g["role"] == "trainer"]
    assert [g["ranks"] for g in trainers if g["is_usual"]] == [[0, 2]]
    assert diagnose.body["outliers"] == [1]
    assert any(g["role"] == "loader" for g in diagnose.body["stack_groups"])
    usual = next(g for g in trainers if g["is_usual"])
    assert any("backward" in frame for frame in usual["stack"])
    assert "<- stands out" in seen.output


def test_nothing_is_killed_and_nothing_started_again(seen):
    assert seen.living_in_the_hang == seen.pids
    assert {e.kind for e in seen.events} & {"isolate", "restore", "restore.begin"} == set()
    assert [e.attempt for e in seen.events if e.kind == "attempt.start"] == [1]


def test_a_killed_rank_is_named_and_its_peers_are_the_cascade(seen):
    incident = seen.incidents[1]
    assert (incident.symptom, incident.ranks) == ("process_exit", (2,))
    assert incident.outcome == "ended"
    raised = [e for e in seen.events if e.body.get("raised") == "group_error"]
    assert {e.ranks for e in raised} == {(0,), (1,)}
    assert {e.role for e in raised} == {"cascade"}


def test_the_command_ends_with_the_code_of_the_job(seen):
    assert seen.exit_code == 128 + signal.SIGKILL
    assert "resolved by itself" in seen.output


def test_steps_are_counted_before_during_and_after(seen):
    steps = [e for e in seen.events if e.kind == "step"]
    assert steps[0].body["first"] == 1
    assert all(a.body["last"] + 1 == b.body["first"] for a, b in pairwise(steps))
    assert steps[-1].body["last"] > STOP_AT


def test_the_ledger_of_an_observed_run_verifies(seen):
    assert verify_ledger(seen.ledger).ok


@pytest.mark.nightly
def test_a_killed_supervisor_costs_the_records_and_not_the_job(tmp_path):
    with ObservedRun(tmp_path, "--steps", "150", ranks=2) as run:
        run.wait_for(steps_done)
        pids = [run.pid_of(rank) for rank in range(2)]
        run.process.kill()
        run.process.wait()
        log = tmp_path / "logs" / "rank0.log"
        wait_until(lambda: "rank 0 of restart 0 is done" in log.read_text())
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.nightly
def test_ranks_whose_supervisor_died_while_they_started_go_on_beside_the_next_start(tmp_path):
    """Killed before they have imported torch: the next start has another folder by the time they look for theirs."""
    job = ("--steps", "30")
    with ObservedRun(tmp_path, *job, ranks=2) as first:
        first.wait_for(lambda events: any(e.kind == "attempt.start" for e in events))
        pids = [first.pid_of(rank) for rank in range(2)]
        first.process.kill()
        first.process.wait()
        with ObservedRun(tmp_path, *job, ranks=2) as second:
            assert second.end(limit_s=120) == 0
            wait_until(lambda: not any(map(lives, pids)))
            events, output = second.events(), second.log.read_text()
    (warned,) = [e for e in events if e.body.get("pids") == pids]
    assert "still works, unobserved" in warned.body["text"]
    assert f"kill {pids[0]} {pids[1]}" in output
    (end, _) = [e for e in events if e.kind == "run.end"]
    assert end.body["is_unobserved"] is True
    log = (tmp_path / "logs" / "rank0.log").read_text()
    for restart in range(2):
        assert f"rank 0 of restart {restart} is done" in log
    assert "Traceback" not in log


@pytest.mark.nightly
def test_a_script_that_calls_start_is_observed_and_attach_leaves_no_second_watcher(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import lastgood, torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "attached = lastgood.attach()\n"
        "run = lastgood.start(model=model, optimizer=optimizer, loader=lambda rank, world: [torch.randn(2, 4)] * 7)\n"
        "for batch in run.batches(epochs=2):\n"
        "    with run.step() as step:\n"
        "        optimizer.zero_grad()\n"
        "        step.loss = run.model(batch).pow(2).mean()\n"
        "        step.loss.backward()\n"
        "        optimizer.step()\n"
        "print('did', run.steps_done, 'of epoch', run.epoch, flush=True)\n"
    )
    options = ("--mode", "observe")
    with ObservedRun(tmp_path, ranks=2, options=options, script=script) as run:
        assert run.end(limit_s=100) == 0
        events = run.events()
    assert steps_done(events) == 14
    assert "did 14 of epoch 2" in (tmp_path / "logs" / "rank1.log").read_text()
    assert all(len(e.body["loss"]) == len(e.body["ended_us"]) for e in events if e.kind == "step")
    assert not (Path.cwd() / "lastgood-spool").exists()
