"""When the set of sources changes inside the window, no trend is told, and the reason stands beside every verdict."""

import pytest

from lastgood.base.rng import numpy_stream
from lastgood.base.units import US_PER_DAY
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part
from lastgood.evidence.rates_rows import rate_rows
from lastgood.evidence.rates_sources import source_change
from lastgood.ledger.columns import read_events
from lastgood.ledger.parquet_export import export_parquet
from lastgood.ledger.table import Coverage
from tests.unit.evidence import made_fleet as made


def covers(begin, end, format_="made", name=None):
    """What a file says; without a name each is a file of its own."""
    name = name or f"{format_}-{begin}-{end}"
    return Coverage(
        begin_us=int(begin * US_PER_DAY), end_us=int(end * US_PER_DAY), format=format_, name=name
    )


def window(*days):
    return [(int(a * US_PER_DAY), int(b * US_PER_DAY)) for a, b in days]


WHOLE = window((0, 100))


class TestTheSetOfSources:
    def test_a_second_source_inside_the_window_changes_it(self):
        found = source_change([covers(0, 100), covers(10, 40)], WHOLE)
        assert found.sentence == (
            "the set of sources changes at 1970-01-11: 1 of 2 sources covers the whole window"
        )

    def test_two_files_that_begin_at_one_moment_are_two(self):
        found = source_change([covers(0, 100), covers(0, 30)], WHOLE)
        assert (found.at_us, found.whole, found.sources) == (30 * US_PER_DAY, 1, 2)

    def test_another_format_that_ends_early_changes_it(self):
        found = source_change([covers(0, 100), covers(0, 40, "other")], WHOLE)
        assert (found.at_us, found.whole, found.sources) == (40 * US_PER_DAY, 1, 2)

    @pytest.mark.parametrize(
        "coverage",
        [
            [covers(0, 100)],
            [covers(0, 100), covers(0.5, 99.4, "other")],
            [covers(0, 30), covers(30, 60), covers(60.1, 100)],
            [covers(0, 31), covers(30, 61), covers(60, 100)],
            [covers(0, end, name="kern.log") for end in (50, 70, 100)],
            [covers(3 * i, 3 * i + 7, name="kern.log") for i in range(32)],
            [covers(0, 100), covers(50, 50, "snapshot")],
            [covers(0, 100), covers(20, 60, "progress")],
            [covers(0, 50, "a"), covers(50, 100, "a"), covers(0, 40, "b"), covers(40, 100, "b")],
        ],
        ids=[
            "one file",
            "two formats that begin and end with their own rows",
            "a log that was rotated",
            "the same with overlaps",
            "a file imported as it grew",
            "a file imported every third day that keeps a week",
            "a snapshot of one moment",
            "a log of steps",
            "two rotated logs side by side",
        ],
    )
    def test_these_do_not_change_it(self, coverage, monkeypatch):
        monkeypatch.setattr("lastgood.evidence.rates_sources.PROGRESS_FORMATS", {"progress"})
        assert source_change(coverage, WHOLE) is None

    def test_a_hole_in_all_sources_is_no_change(self):
        both = [covers(0, 30), covers(70, 100), covers(0, 30, "b"), covers(70, 100, "b")]
        assert source_change(both, window((0, 30), (70, 100))) is None

    def test_a_window_that_one_set_covers_has_no_change(self):
        assert source_change([covers(0, 100), covers(10, 40)], window((10, 40))) is None

    def test_logs_of_two_formats_years_apart_change_it(self):
        found = source_change(
            [covers(0, 349), covers(900, 903, "kernel")], window((0, 349), (900, 903))
        )
        assert (found.whole, found.sources) == (1, 2)


def two_logs(*, with_second: bool) -> made.Fleet:
    """A at a constant rate over 100 days; B at a constant rate over the first 30."""
    random = numpy_stream(3, "sources")
    one = made.Fleet()
    one.covers(0, 100)
    for day in random.uniform(0, 100, 100):
        one.fault(float(day), made.host(int(random.integers(0, 40))), "gpu.memory", label="A/a")
    if with_second:
        one.covers(5, 35)
        for day in random.uniform(5, 35, 120):
            one.fault(float(day), made.host(int(random.integers(40, 80))), "gpu.bus", label="B/b")
    return one


def told(folder, *, with_second=True, **question):
    path = two_logs(with_second=with_second).write(folder / "l.db")
    return fleet_part(path, RatesQuestion(nodes=80, **question))


REASON = "the set of sources changes at 2023-11-19: 1 of 2 sources covers the whole window"


def test_logs_of_different_times_give_no_trend_and_say_why(tmp_path):
    found = told(tmp_path)
    said = {w.title: " ".join(w.sentences) for w in found.section.answers}
    assert f"As a whole: could not tell: {REASON}." in said["Is it getting worse?"]
    for word in ("Rising", "Falling", "would also name"):
        assert word not in said["Is it getting worse?"]
    assert f"Whether a trend is one of the fleet: {REASON}." in said["What do we not know?"]
    assert "no trend can be told" in found.section.headline.sentence


def test_the_reason_stands_beside_every_test_and_in_every_row(tmp_path):
    found = told(tmp_path)
    trend = next(p for p in found.section.parts if p.name == "trend")
    assert all(REASON in " ".join(words.sentences) for words in trend.words)
    assert {row["trend"] for row in rate_rows(found.studies)} == {"could not tell"}
    assert {row[1] for table in trend.tables for row in table.rows} == {"could not tell"}


def test_a_window_of_one_set_has_its_verdict_again(tmp_path):
    found = told(tmp_path, since_us=made.at_us(36))
    assert found.studies.all.trend.headline.is_rejected is False
    assert "sources" not in " ".join(s for w in found.section.answers for s in w.sentences)


def test_one_source_alone_has_its_verdict(tmp_path):
    assert told(tmp_path, with_second=False).studies.all.trend.headline.is_rejected is False


def test_too_few_to_test_stays_too_few(tmp_path):
    one = made.Fleet()
    one.covers(0, 100)
    one.covers(10, 40)
    for i in range(4):
        one.fault(5 + i, made.host(i), "gpu.memory")
    found = fleet_part(one.write(tmp_path / "l.db"), RatesQuestion(nodes=8))
    assert {row["trend"] for row in rate_rows(found.studies)} == {"too few"}


def test_the_name_of_a_file_is_read_from_a_ledger_and_from_an_export_of_it(tmp_path):
    one = made.Fleet()
    for begin, end, name in ((0, 100, "a.log"), (0, 30, "b.log"), (0, 50, "a.log")):
        said = {"begin_us": made.at_us(begin), "end_us": made.at_us(end), "format": "made", "declared": False}  # fmt: skip
        source = {"importer": "made", "version": "1", "locator": f"{name}#0"}
        one.add("annotation", begin, body={"coverage": said}, source=source)
    path = one.write(tmp_path / "l.db")
    export_parquet(path, tmp_path / "export")
    for target in (path, tmp_path / "export"):
        coverage = read_events(target).coverage
        assert sorted(c.name for c in coverage) == ["a.log", "a.log", "b.log"]
        assert source_change(coverage, [(made.at_us(0), made.at_us(100))]).sources == 2
