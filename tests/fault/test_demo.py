"""`lastgood demo` as a script would call it: one JSON object, and an exit code that can be believed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.ledger.verify import verify_ledger

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(600)]
LOSSLESS = {"sigkill", "sigstop"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "evidence"
    command = [sys.executable, "-m", "lastgood.cli.main", "demo", "--json", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    return done.returncode, json.loads(done.stdout)


def test_it_holds(shown):
    code, result = shown
    assert code == 0
    assert result["bitwise_equal"] is True
    assert result["recomputed_equal"] is True


def test_every_fault_of_the_tape_is_there_detected_and_blamed_on_the_right_rank(shown):
    _, result = shown
    kinds = [fault["kind"] for fault in result["faults"]]
    assert kinds == ["sigkill", "sigkill", "sigstop", "flip_snapshot", "flip_parameter"]
    assert all(fault["culprit_right"] for fault in result["faults"])
    assert all(0 < fault["detected_s"] < fault["recovered_s"] for fault in result["faults"])


def test_kills_and_hangs_lose_no_step(shown):
    _, result = shown
    assert {f["lost_steps"] for f in result["faults"] if f["kind"] in LOSSLESS} == {0}


def test_the_ratio_is_a_figure_with_its_kind(shown):
    _, result = shown
    assert result["ettr"]["kind"] == "measured"
    assert 0 < result["ettr"]["value"] < 1


def test_the_evidence_is_where_it_says(shown):
    _, result = shown
    assert verify_ledger(result["ledger"]).ok
    assert Path(result["report"]).read_text().lower().startswith("<!doctype html>")
    assert Path(result["bundle"]).is_file()
