"""The report of imported failures: five answers on top, no more said than the numbers hold, and it recomputes."""

from __future__ import annotations

import msgspec
import pytest

from lastgood.base.canonical import canonical_bytes
from lastgood.base.errors import BadInput
from lastgood.evidence.chart_files import charts_in
from lastgood.evidence.rates_answers import QUESTIONS
from lastgood.evidence.rates_charts import CELLS, cumulative_chart, raster_chart
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part, read_records
from lastgood.evidence.rates_study import study_fleet
from lastgood.evidence.report import Report, Reproduction, canonical_plain
from lastgood.evidence.terminal import print_report
from lastgood.ledger.store import open_store
from tests.unit.evidence import made_fleet as made
from tests.unit.evidence import sample_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def ledger(folder):
    return made.troubled().write(folder / "ledger.db")


@pytest.fixture(scope="module")
def section(ledger):
    return fleet_part(ledger, RatesQuestion(nodes=made.NODES)).section


def answers(section):
    return {words.title: " ".join(words.sentences) for words in section.answers}


def part(section, name):
    return next(p for p in section.parts if p.name == name)


def report_of(section) -> Report:
    block = Reproduction(ledger="l", root="0" * 64, size=1, origin="o", version="v", command="c")
    return Report(title="t", subject="s", as_of_us=0, sections=(section,), reproduction=block)


# --- answers ------------------------------------------------------------------------------------------------


def test_the_five_questions_stand_on_top_in_their_order(section):
    assert tuple(words.title for words in section.answers) == QUESTIONS
    assert all(words.sentences for words in section.answers)


def test_how_many_of_what_counts_the_branches_and_the_most_frequent_leaves(section):
    said = answers(section)["How many of what?"]
    assert said.startswith("153 incidents: 144 Hardware, 9 Other. The most frequent: 84 GPU, 60 Cable, 9 Unknown.")  # fmt: skip


def test_how_many_leaves_out_what_was_caused_on_purpose_and_says_so(section):
    said = answers(section)["How many of what?"]
    assert "1 incident more was caused on purpose" in said


def test_getting_worse_names_what_rises_and_what_falls_though_the_whole_does_neither(section):
    said = answers(section)["Is it getting worse?"]
    assert said.startswith("As a whole: no trend shown")
    for word, name, z in (("Rising", "GPU", "+3.20"), ("Falling", "Cable", "-4.48")):
        sentence = next(s for s in said.split(". ") if s.startswith(f"{word}: {name} ("))
        assert "after Holm p " in sentence, said
        assert f"Laplace z {z}" in sentence, said
        assert "uncorrected" not in sentence or sentence.index("after Holm") < sentence.index(
            "uncorr"
        )
    assert "3 groups were tested" in said


def test_the_host_whose_repairs_do_not_hold_is_named(section):
    said = answers(section)["Which repairs did not hold?"]
    assert "repairs" in said
    assert f"Most often: {made.host(39)} (12)" in said


def test_what_is_not_known_is_said(section, ledger):
    said = answers(section)["What do we not know?"]
    assert "The cause of 9 of 153 incidents (5.9%)." in said
    assert "Whether --nodes 40 is right" in said
    assert "When 1 incident will end: still open." in said
    bare = answers(fleet_part(ledger, RatesQuestion()).section)
    assert "How many devices were at risk" in bare["What do we not know?"]
    assert bare["Which nodes to pull?"].startswith("Not known")
    assert "over the 40 nodes that failed, which is too high" in bare["Which repairs did not hold?"]
    assert "too high" not in answers(section)["Which repairs did not hold?"]


def test_a_node_that_keeps_failing_is_named_for_pulling(folder):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(60):
        fleet.fault(0.3 + 1.65 * i, made.host(7), "gpu.memory")
    for i in range(80):
        fleet.fault(0.1 + 1.2 * i, made.host(i % 40), "host.os")
    path = fleet.write(folder / "lemon.db")
    said = answers(fleet_part(path, RatesQuestion(nodes=40)).section)["Which nodes to pull?"]
    assert f"Pull: {made.host(7)}." in said


# --- parts --------------------------------------------------------------------------------------------------


def test_every_count_names_its_layer_and_its_rule(section):
    assert "Counted: incidents, by the rule links+gap:10min@host" in part(section, "counts").lead
    quality = {row.label: row for row in part(section, "data-quality").figures}
    assert quality["Events in effect"].note == "layer: events"
    assert quality["Incidents counted"].note.startswith("layer: incidents, grouped by")


def test_the_injected_fault_is_fenced_off(section):
    notes = " ".join(note.text for note in part(section, "counts").notes)
    assert "1 incident in this ledger was caused on purpose" in notes


def test_whatever_fails_in_a_run_that_was_started_to_be_broken_is_fenced_off(folder):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    fleet.add("run.start", 1, run="a-drill", body={"mode": "drill"})
    fleet.fault(2, made.host(1), "gpu.memory")
    fleet.joins(0, made.host(1), 8)
    fleet.add("exposure.join", 1, devices=64, run="a-drill", domain=[{"kind": "host", "id": "h"}])
    for day, name in ((3, "x"), (4, "y")):
        fleet.add("incident.open", day, class_="fail_stop", cause="unknown", run="a-drill", incident=name)  # fmt: skip
    records = read_records(fleet.write(folder / "drill.db"), RatesQuestion())
    assert (len(records.incidents), records.injected_count) == (1, 2)
    assert records.exposure.total == 8 * 100 * 24


def test_a_fault_that_ends_after_the_window_is_open_in_it(folder):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for day in (10, 20, 49.9):
        fleet.fault(day, made.host(0), "gpu.memory", hours=6)
    path = fleet.write(folder / "cut.db")
    records = read_records(path, RatesQuestion(until_us=made.at_us(50)))
    found = study_fleet(records).all.durations[-1]
    assert (found.n, found.open) == (3, 1)


def test_detection_is_not_claimed_from_records_with_one_time(ledger):
    names = [d.name for d in study_fleet(read_records(ledger, RatesQuestion())).all.durations]
    assert names == ["begin to end"]


def test_the_table_of_the_import_is_in_the_report(folder):
    fleet = made.Fleet()
    quality = {
        "rows": {"read": 10, "accepted": 7, "ignored": 1, "rejected": 2},
        "rejected": [{"reason": "no time", "count": 2, "examples": [{"at": "x.log#3"}]}],
        "known_losses": {"alerts that the sender cut": 4}, "notes": ["a note"], "file_problems": ["x.log ends early"],
    }  # fmt: skip
    fleet.covers(0, 100, quality=quality)
    for i in range(12):
        fleet.fault(8 * i, made.host(i), "gpu.memory")
    made_section = fleet_part(fleet.write(folder / "quality.db"), RatesQuestion()).section
    tables = {t.name: t for t in part(made_section, "data-quality").tables}
    assert [c.value for c in tables["files"].rows[0][3:]] == [10, 7, 1, 2]
    assert tables["rejected"].rows[0][0] == "no time"
    assert tables["rejected"].rows[0][2] == "x.log#3"
    said = answers(made_section)["What do we not know?"]
    assert "What 2 rejected rows say." in said
    assert "4 records known to be lost: alerts that the sender cut." in said


def test_an_empty_fleet_has_a_report_that_says_so(folder):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    made_section = fleet_part(fleet.write(folder / "empty.db"), RatesQuestion(devices=8)).section
    assert made_section.headline.sentence == "No failure is recorded in 100 days."
    assert len(made_section.answers) == 5


def test_six_failures_are_too_few_to_test_and_the_report_says_it(folder):
    made_section = fleet_part(made.few().write(folder / "few.db"), RatesQuestion(nodes=8)).section
    assert "too few to test" in made_section.headline.sentence
    said = answers(made_section)
    for question in ("Which repairs did not hold?", "Which nodes to pull?"):
        assert said[question] == "Too few to say: 6 incidents, and ten are needed."
    assert "Too few to test" in " ".join(w.sentences[0] for w in part(made_section, "trend").words)


# --- charts -------------------------------------------------------------------------------------------------


def test_the_pictures_of_a_fleet_are_all_there(section):
    names = [chart.name for chart in charts_in(report_of(section))]
    assert names == ["cumulative", "mean-cumulative", "weekly", "gaps", "node-ranks", "raster"]


def test_the_poisson_band_is_that_of_a_binomial_count():
    """scipy.stats gives the same quantiles."""
    import numpy as np
    from scipy.stats import binom

    chart = cumulative_chart(np.arange(1, 101) * 10.0, 1010.0, unit="h")
    for x, _, _, lo, hi in chart.data.rows[1:-1]:
        assert (lo, hi) == tuple(binom.ppf([0.025, 0.975], 100, x / 1010.0))


def test_a_million_incidents_draw_no_more_points_than_a_thousand():
    import numpy as np

    at = np.linspace(0.0, 1000.0, 1_000_000)
    assert len(cumulative_chart(at, 1000.0, unit="h").data.rows) <= 162


def test_the_raster_counts_every_incident_of_the_nodes_it_shows(ledger):
    records = read_records(ledger, RatesQuestion(nodes=made.NODES))
    chart = raster_chart(records, [])
    assert sum(row[3] for row in chart.data.rows) == len(records.incidents)
    assert len({row[0] for row in chart.data.rows}) == made.NODES
    width = chart.data.rows[0][2] - chart.data.rows[0][1]
    assert width == pytest.approx(made.DAYS / CELLS)


# --- the report as a whole ----------------------------------------------------------------------------------


def test_the_same_ledger_gives_the_same_bytes(ledger, section):
    again = fleet_part(ledger, RatesQuestion(nodes=made.NODES)).section
    both = [canonical_bytes(canonical_plain(report_of(s))) for s in (section, again)]
    assert both[0] == both[1]


def test_the_terminal_is_80_columns_wide_and_has_all_five_answers(section):
    import io

    from rich.console import Console

    out = io.StringIO()
    print_report(report_of(section), Console(file=out, width=80, highlight=False, markup=False))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(question in text for question in QUESTIONS)


def test_a_supervised_run_has_no_fleet_section(folder):
    path = folder / "run.db"
    with open_store(path, clock=made.CLOCK) as store:
        store.append(sample_run.five_faults())
    assert fleet_part(path, RatesQuestion()) is None


def test_a_bundle_of_imported_failures_recomputes_and_a_changed_figure_is_found(
    cli, ledger, tmp_path
):
    target = tmp_path / "bundle"
    assert cli("bundle", ledger, "-o", target).exit_code == 0
    assert cli("recompute", target).exit_code == 0
    manifest = msgspec.json.decode((target / "manifest.json").read_bytes())
    assert manifest["rates"]["rule"] == "links+gap:10min@host"


def test_what_was_asked_about_rates_goes_into_the_bundle_and_is_asked_again(cli, ledger, tmp_path):
    target = tmp_path / "bundle"
    asked = ("--nodes", "40", "--interval", "block-bootstrap", "--group", "links+merge:1s@site")
    assert cli("bundle", ledger, "-o", target, *asked).exit_code == 0
    figures = (target / "figures.json").read_text(encoding="utf-8")
    assert "stationary block bootstrap" in figures
    result = cli("recompute", target)
    assert (result.exit_code, result.stdout.startswith("equal: ")) == (0, True)


def test_a_group_whose_trend_does_not_hold_among_all_groups_is_not_named(folder):
    """One of eleven groups has p = 0.02 by itself; adjusted for eleven it is no finding."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for group in range(10):
        for i in range(12):
            fleet.fault(8.3 * i + 0.7 * group, made.host(i), "gpu.memory", label=f"Part {group}")
    for i in range(24):
        fleet.fault(100 * ((i + 0.5) / 24) ** 0.5, made.host(i), "gpu.memory", label="Late")
    path = fleet.write(folder / "many.db")
    rows = {
        row.group.name: row.study.trend.headline
        for row in study_fleet(read_records(path, RatesQuestion()), by=["label"]).grouped[0].rows
    }
    assert 0.001 < rows["Late"].p < 0.05
    said = answers(fleet_part(path, RatesQuestion()).section)["Is it getting worse?"]
    assert "Rising: " not in said
    assert "Rising by itself, but not after Holm: Late (" in said
    assert "11 groups were tested" in said


def test_a_bundle_of_a_run_alone_asks_for_no_rates(cli, tmp_path):
    path = tmp_path / "run.db"
    with open_store(path, clock=made.CLOCK) as store:
        store.append(sample_run.five_faults())
    assert cli("bundle", path, "-o", tmp_path / "b").exit_code == 0
    assert msgspec.json.decode((tmp_path / "b" / "manifest.json").read_bytes())["rates"] is None


def test_a_ledger_with_a_run_and_imports_reports_both(cli, tmp_path):
    fleet = made.fleet()
    path = fleet.write(tmp_path / "both.db")
    with open_store(path, clock=made.CLOCK) as store:
        store.append(sample_run.five_faults())
    told = cli("report", path, "--json").json
    assert [s["name"] for s in told["sections"]] == ["training", "fleet"]
    assert "answers" not in told["sections"][0]


def test_change_points_stand_in_the_time_of_their_bars_where_devices_come_and_go(folder):
    """A fleet that is ten times as large in its second half: the bars have equal exposure, and so have the marks."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    fleet.joins(0, made.host(0), 8)
    for i in range(1, 10):
        fleet.joins(50, made.host(i), 8)
    for i in range(80):
        fleet.fault(50 + i * 0.15 if i > 9 else 5.0 * i, made.host(i % 10), "gpu.memory")
    made_part = fleet_part(fleet.write(folder / "grows.db"), RatesQuestion())
    assert made_part.studies.all.is_operational
    charts = {chart.name: chart for chart in charts_in(report_of(made_part.section))}
    weekly = charts["weekly"]
    assert weekly.data.columns[0].title == "Operational time"
    assert weekly.marks
    assert {mark.at for mark in weekly.marks} <= {row[0] for row in weekly.data.rows}


def test_a_burst_after_a_hole_in_the_records_is_told_on_the_calendar(folder):
    fleet = made.Fleet()
    fleet.covers(0, 10)
    fleet.covers(60, 100)
    for i in range(12):
        fleet.fault(61 + 3 * i, made.host(i), "gpu.memory")
    for i in range(5):
        fleet.fault(80, made.host(i + 20), "unknown")
    made_section = fleet_part(fleet.write(folder / "hole.db"), RatesQuestion()).section
    rows = next(t for t in part(made_section, "bursts").tables if t.name == "bursts").rows
    assert rows[0][1] == "2024-02-02 22:13"  # day 80 after 2023-11-14 22:13:20


def test_a_hostile_name_in_a_log_cannot_become_markup_or_a_control_sequence(folder):
    import io

    from rich.console import Console

    from lastgood.evidence.html import render_html

    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(24):
        fleet.fault(4 * i, f"<script>{i % 3}</script>\x1b[31m", "gpu.memory", label='<img src=x onerror="x">/[bold]b[/bold]')  # fmt: skip
    report = report_of(fleet_part(fleet.write(folder / "hostile.db"), RatesQuestion(nodes=12)).section)  # fmt: skip
    page = render_html(report)
    assert "<script" not in page
    assert "<img" not in page
    out = io.StringIO()
    print_report(report, Console(file=out, width=80, highlight=False, markup=False))
    assert "\x1b" not in out.getvalue()
    assert "[bold]" in out.getvalue()


def test_three_million_nodes_take_no_longer_than_forty(ledger):
    """The nodes without an incident are a number, not a list: no name and no row is made of them."""
    part_of = fleet_part(ledger, RatesQuestion(nodes=3_000_000))
    assert part_of.studies.all.lemons.nodes == part_of.studies.all.mcf.nodes == 3_000_000
    assert len(part_of.studies.node_names) <= made.NODES
    assert part_of.studies.all.exposure.total == 3_000_000 * 2400


@pytest.mark.parametrize("value", [10**9 + 1, 10**20])
@pytest.mark.parametrize("option", ["nodes", "devices"])
def test_a_number_that_no_fleet_has_is_refused(ledger, option, value):
    with pytest.raises(BadInput, match=r"no fleet is that large.*at most 1,000,000,000") as found:
        fleet_part(ledger, RatesQuestion(**{option: value}))
    assert found.value.exit_code == 2


def test_a_node_that_became_bad_is_said_with_the_date_to_ask_again_from(folder):
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(80):
        fleet.fault(0.1 + 1.24 * i, made.host(i % 39), "host.os")
    for i in range(14):
        fleet.fault(70 + 2.1 * i, made.host(39), "gpu.memory")
    found = fleet_part(fleet.write(folder / "late.db"), RatesQuestion(nodes=40))
    said = answers(found.section)["Which nodes to pull?"]
    assert "Pull:" not in said
    assert f"{made.host(39)} had all 14 of its faults since 2024-01-20" in said
    assert "ask again with --since 2024-01-20." in said
    table = next(t for t in part(found.section, "nodes").tables if t.name == "nodes")
    assert "ask again with --since 2024-01-20." in table.note
