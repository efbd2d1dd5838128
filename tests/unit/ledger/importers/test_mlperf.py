"""MLPerf result lines in a console: intervals become sections, and the run has a start and an end."""

from __future__ import annotations

import json

import pytest

from lastgood.ledger.walltime import partition
from tests.unit.ledger.importers.import_cases import NOW_US, import_text

T0_MS = 1_790_000_000_000
US = 1_000_000


def line(kind: str, key: str, at: float, *, before: str = "", **metadata) -> str:
    said = {
        "namespace": "", "time_ms": T0_MS + round(at * 1000), "event_type": kind, "key": key, "value": None,
        "metadata": {"file": "/opt/train.py", "lineno": 12} | metadata,
    }  # fmt: skip
    return f"{before}:::MLLOG {json.dumps(said)}\n"


def begin(key: str, at: float, **metadata) -> str:
    return line("INTERVAL_START", f"{key}_start", at, **metadata)


def end(key: str, at: float, **metadata) -> str:
    return line("INTERVAL_END", f"{key}_stop", at, **metadata)


def between(key: str, first: float, last: float, **metadata) -> str:
    return begin(key, first, **metadata) + end(key, last, **metadata)


WHOLE = (
    line("POINT_IN_TIME", "submission_benchmark", 0)
    + between("init", 0, 60)
    + begin("run", 60)
    + between("block", 62, 300, epoch_num=1)
    + between("eval", 300, 330)
    + between("block", 330, 560, epoch_num=2)
    + end("run", 600, status="success")
)


def states(found, run: str = "mlperf/result") -> dict[str, float]:
    wall = partition(found.events, run=run, as_of_us=NOW_US)
    assert sum(wall.totals_us.values()) == wall.window_us
    return {str(s): t / US for s, t in wall.totals_us.items() if t}


def test_a_result_is_a_run_of_its_intervals(tmp_path):
    found = import_text(tmp_path, WHOLE, name="result.txt")
    assert found.file.format == "mlperf"
    assert states(found) == {"warmup": 60, "productive": 238 + 30 + 230, "unknown": 2 + 40}
    last = next(e for e in found.events if e.kind == "run.end")
    assert last.body["result"] == "success"
    numbers = [e.body["epoch_num"] for e in found.events if e.kind == "section.begin" and "epoch_num" in e.body]  # fmt: skip
    assert sorted(numbers) == [1, 2]
    assert found.quality.ignored == {"a point in time: a setting or a result": 1}
    assert found.quality.rejected_count == 0


def test_other_lines_of_the_console_do_not_matter(tmp_path):
    noise = "[1] NCCL INFO ...\n\x00\xff garbage\n"
    text = "".join(noise + f"[rank0]: {one}\n" for one in WHOLE.splitlines())
    found = import_text(tmp_path, text, name="result.txt")
    assert states(found) == states(import_text(tmp_path, WHOLE, name="result.txt", ledger="two"))


def test_text_behind_the_json_is_left_alone(tmp_path):
    text = WHOLE.replace("}}\n", "}} and more text}\n")
    assert states(import_text(tmp_path, text, name="result.txt"))["productive"] == 498


def test_importing_twice_changes_nothing(tmp_path):
    once = import_text(tmp_path, WHOLE, name="result.txt")
    again = import_text(tmp_path, WHOLE, name="result.txt")
    assert again.quality.events_new == 0
    assert len(again.events) == len(once.events)


def test_a_second_run_in_one_file_is_another_run(tmp_path):
    second = between("init", 1000, 1010) + begin("run", 1010) + between("epoch", 1010, 1100) + end("run", 1100)  # fmt: skip
    found = import_text(tmp_path, WHOLE + second, name="result.txt")
    assert states(found, "mlperf/result/2") == {"warmup": 10, "productive": 90}
    assert states(found)["productive"] == 498


def test_a_run_that_starts_again_before_it_stopped_was_restarted(tmp_path):
    text = (
        between("init", 0, 60) + begin("run", 60) + between("epoch", 60, 160) + begin("epoch", 160)
        + between("init", 400, 430) + begin("run", 430) + between("epoch", 430, 530) + end("run", 530)
    )  # fmt: skip
    found = import_text(tmp_path, text, name="result.txt")
    assert sum(e.kind == "attempt.start" for e in found.events) == 2
    # Nobody knows until when the interrupted epoch went on, nor that it was kept.
    wall = partition(found.events, run="mlperf/result", as_of_us=NOW_US)
    assert states(found) == {"warmup": 60 + 30, "productive": 100 + 100, "unknown": 240}
    assert wall.inferred_us == 240 * US
    assert found.quality.notes == []


def test_an_initialisation_that_begins_again_is_a_restart(tmp_path):
    text = begin("init", 0) + begin("staging", 5) + begin("init", 100) + end("init", 130)
    found = import_text(tmp_path, text, name="result.txt")
    assert [e.t_occurred_us // US % 1000 for e in found.events if e.kind == "attempt.start"] == [0, 100]  # fmt: skip


def test_a_run_that_was_killed_warms_up_no_longer_than_its_last_line(tmp_path):
    found = import_text(tmp_path, begin("init", 0) + begin("staging", 5), name="result.txt")
    assert states(found) == {"warmup": 5, "unknown": 600}


def test_a_run_that_was_killed_claims_nothing_behind_its_last_line(tmp_path):
    text = between("init", 0, 60) + begin("run", 60) + begin("epoch", 60) + between("eval", 90, 100)
    found = import_text(tmp_path, text, name="result.txt")
    assert states(found) == {"warmup": 60, "productive": 10, "unknown": 30 + 600}
    assert found.quality.notes == [
        "interval epoch was started and never ended",
        "interval run was started and never ended",
    ]


def test_an_unknown_interval_is_recorded_and_claims_nothing(tmp_path):
    text = begin("init", 0) + end("init", 10) + begin("run", 10) + between("coffee", 10, 20) + end("run", 20)  # fmt: skip
    assert states(import_text(tmp_path, text, name="result.txt")) == {"warmup": 10, "unknown": 10}


def test_the_same_line_from_another_process_counts_once(tmp_path):
    text = "".join(
        one + "\n" + one.replace('"lineno": 12', '"lineno": 13') + "\n"
        for one in WHOLE.splitlines()
    )
    found = import_text(tmp_path, text, name="result.txt")
    assert found.quality.ignored["another process says the same"] == 10
    assert found.quality.rejected_count == 0
    assert states(found)["productive"] == 498


def test_intervals_that_meet_in_one_second_do_not_swallow_each_other(tmp_path):
    blocks = "".join(between("block", 10 * n, 10 * n + 10) for n in range(1, 31))
    text = between("init", 0, 10) + begin("run", 10) + blocks + between("eval", 310, 310) + end("run", 320)  # fmt: skip
    assert states(import_text(tmp_path, text, name="result.txt")) == {
        "warmup": 10, "productive": 300, "unknown": 10,
    }  # fmt: skip


def test_the_run_may_be_named_by_the_person(tmp_path):
    found = import_text(tmp_path, WHOLE, name="result.txt", run="bert")
    assert {event.run for event in found.events} == {"bert"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (":::MLLOG {oops\n", "what follows the mark is no JSON"),
        (":::MLLOG [1]\n", "what follows the mark is no object"),
        (line("INTERVAL_MIDDLE", "epoch_start", 70), "event_type is none of MLPerf's"),
        (line("INTERVAL_START", "", 70), "key is missing"),
        (line("INTERVAL_START", "epoch_start", 70).replace(str(T0_MS + 70_000), '"noon"'), "time_ms is no number"),
        (line("INTERVAL_START", "epoch_start", 70).replace(str(T0_MS + 70_000), "7"), "time_ms is no time between 1990 and 2100"),
        (line("INTERVAL_START", "epoch_start", 70).replace(str(T0_MS + 70_000), "1e999"), "time_ms is no number"),
        (line("INTERVAL_START", "k" * 81, 70), "key is too long for a name"),
        (end("nothing", 70), "an interval ends that was not started"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_costs_itself_only(tmp_path, text, reason):
    head, mark, tail = WHOLE.partition(begin("block", 62, epoch_num=1))
    found = import_text(tmp_path, head + text + mark + tail, name="result.txt")
    assert list(found.quality.rejected) == [reason]
    assert states(found)["productive"] == 498
    q = found.quality
    assert q.read == q.accepted + q.ignored_count + q.rejected_count


def test_an_interval_before_any_start_of_a_run_is_rejected(tmp_path):
    found = import_text(tmp_path, between("epoch", 0, 10) + WHOLE, name="result.txt")
    assert list(found.quality.rejected) == [
        "an interval outside of a run: no init_start or run_start before it",
    ]
    assert states(found)["productive"] == 498


@pytest.mark.parametrize("kind", [["INTERVAL_START"], {"a": 1}, None, 5])
def test_an_event_type_that_is_no_text_is_rejected(tmp_path, kind):
    odd = line("INTERVAL_START", "epoch_start", 70).replace('"INTERVAL_START"', json.dumps(kind))
    found = import_text(tmp_path, WHOLE + odd, name="result.txt")
    assert list(found.quality.rejected) == ["event_type is none of MLPerf's"]
