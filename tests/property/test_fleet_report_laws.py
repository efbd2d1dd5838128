"""Whatever failures a ledger holds, the fleet's report comes out, is drawn, and counts each of them once."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from lastgood.evidence.chart_files import charts_in
from lastgood.evidence.charts import chart_spec
from lastgood.evidence.rates_answers import QUESTIONS
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part
from lastgood.evidence.rates_rows import rate_rows, rates_csv, rates_latex
from lastgood.evidence.report import Report, Reproduction
from lastgood.evidence.terminal import print_report
from tests.unit.evidence import made_fleet as made

DAY = st.floats(0, 60, allow_nan=False).map(lambda d: round(d, 3))
FAULT = st.fixed_dictionaries(
    {
        "day": st.one_of(DAY, st.sampled_from([0.0, 30.0, 60.0])),
        "host": st.sampled_from(["a", "b", "c", "d", None]),
        "cause": st.sampled_from(["gpu.memory", "gpu.bus", "unknown", "network.cable"]),
        "label": st.sampled_from(["", "x", "x/y", "x/y/z", "q_1/&%"]),
        "class_": st.sampled_from(["fail_stop", "fail_slow", "sdc", None]),
        "hours": st.sampled_from([None, 0.0, 1.0, 48.0]),
    }
)
WINDOWS = st.lists(st.tuples(DAY, DAY).map(lambda p: (min(p), max(p))), min_size=1, max_size=3)


def written(faults, windows, joins) -> made.Fleet:
    fleet = made.Fleet()
    for begin, end in windows:
        fleet.covers(begin, end)
    for number, fault in enumerate(faults):
        name = f"i{number}"
        domain = [{"kind": "host", "id": fault["host"]}] if fault["host"] else []
        body = {"label": fault["label"]} if fault["label"] else {}
        fleet.add("incident.open", fault["day"], class_=fault["class_"], cause=fault["cause"], domain=domain, incident=name, body=body)  # fmt: skip
        if fault["hours"] is not None:
            fleet.add("incident.close", fault["day"] + fault["hours"] / 24, incident=name)
    for day, host, devices in joins:
        fleet.joins(day, host, devices)
    return fleet


@settings(max_examples=15)
@given(
    faults=st.lists(FAULT, max_size=40),
    windows=WINDOWS,
    joins=st.lists(st.tuples(DAY, st.sampled_from(["a", "b"]), st.integers(1, 8)), max_size=3),
    nodes=st.sampled_from([None, 4, 12]),
)
def test_any_failures_have_a_report_that_can_be_drawn(faults, windows, joins, nodes):
    with tempfile.TemporaryDirectory() as folder:
        path = written(faults, windows, joins).write(Path(folder) / "l.db")
        # Where records say who was at risk, another number is refused; tests/unit/evidence holds that.
        part = fleet_part(path, RatesQuestion(nodes=None if joins else nodes))
    inside = sum(
        any(made.at_us(b) <= made.at_us(f["day"]) <= made.at_us(e) for b, e in windows if e > b)
        for f in faults
    )
    if any(e > b for b, e in windows):
        assert part.studies.all.sample.count == inside
    assert tuple(words.title for words in part.section.answers) == QUESTIONS
    rows = rate_rows(part.studies)
    for by in ("class", "cause"):
        branches = [r["count"] for r in rows if r["by"] == by and r["depth"] == 0]
        assert not branches or sum(branches) == part.studies.all.sample.count
    assert rates_csv(rows).count("\n") >= len(rows)
    assert rates_latex(rows, part.studies).endswith("\\end{table}\n")
    block = Reproduction(ledger="l", root="0" * 64, size=1, origin="o", version="v", command="c")
    report = Report(title="t", subject="s", as_of_us=part.end_us, sections=(part.section,), reproduction=block)  # fmt: skip
    out = io.StringIO()
    print_report(report, Console(file=out, width=80, highlight=False, markup=False))
    assert max(len(line) for line in out.getvalue().splitlines()) <= 80
    for chart in charts_in(report):
        assert chart_spec(chart)
