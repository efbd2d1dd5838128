"""The same records under another zone or year: known ones stay one, keep their times, and the result says so."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.importers.times import Times
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store

SACCT = (
    "JobIDRaw|JobName|State|Submit|Start|End|{}NNodes|NodeList|AllocTRES|Cluster\n"
    "7|a|NODE_FAIL|2026-11-02T01:00:00|2026-11-02T02:00:00|2026-11-02T03:00:00|{}1|n1|gres/gpu=8|c\n"
    "8|b|FAILED|2026-11-02T01:00:00|2026-11-02T02:00:00|2026-11-02T04:00:00|{}1|n2|gres/gpu=8|c\n"
)
EVENTS = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|TRES\n"
    "c|n1|2026-11-02T03:00:00|2026-11-02T05:00:00|DOWN|Not responding|root|gres/gpu=8\n"
    "c|n2|2026-11-03T03:00:00|2026-11-03T05:00:00|DOWN|Not responding|root|gres/gpu=8\n"
)
MARKDOWN = (
    "| Start | Stop | What | Host |\n|---|---|---|---|\n"
    "| 2026-11-02 03:00 | 05:00 | PSU died | n1 |\n| 4 Nov 03:00 | 5 Nov 05:00 | riser | n2 |\n"
)
TABLE = "start,stop,host,component\n2026-11-02 03:00:00,2026-11-02 05:00:00,n1,PSU\n"
MAP = "rows: fault\ncolumns: {start: start, stop: stop, host: host, label: component}\ndefaults: {class: fail_stop}\n"
KERNEL = "Nov  2 03:0{}:07 n1 kernel: NVRM: Xid (PCI:0000:41:00): 94, pid=1, name=x\n"


def take(folder, name, text, **options):
    (folder / name).write_text(text)
    options.setdefault("year", 2026)
    result = import_files(
        [folder / name],
        ledger=folder / "l.db",
        format="table" if name.endswith(".csv") else None,
        options=Options(**options),
        clock=ManualClock(1_795_000_000_000_000),
    )
    return result.files[0].quality


def kept(folder):
    with read_store(folder / "l.db") as store:
        return list(store.events())


def coverages(folder):
    return [event.body["coverage"] for event in kept(folder) if "coverage" in event.body]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sacct.psv", SACCT.format("Restarts|", "0|", "0|")),
        ("sacct.psv", SACCT.format("", "", "")),
        ("events.psv", EVENTS),
        ("log.md", MARKDOWN),
        ("table.csv", TABLE),
        ("kern.log", KERNEL.format(1) + KERNEL.format(2)),
    ],
    ids=["sacct", "sacct without Restarts", "sacctmgr", "handkept", "table", "kernel"],
)
def test_another_zone_and_year_add_no_event_and_no_coverage_and_are_said(tmp_path, name, text):
    options = {}
    if name == "table.csv":
        (tmp_path / "map.yaml").write_text(MAP)
        options["column_map"] = tmp_path / "map.yaml"
    first = take(tmp_path, name, text, **options)
    before = [event.id for event in kept(tmp_path)]
    incidents = len(fold_incidents(kept(tmp_path)))
    assert first.moved_rows == 0

    again = take(tmp_path, name, text, zone="America/New_York", year=2025, **options)

    assert [event.id for event in kept(tmp_path)] == before
    assert len(fold_incidents(kept(tmp_path))) == incidents
    assert again.moved_rows == first.accepted
    assert any("known with other times: nothing was changed" in note for note in again.notes)


def test_a_longer_export_of_the_same_log_extends_the_coverage(tmp_path):
    take(tmp_path, "kern.log", KERNEL.format(1))
    longer = take(tmp_path, "kern.log", KERNEL.format(1) + KERNEL.format(5))
    begins_ends = [(c["begin_us"], c["end_us"]) for c in coverages(tmp_path)]
    assert begins_ends[1] == (begins_ends[0][0], begins_ends[0][0] + 4 * 60_000_000)
    assert longer.moved_rows == 0


def test_one_end_that_was_mended_does_not_stop_the_coverage_of_a_longer_table(tmp_path):
    (tmp_path / "map.yaml").write_text(MAP)
    take(tmp_path, "t.csv", TABLE, column_map=tmp_path / "map.yaml")
    longer = TABLE.replace("02 05:", "02 06:") + "2026-11-09 03:00:00,2026-11-09 05:00:00,n1,PSU\n"
    told = take(tmp_path, "t.csv", longer, column_map=tmp_path / "map.yaml")
    assert told.moved_rows == 1
    assert len(coverages(tmp_path)) == 2


def test_an_attempt_is_named_by_its_job_and_number_whatever_form_its_times_have(tmp_path):
    take(tmp_path, "a.psv", SACCT.format("Restarts|", "0|", "0|"), zone="America/New_York")
    count = len(kept(tmp_path))
    seconds = SACCT.format("Restarts|", "0|", "0|")
    for text, epoch in (
        ("2026-11-02T01:00:00", "1793599200"),  # New York is five hours behind UTC in November
        ("2026-11-02T02:00:00", "1793602800"),
        ("2026-11-02T03:00:00", "1793606400"),
        ("2026-11-02T04:00:00", "1793610000"),
    ):
        seconds = seconds.replace(text, epoch)
    told = take(tmp_path, "b.psv", seconds)
    assert (told.events_new, told.moved_rows, len(kept(tmp_path))) == (0, 0, count)


def test_a_local_time_that_comes_twice_or_never_says_why_it_is_inferred():
    said: list[str] = []
    times = Times(zone="Europe/Berlin", on_doubt=said.append)
    assert times.parse("2026-10-25 02:30:00").is_inferred
    assert times.parse("2026-03-29 02:30:00").is_inferred
    assert not times.parse("2026-10-25 03:30:00").is_inferred
    assert [sentence.split(":")[0].split(",")[0] for sentence in said] == [
        "a local time that comes twice when the clocks go back",
        "a local time that does not exist",
    ]


def test_the_table_of_an_import_carries_the_reason(tmp_path):
    told = take(
        tmp_path, "log.md", MARKDOWN.replace("11-02 03:00", "10-25 02:30"), zone="Europe/Berlin"
    )
    assert any("comes twice when the clocks go back" in note for note in told.notes)
