"""Seven logs with one fault each, through ml-goodput-measurement's own calculator and through ours.

The table in docs/goodput.md is what both say; the truth in it is arithmetic (1,000 s of work over the time that passed).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from bench.goodput.seven_cases import CASES, by_lastgood, by_library, markdown, table
from bench.goodput.speed import made, ours

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "goodput.md"
BEGIN, END = "<!-- seven cases: begin -->\n", "\n<!-- seven cases: end -->"
HAS_LIBRARY = importlib.util.find_spec("ml_goodput_measurement") is not None
needs_library = pytest.mark.skipif(
    not HAS_LIBRARY, reason="ml-goodput-measurement is not installed: its side is not compared"
)
TRUTH = {"A": 100.0, "B": 29.4, "B2": 29.4, "C": 28.6, "D": 100.0, "E": 83.3, "F": 21.7}


@pytest.fixture(scope="module")
def library():
    """Google's packages warn while they are imported; that is no finding about us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ml_goodput_measurement.src.goodput  # noqa: F401
    return {case.name: by_library(case) for case in CASES}


@pytest.fixture(scope="module")
def walls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    return {case.name: by_lastgood(case, folder) for case in CASES}


def test_ours_is_the_truth_wherever_there_is_one(walls):
    found = {
        name: round(100 * wall.productive_us / wall.window_us, 1) for name, wall in walls.items()
    }
    del found["G"]
    assert found == TRUTH


def test_the_truth_in_the_table_is_that_of_the_reference():
    stated = {case.name: case.truth for case in CASES if case.wall_s is not None}
    assert stated == {name: f"{ratio:.1f} %" for name, ratio in TRUTH.items()}


def test_a_run_without_an_end_shows_the_work_that_is_known_and_closes_by_rule(walls):
    wall = walls["G"]
    assert wall.productive_us == 490_000_000
    assert wall.is_end_inferred
    assert wall.inferred_us == wall.totals_us["unknown"] == 600_000_000


def test_every_microsecond_of_each_case_has_a_state(walls):
    for wall in walls.values():
        assert sum(wall.totals_us.values()) == wall.window_us


def test_what_rests_on_a_rule_is_said(walls):
    assert {name: (wall.inferred_steps, wall.skew.event_count) for name, wall in walls.items()} == {
        "A": (0, 0), "B": (1, 0), "B2": (1, 0), "C": (1, 0), "D": (19, 0), "E": (1, 4), "F": (0, 0), "G": (0, 0),
    }  # fmt: skip


@needs_library
def test_the_library_says_what_the_reference_reports(library):
    assert library["A"] == library["B"] == library["F"] == "100.0 %"
    assert library["B2"] == "100.0 %, badput 12.3 %"
    assert library["C"].startswith("28.6 %")
    assert library["D"] == "81.0 %, OTHER 19.0 %"
    assert library["E"] == "ValueError, no number"
    assert library["G"] == "0.0 %, OTHER 100.0 %"


@needs_library
@pytest.mark.usefixtures("library")
def test_the_page_prints_this_table(request):
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    printed, _, tail = rest.partition(END)
    expected = markdown(table())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(head + BEGIN + expected + END + tail, encoding="utf-8")
        printed = expected
    assert printed == expected


def test_the_command_writes_the_logs_that_were_read(tmp_path):
    """The command of the page, without the library's side: it is slow to import and compared above."""
    code = "import sys; sys.modules['ml_goodput_measurement'] = None; import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    script = ROOT / "bench" / "goodput" / "seven_cases.py"
    done = subprocess.run(
        [sys.executable, "-c", code, str(script), "--json", "--logs", str(tmp_path)],
        capture_output=True, text=True, timeout=50, check=True, cwd=ROOT,
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert [row["Lastgood"] for row in rows][:2] == ["100.0 %", "29.4 %"]
    assert "not installed" in done.stderr
    lines = (tmp_path / "B.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["jsonPayload"]["job_name"] == "pretrain"
    assert len(lines) == len(CASES[1].entries)


def test_restarts_that_lose_ten_steps_each_give_the_truth_on_a_long_log_too(tmp_path):
    case = made(2_500)
    wall, _, _ = ours(case, tmp_path)
    assert case.wall_s is not None
    assert wall.productive_us == 25_000_000_000
    assert wall.window_us == round(case.wall_s * 1_000_000)
    assert wall.lost_executions == 2 * 10
    assert wall.totals_us["lost"] == 200_000_000
