"""All forms of `lastgood rates` say one thing: one unit, one verdict of each trend, no flag without an effect."""

from __future__ import annotations

import csv
import io

import pytest

from tests.unit.evidence import made_fleet as made

RATES = "rates"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("forms")


@pytest.fixture(scope="module")
def many(folder):
    """Eleven groups; one has p = 0.02 by itself, which is nothing among eleven."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for group in range(10):
        for i in range(12):
            fleet.fault(8.3 * i + 0.7 * group, made.host(i), "gpu.memory", label=f"Part {group}")
    for i in range(24):
        fleet.fault(100 * ((i + 0.5) / 24) ** 0.5, made.host(i), "gpu.memory", label="Late")
    return fleet.write(folder / "many.db")


def in_form(cli, ledger, form):
    asked = (RATES, "--ledger", ledger, "--by", "label", "--nodes", "40", "--format", form)
    return cli(*asked)


def test_no_form_calls_a_trend_rising_that_is_gone_after_holm(cli, many):
    said = "rising, not after Holm"
    rows = list(csv.DictReader(io.StringIO(in_form(cli, many, "csv").stdout)))
    assert next(r["trend"] for r in rows if r["group"] == "Late") == said
    told = in_form(cli, many, "json").json["rows"]
    late = next(r for r in told if r["group"] == "Late")
    assert (late["trend"], late["trend_p"] < 0.05 < late["trend_p_holm"]) == (said, True)
    assert "rising, not after" in in_form(cli, many, "text").stdout  # the word wraps in its column
    assert said in in_form(cli, many, "latex").stdout


def test_latex_prints_both_p_values_of_every_trend(cli, many):
    text = in_form(cli, many, "latex").stdout
    assert "$p$ & $p$, Holm & Trend" in text
    late = next(line for line in text.splitlines() if line.startswith("Late"))
    cells = late.removesuffix(r" \\").split(" & ")
    assert float(cells[-3]) < 0.05 < float(cells[-2])


def test_every_form_gives_a_rate_in_one_unit(cli, many):
    unit = "per million node-h"
    assert in_form(cli, many, "json").json["rows"][0]["rate_unit"] == unit
    assert f"Rate, {unit}" in in_form(cli, many, "latex").stdout
    row = next(csv.DictReader(io.StringIO(in_form(cli, many, "csv").stdout)))
    # 144 incidents of 40 nodes in 100 days.
    assert float(row["rate"]) == pytest.approx(144e6 / (40 * 2400))
    assert "1500 per million node-h" in in_form(cli, many, "text").stdout


def test_how_many_causes_are_only_a_hypothesis_is_told(cli, folder):
    fleet = made.few()
    fleet.add(
        "observation", 3, class_="fail_stop", cause="gpu.memory", cause_status="hypothesis", domain=[{"kind": "host", "id": "a"}]
    )  # fmt: skip
    told = cli(RATES, "--ledger", fleet.write(folder / "grades.db"), "--json").json
    grades = {"established": 0, "supported": 6, "hypothesis": 1, "unknown": 0}
    assert told["counts"]["cause_status"] == grades
    said = told["answers"]["What do we not know?"]
    assert said[0] == (
        "How sure the causes are, in incidents: 0 established, 6 supported, 1 hypothesis, 0 unknown."
    )
