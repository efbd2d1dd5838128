"""A series keeps what it played, goes on where it was left, and never counts as incidence of the field."""

import dataclasses
import json

import msgspec
import pytest

from lastgood.base.clock import ManualClock
from lastgood.contract.load import default_contract
from lastgood.contract.model import contract_text
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.drills import series
from lastgood.training.drills.catalogue import chosen_drills
from lastgood.training.drills.verdict import Records
from tests.unit.training.drills.test_verdict import incident

CLOCK = ManualClock(10_000_000)
KILL, STOP = chosen_drills("kill-rank,kill-rank-0")


class Job:
    """Stands in for a real job: writes a ledger as one would, or ends as it is told."""

    def __init__(self):
        self.played = []
        self.ends = {}

    def __call__(self, drills, *, name, stage):
        self.played.append(tuple(d.name for d in drills))
        end = self.ends.get(drills[0].name)
        if isinstance(end, BaseException):
            raise end
        folder = stage.folder / "jobs" / name
        folder.mkdir(parents=True)
        run = f"drill-{name}"
        began = new_event("run.start", clock=CLOCK, run=run, body={"mode": "drill", "world": 4})
        events, injected = [began], {}
        for number, drill in enumerate(drills):
            at_us = 20_000_000 + number * 10_000_000
            injected[f"{drill.name}/fault"] = at_us
            ranks = drill.expect.ranks if end != "wrong rank" else (3,)
            events += [
                msgspec.structs.replace(e, run=run)
                for e in incident(f"{run}/{number}", at_us + 9, ranks=ranks)
            ]
        with open_store(folder / "ledger.db") as store:
            store.append(events)
        return Records(
            run=run, folder=f"jobs/{name}", events=events, injected_us=injected, not_injected={},
            exit_code=130 if end == "interrupted" else 0, is_bitwise_equal=True,
        )  # fmt: skip


@pytest.fixture
def job(monkeypatch):
    made = Job()
    monkeypatch.setattr(series, "play_job", made)
    return made


def test_what_held_is_not_played_again_unless_it_is_asked_for(job, tmp_path):
    first = series.play_series([KILL, STOP], tmp_path)
    assert first.has_held
    assert series.play_series([KILL, STOP], tmp_path).kept == ("kill-rank", "kill-rank-0")
    assert len(job.played) == 1
    assert series.play_series([KILL], tmp_path, is_again=True).has_held
    assert job.played[1:] == [("kill-rank",)]


def test_what_did_not_hold_is_played_again_and_the_newest_answer_counts(job, tmp_path):
    job.ends["kill-rank"] = "wrong rank"
    first = series.play_series([KILL, STOP], tmp_path)
    assert [v.has_held for v in first.verdicts] == [False, False]
    job.ends.clear()
    second = series.play_series([KILL, STOP], tmp_path)
    assert second.has_held
    assert (tmp_path / "jobs" / "kill-rank-and-1-more-2").is_dir()


@pytest.mark.parametrize("end", [KeyboardInterrupt(), "interrupted"])
def test_a_ctrl_c_keeps_what_was_played_and_says_what_was_not(job, tmp_path, end):
    alone = dataclasses.replace(STOP, is_alone=True)
    job.ends["kill-rank-0"] = end
    result = series.play_series([KILL, alone], tmp_path)
    assert result.is_interrupted
    assert not result.has_held
    assert [v.drill for v in result.verdicts] == ["kill-rank"]
    assert result.not_played == ("kill-rank-0",)
    job.ends.clear()
    assert series.play_series([KILL, alone], tmp_path).has_held


def test_a_drill_that_expects_the_code_of_a_ctrl_c_is_no_ctrl_c_of_the_series(job, tmp_path):
    expect = dataclasses.replace(KILL.expect, exit_code=130)
    run = dataclasses.replace(KILL.run, is_own_process=True)
    pressed = dataclasses.replace(KILL, name="pressed", expect=expect, run=run, is_alone=True)
    job.ends["pressed"] = "interrupted"
    result = series.play_series([pressed, STOP], tmp_path)
    assert not result.is_interrupted
    assert [v.drill for v in result.verdicts] == ["pressed", "kill-rank-0"]


def test_under_the_supervisor_of_this_process_that_code_is_always_a_persons_ctrl_c(job, tmp_path):
    expect = dataclasses.replace(KILL.expect, exit_code=130)
    pressed = dataclasses.replace(KILL, name="pressed", expect=expect, is_alone=True)
    job.ends["pressed"] = "interrupted"
    result = series.play_series([pressed, STOP], tmp_path)
    assert result.is_interrupted
    assert result.not_played == ("pressed", "kill-rank-0")


def test_the_ledger_of_the_folder_holds_every_job_and_verifies(job, tmp_path):
    series.play_series([KILL, dataclasses.replace(STOP, is_alone=True)], tmp_path)
    with open_store(tmp_path / "ledger.db", create=False) as store:
        events = list(store.events())
    modes = {e.body["mode"] for e in events if e.kind == "run.start"}
    assert modes == {"drill"}
    injected = [e for e in events if e.body.get("injected") is True]
    assert {e.incident for e in injected} == {"drill-kill-rank/0", "drill-kill-rank-0/0"}
    assert [e.body["culprit_right"] for e in injected] == [True, True]
    assert verify_ledger(tmp_path / "ledger.db").ok


def test_a_fault_that_nobody_detected_is_on_record_as_such(job, tmp_path, monkeypatch):
    def silent(drills, *, name, stage):
        (stage.folder / "jobs" / name).mkdir(parents=True)
        return Records(
            run="r", folder=f"jobs/{name}", events=[], injected_us={"kill-rank/fault": 5},
            not_injected={}, exit_code=0,
        )  # fmt: skip

    monkeypatch.setattr(series, "play_job", silent)
    series.play_series([KILL], tmp_path)
    with open_store(tmp_path / "ledger.db", create=False) as store:
        (undetected,) = [e for e in store.events() if e.body.get("injected") is True]
    assert undetected.incident is None


def test_the_owner_of_failed_evidence_that_the_contract_names_goes_before_the_drills_own(
    job, tmp_path
):
    written = json.loads(contract_text(default_contract("training")))
    written["spec"]["duties"] = {"training": {"owner": "training-platform"}}
    contract = tmp_path / "contract.yaml"
    contract.write_text(json.dumps(written))
    owned = series.play_series([KILL], tmp_path / "a", contract=contract)
    assert [v.owner for v in owned.verdicts] == ["training-platform"]
    assert [v.owner for v in series.play_series([KILL], tmp_path / "b").verdicts] == [KILL.owner]


def test_an_answer_is_kept_only_for_the_same_contract_and_the_same_drill(job, tmp_path):
    contract = tmp_path / "contract.yaml"
    contract.write_text(contract_text(default_contract("training")))
    folder = tmp_path / "drills"
    assert series.play_series([KILL], folder).kept == ()
    under = series.play_series([KILL], folder, contract=contract)
    assert (under.kept, len(job.played)) == ((), 2)
    assert series.play_series([KILL], folder, contract=contract).kept == ("kill-rank",)
    asks_more = dataclasses.replace(
        KILL, expect=dataclasses.replace(KILL.expect, detected_within_us=5_000_000)
    )
    assert series.play_series([asks_more], folder, contract=contract).kept == ()


def test_an_answer_to_another_question_is_none_when_the_new_one_was_not_played(job, tmp_path):
    contract = tmp_path / "contract.yaml"
    contract.write_text(contract_text(default_contract("training")))
    assert series.play_series([KILL], tmp_path / "drills").has_held
    job.ends["kill-rank"] = KeyboardInterrupt()
    result = series.play_series([KILL], tmp_path / "drills", contract=contract)
    assert (result.has_held, result.verdicts, result.not_played) == (False, (), ("kill-rank",))


def test_what_a_drill_asks_has_the_same_digest_in_every_process():
    import subprocess
    import sys

    code = (
        "from lastgood.training.drills.catalogue import chosen_drills\n"
        "from lastgood.training.drills.series import _question_of\n"
        "print(*(_question_of(d, None) for d in chosen_drills(None)))\n"
    )
    told = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(told) == 1
