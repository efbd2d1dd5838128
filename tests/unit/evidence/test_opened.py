"""`lastgood.open`: one door to a ledger, a bundle and an export, which gives typed records and tables of them."""

from __future__ import annotations

import datetime as dt
import math
import sys

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastgood
from lastgood.base.errors import BadInput, LedgerCorrupt, MissingExtra, Problems
from lastgood.budget.order_statistics import quantile_ranks
from lastgood.evidence.bundle import write_bundle
from lastgood.evidence.incident_times import quantile_figure
from lastgood.evidence.row_fields import EVENT_FIELDS, FIGURE_FIELDS, INCIDENT_FIELDS
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.incident import Incident
from lastgood.ledger.parquet_export import export_parquet
from lastgood.ledger.store import open_store
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS, RUN

pa = pytest.importorskip("pyarrow")
KERNEL_LOG = "tests/samples/import/kern.log"


def foreign_database(path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The same two runs as a ledger, as both forms of a bundle, and as an export."""
    folder = tmp_path_factory.mktemp("places")
    made = {"ledger": folder / "run.db", "tar": folder / "run.tar", "folder": folder / "run", "export": folder / "export"}  # fmt: skip
    with open_store(made["ledger"]) as store:
        store.append(sample_run.five_faults())
        store.append(sample_run.undisturbed())
    for name in ("tar", "folder"):
        write_bundle(
            made["ledger"], made[name], contract=None, run=RUN, now_us=1, version="0",
            builders={"training": build_section},
        )  # fmt: skip
    export_parquet(made["ledger"], made["export"])
    return made


@pytest.fixture(scope="module")
def ledger(places):
    return lastgood.open(places["ledger"])


@pytest.mark.parametrize(
    ("name", "kind"), [("ledger", "ledger"), ("tar", "bundle"), ("folder", "bundle"), ("export", "export")]
)  # fmt: skip
def test_each_form_of_evidence_gives_the_same_events_and_incidents(places, name, kind):
    with lastgood.open(places[name]) as opened:
        assert opened.kind == kind
        assert opened.runs == [RUN, "quiet-1"]
        events = opened.events(run=RUN)
        assert sorted(e.id for e in events) == sorted(e.id for e in sample_run.five_faults())
        incidents = opened.incidents()
        assert [i.recover_us for i in incidents] == [f.restart_us + f.restore_us for f in FAULTS]
        assert [i.symptom for i in incidents] == [f.symptom for f in FAULTS]
        assert opened.head.size == len(sample_run.five_faults()) + len(sample_run.undisturbed())


def test_events_are_chosen_by_kind_and_by_run(ledger):
    assert {e.kind for e in ledger.events(kinds="detect")} == {"detect"}
    assert len(ledger.events(kinds=["detect", "isolate"])) == 10
    assert {e.run for e in ledger.events(run="quiet-1")} == {"quiet-1"}


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda o: o.events(kinds="detects"), "no such kind of event: found 'detects'"),
        (lambda o: o.events(run="demo"), f"no such run in the ledger: found demo, needs one of: {RUN}"),
        (lambda o: o.incidents(run="demo"), "no such run"),
        (lambda o: o.incidents(rule="nearby"), "needs links, gap"),
        (lambda o: o.figures(run="demo"), "no such run"),
        (lambda o: o.figures().named("etr"), "needs such as ETTR"),
        (lambda o: o.incidents().quantile("repair", 0.5), "needs detection_time"),
        (lambda o: o.incidents().quantile("recovery_time", 50), "a share between 0 and 1"),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_what_there_is(ledger, ask, told):
    with pytest.raises(BadInput) as caught:
        ask(ledger)
    assert told in str(caught.value)


def test_times_are_utc_microseconds_twice_over(ledger):
    table = ledger.incidents().arrow()
    assert table.schema.field("detected").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("detected_us").type == pa.int64()
    first = FAULTS[0]
    moment = table["detected"][0].as_py()
    assert moment - table["onset"][0].as_py() == dt.timedelta(microseconds=first.detect_us)
    assert moment == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        microseconds=table["detected_us"][0].as_py()
    )


@pytest.mark.parametrize(
    ("take", "fields"),
    [
        (lambda o: o.events(), EVENT_FIELDS),
        (lambda o: o.incidents(), INCIDENT_FIELDS),
        (lambda o: o.figures(), FIGURE_FIELDS),
    ],
)
def test_a_table_has_every_column_with_its_unit_and_meaning(ledger, take, fields):
    rows = take(ledger)
    table = rows.arrow()
    assert table.column_names == [f.name for f in fields]
    assert table.num_rows == len(rows) == len(list(rows))
    for field, told in zip(fields, table.schema, strict=True):
        assert told.metadata[b"unit"] == field.unit.encode()
        assert field.text.endswith((".", "..."))
        assert not field.name.endswith("_us") or field.unit in {"us", "us UTC", "device-us"}
    assert table.schema.metadata[b"from"].decode() == str(ledger.path)


def test_a_frame_keeps_unknown_apart_from_zero(ledger):
    frame = ledger.incidents().pandas()
    assert frame["lost_steps"].tolist() == [f.lost_steps for f in FAULTS]
    assert frame["first_divergent_step"].isna().tolist() == [f.first_divergent_step is None for f in FAULTS]  # fmt: skip
    assert str(frame["detected"].dt.tz) == "UTC"
    assert frame.attrs["units"]["recover_us"] == "us"
    assert "links" in frame.attrs["rule"]


def test_figures_carry_kind_interval_n_source_and_assumptions(ledger):
    figures = ledger.figures(run=RUN)
    by_path = {row["path"]: row for row in figures.arrow().to_pylist()}
    ettr = by_path["training/ETTR"]
    assert (ettr["kind"], ettr["n"], ettr["unit"]) == ("measured", 400, "ratio")
    assert ettr["source"].startswith(f"ledger, run {RUN}")
    assert figures.named("ETTR").value == ettr["value"]
    assert by_path["training/stops/classes/1/1"]["label"] == "fail-stop, Count"


def test_a_rate_has_its_interval_in_columns(places):
    mean = lastgood.open(places["ledger"]).figures(run="quiet-1").named("Mean time to interruption")
    assert mean.value is None
    with_one = sample_run.five_faults(faults=FAULTS[:3], is_injected=False)
    with open_store(places["ledger"].with_name("field.db")) as store:
        store.append(with_one)
    rows = lastgood.open(places["ledger"].with_name("field.db")).figures().arrow().to_pylist()
    (row,) = [r for r in rows if r["path"] == "training/mean time to interruption"]
    assert row["lo"] < row["value"] < row["hi"]
    assert row["level"] == 0.95
    assert row["method"].startswith("exact Poisson")
    assert row["assumptions"] == []


def test_a_bundle_answers_as_of_its_own_instant_and_under_its_own_contract(places):
    with lastgood.open(places["tar"]) as opened:
        report = opened.figures().report
    assert report.reproduction.command == "lastgood recompute run.tar"
    assert report.subject == RUN


def test_a_bundle_that_was_changed_is_refused(places, tmp_path):
    import shutil

    changed = shutil.copytree(places["folder"], tmp_path / "changed")
    with (changed / "ledger.db").open("r+b") as file:
        file.seek(8000)
        file.write(b"\0\1\2")
    with pytest.raises(LedgerCorrupt, match="changed after it was written"):
        lastgood.open(changed)


def test_what_was_unpacked_is_gone_when_it_is_closed(places):
    opened = lastgood.open(places["tar"])
    place = opened._place
    assert place.exists()
    opened.close()
    assert not place.parent.exists()


def test_nothing_and_something_else_are_told_apart(tmp_path):
    with pytest.raises(BadInput, match="nothing to open") as caught:
        lastgood.open(tmp_path / "no.db")
    assert "lastgood demo" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda p: p.write_text("hello"), ("found a file of another kind", "lastgood import")),
        (lambda p: p.write_bytes(b""), ("found an empty file",)),
        (lambda p: p.mkdir(), ("a folder without a ledger", "needs a ledger, a bundle")),
        (lambda p: (p.mkdir(), (p / "my.db").touch()), ("a folder with my.db", "my.db")),
        (lambda p: (p.mkdir(), (p / "manifest.json").write_text("[]")), ("bundle",)),
        (foreign_database, ("not a ledger", "a SQLite database of something else")),
    ],
)  # fmt: skip
def test_what_is_none_of_these_is_named_for_what_it_is(tmp_path, make, told):
    make(tmp_path / "it")
    with pytest.raises((BadInput, Problems)) as caught:
        lastgood.open(tmp_path / "it")
    for part in told:
        assert part in str(caught.value)
    assert "Errno" not in str(caught.value)


def test_figures_and_incidents_are_of_the_same_runs_and_every_row_says_which(places):
    opened = lastgood.open(places["ledger"])
    assert opened.figures().arrow().column("run").unique().to_pylist() == opened.runs
    assert opened.figures(run=RUN).arrow().column("run").unique().to_pylist() == [RUN]
    assert {i.run for i in opened.incidents()} <= set(opened.runs)
    with pytest.raises(BadInput, match="several runs have this figure") as caught:
        opened.figures().named("ETTR")
    assert f"{RUN}, quiet-1" in str(caught.value)
    assert opened.figures(run=RUN).named("ETTR").value == opened.figures(run=RUN)[0].figure.value
    with lastgood.open(places["tar"]) as bundle:
        assert {found.run for found in bundle.figures()} == {RUN}


def test_a_fleet_stands_once_beside_its_runs(tmp_path):
    path = tmp_path / "both.db"
    import_files([sample_path(KERNEL_LOG)], ledger=path)
    with open_store(path) as store:
        store.append([*sample_run.five_faults(), *sample_run.undisturbed()])
    found = lastgood.open(path).figures()
    places = [(row.run, row.path) for row in found]
    assert len(set(places)) == len(places)
    assert {row.run for row in found} == {RUN, "quiet-1", None}


def test_figures_of_very_many_runs_are_asked_for_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr("lastgood.evidence.opened.RUNS_MAX", 1)
    path = tmp_path / "two.db"
    with open_store(path) as store:
        store.append([*sample_run.five_faults(), *sample_run.undisturbed()])
    with pytest.raises(BadInput, match="too many runs") as caught:
        lastgood.open(path).figures()
    assert "quiet-1" in str(caught.value)


def test_without_a_path_it_is_the_ledger_of_this_machine(places, monkeypatch):
    monkeypatch.setenv("LASTGOOD_LEDGER", str(places["ledger"]))
    assert lastgood.open().runs == [RUN, "quiet-1"]


@pytest.mark.parametrize(("module", "call"), [("pyarrow", "arrow"), ("pandas", "pandas")])
def test_a_missing_package_is_named_with_the_command(ledger, monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        getattr(ledger.incidents(), call)()
    assert f"no module named {module}" in str(caught.value)
    assert 'pip install "lastgood[analysis]"' in str(caught.value)


def test_records_need_neither_pyarrow_nor_pandas(ledger, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert len(ledger.figures()) > 50
    assert repr(ledger.incidents()).startswith("<5 incidents: from ")


def test_imported_failures_are_grouped_by_the_rule_that_reports_use(tmp_path):
    import_files([sample_path(KERNEL_LOG)], ledger=tmp_path / "kern.db")
    opened = lastgood.open(tmp_path / "kern.db")
    assert "gap:10min@host" in opened.incidents().about["rule"]
    assert 0 < len(opened.incidents()) < len(opened.incidents(rule="links+gap:0s@host"))
    assert opened.figures().report.title == "Lastgood report, fleet"


def test_an_export_of_imported_failures_gives_the_fleets_figures(tmp_path):
    import_files([sample_path(KERNEL_LOG)], ledger=tmp_path / "kern.db")
    export_parquet(tmp_path / "kern.db", tmp_path / "export")
    whole, columns = lastgood.open(tmp_path / "kern.db"), lastgood.open(tmp_path / "export")
    assert len(columns.figures()) > 20
    assert len(columns.incidents()) == len(whole.incidents())
    with pytest.raises(BadInput, match="an export has no run"):
        columns.figures(run="x")


def sample_path(name):
    from pathlib import Path

    return Path(__file__).resolve().parents[3] / name


# --- quantiles --------------------------------------------------------------------------------------------


@given(n=st.integers(1, 80), share=st.floats(0.02, 0.98), level=st.sampled_from([0.8, 0.9, 0.95]))
def test_the_two_values_enclose_the_quantile_at_least_as_often_as_said(n, share, level):
    """The binomial by its definition; and one place nearer on either side would not do."""
    ranks = quantile_ranks(n, share, level=level)

    def below(count):  # P(at most `count` of n values lie below the true quantile)
        return sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count + 1))

    tail = (1 - level) / 2 + 1e-9
    if ranks.lo is not None:
        assert below(ranks.lo) <= tail
    if ranks.hi is not None:
        assert 1 - below(ranks.hi) <= tail
        assert 1 - below(ranks.hi - 1) > tail - 2e-9
    assert 0 <= ranks.value < n


def incidents_of(*recover_us, escalated=0, open_=0):
    known = [Incident(id=str(n), recover_us=us, closed_us=1, outcome="recovered") for n, us in enumerate(recover_us)]  # fmt: skip
    known += [Incident(id=f"e{n}", closed_us=1, outcome="escalated") for n in range(escalated)]
    return [*known, *(Incident(id=f"o{n}") for n in range(open_))]


def test_six_values_give_the_median_an_interval_and_five_do_not():
    """2 x 0.5^6 = 3.1 % lies outside the smallest and largest of six; 2 x 0.5^5 = 6.3 % of five."""
    six = quantile_figure(incidents_of(10, 20, 30, 40, 50, 60), "recovery_time", 0.5)
    assert (six.value, six.n, six.interval.lo, six.interval.hi) == (30, 6, 10, 60)
    five = quantile_figure(incidents_of(10, 20, 30, 40, 50), "recovery_time", 0.5)
    assert five.interval is None
    assert "5 are too few" in five.source


def test_an_escalated_incident_is_no_fast_recovery():
    figure = quantile_figure(incidents_of(10, 20, escalated=3, open_=1), "recovery_time", 0.5)
    assert figure.value is None
    assert "3 escalated stand behind" in figure.source
    assert "1 without this time left out" in figure.source


def test_no_incident_is_not_observed():
    figure = quantile_figure([], "recovery_time", 0.5)
    assert (figure.value, figure.n) == (None, 0)


@pytest.mark.parametrize("call", [lambda: lastgood.open(3), lambda: lastgood.render(3)])
def test_a_value_of_another_type_is_refused_in_words(call):
    with pytest.raises(BadInput, match="found int"):
        call()


def test_a_contract_that_is_not_there_is_named_in_the_command_that_makes_it(places):
    with pytest.raises(Problems, match=r"write one with: lastgood contract init -o nope\.yaml"):
        lastgood.open(places["ledger"]).figures(run="quiet-1", contract="nope.yaml")
