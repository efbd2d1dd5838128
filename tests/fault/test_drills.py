"""`lastgood drill training` against real jobs: two drills for every change, the whole catalogue at night."""

import json
import subprocess
import sys

import pytest

from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.drills.catalogue import all_drills
from lastgood.training.drills.series import verdicts_in

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
TWO = "kill-rank,exception"


def play(*arguments, limit_s):
    command = [sys.executable, "-m", "lastgood.cli.main", "drill", "training", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drills") / "evidence"
    return folder, *play("--faults", TWO, "-o", str(folder), limit_s=240)


def test_a_kill_from_outside_and_an_exception_inside_the_step_hold(played):
    _, code, result = played
    assert [
        line for drill in result["drills"] for line in drill["lines"] if not line["has_held"]
    ] == []
    assert (code, result["held"], result["not_played"]) == (0, True, [])
    assert [d["drill"] for d in result["drills"]] == ["kill-rank", "exception"]


def test_each_line_says_which_event_shows_it(played):
    folder, _, result = played
    with open_store(folder / "ledger.db", create=False) as store:
        ids = {e.id for e in store.events()}
    lines = [line for drill in result["drills"] for line in drill["lines"] if line["event"]]
    assert len(lines) >= 8
    assert {line["event"].split()[1] for line in lines} <= ids


def test_both_were_played_in_one_job_whose_evidence_is_kept(played):
    folder, _, result = played
    (job,) = {drill["folder"] for drill in result["drills"]}
    names = {path.name for path in (folder / job).iterdir()}
    assert {"ledger.db", "tape.jsonl", "injector.jsonl", "in_step.jsonl", "logs"} <= names
    assert verify_ledger(folder / "ledger.db").ok
    assert verify_ledger(folder / job / "ledger.db").ok
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")


def test_the_second_call_plays_nothing_again(played):
    folder, _, _ = played
    code, result = play("--faults", TWO, "-o", str(folder), limit_s=60)
    assert code == 0
    assert result["kept"] == ["kill-rank", "exception"]
    assert len(list((folder / "jobs").iterdir())) == 1


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_whole_catalogue_holds(tmp_path):
    code, result = play("-o", str(tmp_path / "all"), limit_s=1700)
    broken = {d["drill"]: [x for x in d["lines"] if not x["has_held"]] for d in result["drills"]}
    assert {name: lines for name, lines in broken.items() if lines} == {}
    assert code == 0
    with open_store(tmp_path / "all" / "ledger.db", create=False) as store:
        assert {v.drill for v in verdicts_in(store.events())} == {d.name for d in all_drills()}
