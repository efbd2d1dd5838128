"""The StepFun fault trace end to end: the numbers that were computed from it by other means before this was written.

The trace is Apache-2.0 and not carried here: the test reads it where LASTGOOD_SHARED_DATA points, and is skipped, with
the reason, where it is missing. `test_rates.py` and `test_fleet_report.py` hold the same laws on a fixture of our own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LASTGOOD_SHARED_DATA", ROOT.parent / "shared" / "data"))
TRACE = DATA / "stepfun" / "fault_trace.json"
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"no fault trace at {TRACE}: set LASTGOOD_SHARED_DATA")  # fmt: skip


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return tmp_path_factory.mktemp("stepfun") / "ledger.db"


@pytest.fixture
def imported(cli, ledger):
    if not ledger.exists():
        assert cli("import", "stepfun", TRACE, "--ledger", ledger).exit_code == 0
    return ledger


@pytest.fixture
def told(cli, imported):
    return cli("rates", "--ledger", imported, "--nodes", "400", "--json").json


def rows(told, by):
    return {row["group"]: row for row in told["rows"] if row["by"] == by}


def test_584_faults_on_231_nodes_of_three_levels(told):
    assert (told["counts"]["incidents"], told["counts"]["nodes_hit"]) == (584, 231)
    levels = {g: r["count"] for g, r in rows(told, "label").items() if r["depth"] == 0}
    assert levels == {"Hardware Failure": 298, "Software Failure": 24, "Other Failure": 262}


def test_no_trend_pooled_while_gpus_rise_and_cables_fall(told):
    """Laplace over the window from day 0 to 348.9798; SurPyval gives the same pooled."""
    pooled = rows(told, "all")["all"]
    assert (pooled["laplace_z"], pooled["laplace_p"]) == pytest.approx(
        (0.658283, 0.510356), abs=1e-6
    )
    labels = rows(told, "label")
    assert round(labels["Hardware Failure/GPU"]["laplace_z"], 2) == 4.11
    assert round(labels["Hardware Failure/Parameter Plane Cable"]["laplace_z"], 2) == -3.63
    assert (pooled["trend"], labels["Hardware Failure/GPU"]["trend"]) == ("not shown", "rising")


def test_130_of_581_repairs_did_not_hold_for_a_day(told):
    day = told["repairs"][0]
    assert (day["bounces"], day["repairs"], round(day["share"], 3)) == (130, 581, 0.224)
    assert round(day["baseline"], 3) == 0.004


def test_no_lemon_is_flagged_because_the_order_does_not_last(told):
    nodes = told["nodes"]
    assert (nodes["at_risk"], nodes["flagged"]) == (400, [])
    assert (nodes["plain_list"], nodes["after_false_discovery_control"]) == (33, 11)
    assert round(nodes["persistence_r"], 2) == -0.02


def test_the_rule_moves_the_count_twofold(cli, imported):
    found = {}
    for gap in ("5min", "30min", "60min", "360min"):
        told = cli(
            "rates", "--ledger", imported, "--group", f"links+merge:{gap}@site", "--by", "class", "--json",
        ).json  # fmt: skip
        found[gap] = told["counts"]["incidents"]
    assert found == {"5min": 496, "30min": 455, "60min": 425, "360min": 284}


def test_the_report_answers_the_five_questions_and_recomputes(cli, imported, tmp_path):
    text = " ".join(cli("report", imported, "--nodes", "400").stdout.split())
    for words in (
        "584 incidents: 298 Hardware Failure, 262 Other Failure, 24 Software Failure.",
        "As a whole: no trend shown",
        "Rising: GPU (Lewis-Robinson, scaled t +3.23, after Holm p = 0.044; uncorrected: Laplace z +4.11).",
        "Falling by itself, but not after Holm: Parameter Plane Cable (Lewis-Robinson, scaled t -2.44, after Holm p = 0.28; uncorrected: Laplace z -3.63).",
        "130 of 581 repairs (22.4%) did not hold for one day; chance alone gives 0.4%",
        "No node to pull",
        "The cause of 254 of 584 incidents (43.5%).",
    ):
        assert words in text
    assert cli("bundle", imported, "-o", tmp_path / "b.tar").exit_code == 0
    assert cli("recompute", tmp_path / "b.tar").exit_code == 0


def test_without_the_number_of_nodes_there_is_no_rate_and_no_node_to_compare(cli, imported):
    told = cli("rates", "--ledger", imported, "--json").json
    assert {row["rate"] for row in told["rows"]} == {None}
    assert told["nodes"] is None
