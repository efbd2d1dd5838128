from __future__ import annotations

import pytest

from lastgood.ledger.importers.prometheus_text import parse_sample, scrape_time
from lastgood.ledger.importers.times import RowProblem, Times
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

SAMPLE = SAMPLES / "dcgm.prom"


def us(text: str) -> int:
    return Times().parse(text).t_us


def gauge(code: object, *, gpu: int = 0, stamp: object = "") -> str:
    return f'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="h1"}} {code} {stamp}\n'


def test_a_code_is_evidence_of_at_least_one_and_a_change_of_one_more(tmp_path):
    read = import_one(tmp_path, SAMPLE)
    seen = [(e.body["code"], e.domain[1].id, e.body["at_least"]) for e in read.events]

    assert read.file.format == "dcgm"
    # 94 lasts over two scrapes (one event), is hidden by 45, and comes back (one more).
    assert seen == [
        ("94", "gpu-0007/1", 1), ("79", "gpu-0007/0000:41:00", 1), ("45", "gpu-0007/1", 1), ("94", "gpu-0007/1", 1),
        ("31", "gpu-0007/2", 1),
    ]  # fmt: skip
    assert any("no rate can be made of it" in note for note in read.quality.notes)


def test_every_line_is_accounted_for(tmp_path):
    quality = import_one(tmp_path, SAMPLE).quality

    assert quality.read == len(SAMPLE.read_text().splitlines()) == 16
    assert quality.read == quality.accepted + quality.ignored_count
    assert dict(quality.ignored) == {
        "comment lines": 7, "devices without an Xid": 1, "samples of other metrics": 1,
        "the same last code as in the scrape before": 1, "windows without one more Xid": 1,
    }  # fmt: skip


def test_codes_go_through_the_table_of_xids(tmp_path):
    events = import_one(tmp_path, SAMPLE).events

    assert {e.body["code"]: e.cause for e in events}["79"] == "gpu.bus"
    assert {e.body["code"]: e.role for e in events}["45"] == "teardown"
    assert [e.versions for e in events if e.body["code"] == "79"] == [{"driver": "550.54.15"}]


def test_a_code_of_the_cleanup_alone_hides_another_and_stays_a_failure(tmp_path):
    read = import_text(
        tmp_path, "# 1793589240\n" + gauge(0) + "# 1793589255\n" + gauge(45), format="dcgm"
    )

    assert [(e.role, e.body["lone"]) for e in read.events] == [("unknown", True)]
    assert read.quality.unknown_causes == 1


def test_the_same_code_in_another_file_proves_nothing_new(tmp_path):
    import_text(tmp_path, gauge(94, stamp=1793589000000), name="a.prom")
    again = import_text(
        tmp_path, gauge(94, stamp=1793589999000) + gauge(13, stamp=1793599999000), name="b.prom"
    )

    assert [e.body["code"] for e in again.events] == ["94", "13"]


def test_the_value_of_a_sliding_count_is_not_a_count(tmp_path):
    (event,) = [e for e in import_one(tmp_path, SAMPLE).events if e.body["code"] == "31"]

    assert (event.body["at_least"], event.body["window_ms"]) == (1, 300_000)
    assert event.t_occurred_us == 1_793_589_480_000_000


def test_a_device_without_an_xid_is_a_count_of_zero_and_no_finding(tmp_path):
    read = import_text(tmp_path, 'DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="G"} 0\n', format="dcgm")

    assert (dict(read.quality.ignored), read.quality.rejected_count) == (
        {"devices without an Xid": 1},
        0,
    )


def test_instances_of_one_device_show_its_code_once(tmp_path):
    line = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="G",GPU_I_ID="{}",Hostname="h"}} 79\n'
    read = import_text(tmp_path, line.format(3) + line.format(4), format="dcgm")

    assert len(read.events) == 1


def test_a_window_seen_by_two_files_is_one_event_and_a_rise_is_another(tmp_path):
    def counted(value: int, stamp: int) -> str:
        return f'DCGM_EXP_XID_ERRORS_COUNT{{gpu="0",UUID="G",Hostname="h",window_size_in_ms="300000",xid="31"}} {value} {stamp}\n'

    import_text(tmp_path, counted(1, 1793589301000), name="a", format="dcgm")
    both = import_text(
        tmp_path, counted(1, 1793589316000) + counted(3, 1793589331000), name="b", format="dcgm"
    )

    assert len(both.events) == 2


@pytest.mark.parametrize(
    ("text", "moment", "is_inferred"),
    [
        (gauge(79, stamp=1793589240000), 1_793_589_240_000_000, False),
        (gauge(79, stamp="1793589240.5"), 1_793_589_240_500_000, False),
        ("# date: 2026-11-02 03:14:00 UTC\n" + gauge(79), us("2026-11-02T03:14:00Z"), False),
        ("# 1793589240\n" + gauge(79), 1_793_589_240_000_000, False),
    ],
)
def test_the_time_of_a_scrape_stands_behind_the_sample_or_above_it(
    tmp_path, text, moment, is_inferred
):
    (event,) = import_text(tmp_path, text).events

    assert (event.t_occurred_us, event.clock is not None) == (moment, is_inferred)


def test_without_any_time_the_files_own_time_is_taken_and_marked(tmp_path):
    (event,) = import_text(tmp_path, gauge(79)).events

    assert event.clock.source == "inferred"
    assert event.t_occurred_us == (tmp_path / "file.txt").stat().st_mtime_ns // 1000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0" 94', "labels that do not end"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0"}', "a sample without a value"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0"} many', "a value that is no number"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0"} NaN', "a value that is no Xid"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0"} 9223372036854775794', "a value that is no Xid"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="0"} 0.5', "a value that is no Xid"),
        ('DCGM_EXP_XID_ERRORS_COUNT{gpu="0"} 2', "a count of Xids without its Xid"),
        ('DCGM_EXP_XID_ERRORS_COUNT{gpu="0",xid="31"} 1e999', "a value that is no count"),
        ('DCGM_EXP_XID_ERRORS_COUNT{gpu="0",xid="31"} -Inf', "a value that is no count"),
        ("DCGM_FI_DEV_XID_ERRORS 94", "a sample without a device"),
    ],
)
def test_a_sample_that_cannot_be_read_is_rejected_with_its_reason(tmp_path, line, reason):
    read = import_text(tmp_path, f"{line}\n{gauge(79)}", format="dcgm")

    assert list(read.quality.rejected) == [reason]
    assert len(read.events) == 1


def test_labels_may_hold_quotes_commas_and_braces():
    sample = parse_sample(
        r'm{a="x\"y,}",b="back\\slash", c="line\nbreak",} 1.5e3 # {trace_id="q"} 1'
    )

    assert sample.labels == {"a": 'x"y,}', "b": "back\\slash", "c": "line\nbreak"}
    assert (sample.metric, sample.value, sample.stamp) == ("m", 1500.0, None)


def test_a_comment_that_documents_a_metric_is_no_time():
    assert scrape_time("# HELP m Seconds since 1793589240") is None
    assert scrape_time("# scraped at 2026-11-02T03:14:00Z") == "2026-11-02T03:14:00Z"
    with pytest.raises(RowProblem):
        parse_sample("{}")


def test_a_window_without_an_end_is_taken_for_the_usual_one(tmp_path):
    line = 'DCGM_EXP_XID_ERRORS_COUNT{gpu="0",Hostname="h1",window_size_in_ms="inf",xid="31"} 2'
    read = import_text(tmp_path, f"# scraped 2026-11-02T03:14:00Z\n{line}\n", format="dcgm")

    assert (len(read.events), dict(read.quality.rejected)) == (1, {})
