"""A plan as a section: what is shown, with which kind, and which pictures there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lastgood.base.figures import FigureKind
from lastgood.budget.plan import make_plan
from lastgood.budget.plan_finite import plan_finite
from lastgood.budget.scenario import Scenario, read_value
from lastgood.budget.scenario_file import load_scenario
from lastgood.evidence.charts import NARROW_PX, WIDE_PX, chart_spec
from lastgood.evidence.html import render_html
from lastgood.evidence.plan_part import headline_sentence, plan_section
from lastgood.evidence.report import Report, Reproduction, figures_in

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "planning"


@pytest.fixture(scope="module")
def section():
    scenario = load_scenario(EXAMPLES / "cluster.yaml")
    plan = make_plan(scenario)
    return plan_section(plan, plan_finite(plan, seed=1, count=300))


@pytest.fixture(scope="module")
def report(section):
    return Report(
        title="Lastgood checkpoint plan",
        subject="cluster",
        as_of_us=0,
        sections=(section,),
        reproduction=Reproduction(
            ledger="", root="", size=0, origin="", version="0", command="lastgood plan cluster.yaml"
        ),
    )


def charts(section):
    return {chart.name: chart for part in section.parts for chart in part.charts}


def test_a_plan_from_measured_inputs_is_modelled_and_its_tail_simulated(section):
    rows = {row.label: row.figure for row in section.figures}
    assert rows["Useful fraction E, exact"].kind is FigureKind.MODELLED
    finite = next(part for part in section.parts if part.name == "finite")
    kinds = {row[1].kind for table in finite.tables for row in table.rows if table.name == "wall"}
    assert kinds == {FigureKind.SIMULATED}


@pytest.mark.parametrize(
    ("mtti", "said"),
    [
        ("3.09h", "Checkpoint about every 20 min of work (optimum 18.6 min; "),
        ("14h", "Checkpoint about every 40 min of work (optimum 40.3 min; "),
        ("213.5min", "Checkpoint every 20 min of work (17.2 min"),
    ],
)
def test_the_headline_says_where_it_rounds_and_gives_the_useful_share_of_what_it_says(mtti, said):
    from lastgood.budget.closed.efficiency import efficiency

    given = {
        name: read_value(name, text, where="test")
        for name, text in {"mtti": mtti, "checkpoint_cost": "1min"}.items()
    }
    plan = make_plan(Scenario(given=given))
    sentence = headline_sentence(plan)
    assert sentence.startswith(said)
    share = efficiency(float(plan.round_work.value), plan.scenario.regime())
    assert f"at best {100 * share:.2f} % of wall time is then useful" in sentence


def test_every_alternative_of_the_full_scenario_is_computed(section):
    parts = {part.name: part for part in section.parts}
    rows = parts["alternatives"].tables[0].rows
    assert [row[0] for row in rows] == [
        "plain", "multi-level", "asynchronous", "verified pattern", "copies at peers",
    ]  # fmt: skip
    assert not parts["alternatives"].notes
    words = {one.title: one.sentences[0] for one in parts["surroundings"].words}
    assert "keep" in words["retention"].lower()
    assert "spares" in words["spares"]


def test_a_spare_pool_is_shown_with_its_chance_window_and_refill_time(section, report):
    names = [figure.name for path, figure in figures_in(report) if "surroundings" in path]
    for name in ("spares", "p that a failure finds one", "refill", "window"):
        assert name in names


def test_all_five_pictures_are_there_and_are_valid_in_both_widths(section):
    found = charts(section)
    assert list(found) == ["useful_fraction", "waste", "tornado", "wall_time", "retention_risk"]
    for chart in found.values():
        for width in (WIDE_PX, NARROW_PX):
            spec = chart_spec(chart, width_px=width, validate=True)
            assert "currentColor" in str(spec)
    assert found["wall_time"].data.kind is FigureKind.SIMULATED
    assert [mark.label for mark in found["wall_time"].marks] == ["p50", "p90", "p99"]


def test_the_curve_shades_the_plateau_and_marks_the_interval_in_use(section):
    curve = charts(section)["useful_fraction"]
    inside = [row[0] for row in curve.data.rows if row[5] == "yes"]
    assert (min(inside), max(inside)) == pytest.approx((15.6, 21.9), abs=0.1)
    assert [mark.label for mark in curve.marks] == ["τ", "in use"]
    for _, useful, lo, hi, first, _ in curve.data.rows:
        assert lo <= useful <= hi
        assert first <= useful


def test_the_waste_of_the_picture_adds_up_to_its_total(section):
    rows = charts(section)["waste"].data.rows
    *terms, total = [amount for _, amount, _ in rows]
    assert sum(terms) == pytest.approx(total)


def test_the_rates_of_the_domains_are_shown_with_their_shares(section):
    inputs = next(part for part in section.parts if part.name == "inputs")
    stops = next(table for table in inputs.tables if table.name == "stops")
    assert [row[0] for row in stops.rows] == ["gpu", "network", "software"]
    assert [row[4].value for row in stops.rows] == pytest.approx([210 / 360, 60 / 360, 90 / 360])
    chances = next(table for table in inputs.tables if table.name == "untouched")
    assert chances.rows[0][1].value == pytest.approx(2.718281828 ** (-1 / 4))  # M is 4 h


def test_the_page_says_that_no_ledger_stands_behind_it(report):
    page = render_html(report)
    text = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "No ledger stands behind these numbers" in text
    assert "Ledger root" not in text
    assert "Records read up to" not in text
    assert page.count("<svg") == 10
    assert "<script" not in page
