"""torchrun's error files, events and consoles. What the samples hold is counted by hand."""

from __future__ import annotations

import json

import pytest

from lastgood.ledger.event import in_effect
from lastgood.ledger.grouping import by_gap
from lastgood.ledger.importers.elastic import IMPORTER
from lastgood.ledger.importers.importer import Head
from lastgood.ledger.incident import fold_incidents
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

S = 1_000_000
GLOG = SAMPLES / "torchrun_glog.log"
RULE = "=" * 60


def block(*failures: str, root: str, head: str = "") -> str:
    others = "\n".join(failures) or "  <NO_OTHER_FAILURES>"
    return (
        f"{head}{RULE}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{others}\n{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{root}\n{RULE}\n"
    )


def failure(
    rank: int, exit_code: int, at: int = 5, pid: int = 100, text: str = "x: y", host: str = "gpu-7"
) -> str:
    return (
        f"[{rank}]:\n  time      : 2026-11-02_03:14:{at:02d}\n  host      : {host}\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n  exitcode  : {exit_code} (pid: {pid})\n"
        f"  error_file: <N/A>\n  traceback : {text}"
    )


def told(imported) -> list[tuple]:
    events = in_effect(imported.events)
    return [(e.ranks, e.role, e.class_, e.body.get("code")) for e in events]


# --- the console --------------------------------------------------------------------------------------


def test_the_summary_says_more_than_the_line_before_it_and_takes_its_place(tmp_path):
    imported = import_one(tmp_path, GLOG, zone="UTC", year=2026)
    assert set(told(imported)) == {
        ((3,), "cascade", "fail_stop", "exception/watchdog"),
        ((13,), "initiating", "fail_stop", "signal/9"),
        ((8,), "teardown", None, "signal/15"),
        ((), "teardown", None, None),
        ((9,), "cascade", "fail_stop", "exception/remote process exited"),
    }
    assert (imported.quality.read, imported.quality.accepted) == (41, 4)
    assert imported.quality.inferred_times == 0


def test_one_failure_with_all_that_follows_it_is_one_incident(tmp_path):
    events = import_one(tmp_path, GLOG, zone="UTC", year=2026, host="gpu-0007").events
    (incident,) = fold_incidents(events, by_gap(60 * S))
    assert (incident.class_, incident.symptom) == ("fail_stop", "process_exit")
    assert incident.ranks == (13,)


def test_the_first_observed_failure_is_a_hypothesis_about_the_order(tmp_path):
    events = in_effect(import_one(tmp_path, GLOG, zone="UTC", year=2026).events)
    (root,) = [e for e in events if e.role == "initiating"]
    assert root.body["role_status"] == "hypothesis"
    assert root.body["first_observed"] is True
    assert root.cause_status == "unknown"
    assert [(d.kind, d.id) for d in root.domain] == [("host", "gpu-0007"), ("rank", "13")]


def test_failures_of_one_second_have_no_order(tmp_path):
    text = block(failure(1, 1, at=5), failure(2, 1, at=6, pid=2), root=failure(0, 1, at=5, pid=3))
    roles = {e.ranks[0]: e.role for e in import_text(tmp_path, text).events}
    assert roles == {0: "initiating", 1: "unknown", 2: "cascade"}


def test_a_signal_15_is_teardown_unless_it_is_what_came_first(tmp_path):
    first = import_text(tmp_path, block(root=failure(0, -15)), ledger="a")
    assert told(first) == [((0,), "initiating", "fail_stop", "signal/15 first")]
    asked = (
        "W1102 03:14:00.000000 1 torch/distributed/elastic/agent/server/api.py:719] "
        "Received 15 death signal, shutting down workers\n"
    )
    after = import_text(
        tmp_path, block(root=failure(0, -15), head=asked), ledger="b", zone="UTC", year=2026
    )
    assert told(after)[1] == ((0,), "teardown", None, "signal/15")
    assert after.incidents == []


@pytest.mark.parametrize(
    ("name", "t_us", "is_inferred"),
    [
        ("torchrun_glog.log", 1_793_589_247_120_000, False),
        ("torchrun_dated.log", 1_793_589_247_120_000, False),
    ],
)
def test_a_line_has_its_time_when_zone_and_year_are_told(tmp_path, name, t_us, is_inferred):
    events = import_one(tmp_path, SAMPLES / name, zone="UTC", year=2026).events
    (line,) = [e for e in events if e.role == "initiating" and not e.ranks]
    assert (line.t_occurred_us, line.clock is not None) == (t_us, is_inferred)


def test_what_the_console_does_not_say_about_a_time_is_inferred(tmp_path):
    imported = import_one(tmp_path, SAMPLES / "torchrun_dated.log")
    assert {e.clock.source for e in imported.events} == {"inferred"}
    oldest = import_one(tmp_path, SAMPLES / "torchrun_old.log", ledger="old")
    (event,) = oldest.events
    assert event.t_occurred_us == oldest_time_us()
    assert event.clock.source == "inferred"


def oldest_time_us() -> int:
    return (SAMPLES / "torchrun_old.log").stat().st_mtime_ns // 1000


def test_a_summary_that_is_cut_off_is_told_as_far_as_it_goes(tmp_path):
    text = block(root=failure(4, 1)).rpartition(RULE)[0]
    imported = import_text(tmp_path, text)
    assert [e.ranks for e in imported.events] == [(4,)]
    assert any("cut off" in note for note in imported.quality.notes)


def test_a_cut_summary_does_not_swallow_the_next_failure(tmp_path):
    line = "[2026-11-02 03:20:00,000] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 7) local_rank: 1 (pid: 9) of binary: x\n"  # fmt: skip
    text = block(root=failure(4, 1)).rpartition(RULE)[0] + line
    assert [e.body["exit_code"] for e in import_text(tmp_path, text).events] == [1, 7]


def test_summaries_of_several_ranks_that_a_launcher_mixed_are_told_apart(tmp_path):
    one = block(root=failure(1, 1, host="a")).splitlines()
    two = block(root=failure(2, 3, host="b")).splitlines()
    mixed = [
        line
        for pair in zip([f"0: {x}" for x in one], [f"1: {x}" for x in two], strict=True)
        for line in pair
    ]
    events = import_text(tmp_path, "\n".join(mixed)).events
    assert {(e.ranks, e.domain[0].id, e.body["exit_code"]) for e in events} == {
        ((1,), "a", 1),
        ((2,), "b", 3),
    }


def test_a_failure_without_a_time_is_a_known_loss(tmp_path):
    text = block(failure(1, 1).replace("2026-11-02_03:14:05", "never"), root=failure(0, 1, pid=3))
    quality = import_text(tmp_path, text).quality
    assert sum(quality.known_losses.values()) == 1
    assert quality.failures == 1


def test_the_words_of_the_exception_give_symptom_and_cause(tmp_path):
    text = block(
        root=failure(0, 1, text="Traceback (most recent call last):\n  RuntimeError: CUDA error: uncorrectable ECC error encountered")
    )  # fmt: skip
    (event,) = import_text(tmp_path, text).events
    assert (event.symptom, event.cause, event.cause_status) == (
        "memory_error",
        "gpu.memory",
        "supported",
    )


# --- error files --------------------------------------------------------------------------------------


def error_file(message: str = "ValueError: bad", stamp: object = "1793601290") -> str:
    return json.dumps(
        {
            "message": {
                "message": message,
                "extraInfo": {"py_callstack": "Traceback", "timestamp": stamp},
            }
        }
    )


def test_an_error_file_has_its_time_in_seconds_as_text(tmp_path):
    (event,) = import_one(tmp_path, SAMPLES / "elastic_error.json", host="gpu-0007").events
    assert event.t_occurred_us == 1_793_601_290 * S
    assert (event.symptom, event.cause) == ("memory_error", "gpu.memory")
    assert event.body["exit_code"] == 1


def test_the_parents_copy_of_an_error_file_adds_nothing(tmp_path):
    folder = tmp_path / "none_x" / "attempt_2" / "5"
    folder.mkdir(parents=True)
    child = import_text(
        tmp_path, error_file(), name=str(folder.relative_to(tmp_path) / "error.json")
    )
    (event,) = child.events
    assert (event.attempt, event.body["local_rank"]) == (3, 5)
    copied = json.loads(error_file())
    copied["message"]["errorCode"] = 1
    parent = import_text(tmp_path, json.dumps(copied), name="error.json")
    assert parent.quality.events_merged >= 1
    assert len(parent.events) == 1


def test_the_second_shape_of_error_files_is_read(tmp_path):
    text = json.dumps({"message": "RuntimeError: NCCL error", "timestamp": 1793601290})
    (event,) = import_text(tmp_path, text, name="error.json").events
    assert (event.symptom, event.t_occurred_us) == ("group_error", 1_793_601_290 * S)


def test_an_error_file_without_a_time_takes_that_of_the_file(tmp_path):
    imported = import_text(tmp_path, error_file(stamp=None), name="error.json")
    (event,) = imported.events
    assert event.clock.source == "inferred"
    assert abs(event.t_occurred_us - (tmp_path / "error.json").stat().st_mtime_ns // 1000) < S


@pytest.mark.parametrize("text", ['{"message": 3, "timestamp": "1793601290"}', '{"message": {}, "timestamp": 12}', error_file(stamp="soon")])  # fmt: skip
def test_error_files_that_say_nothing_are_rejected(tmp_path, text):
    imported = import_text(tmp_path, text, name="error.json", format="elastic")
    is_rejected = imported.quality.rejected_count == 1
    assert is_rejected or imported.events[0].body["message"] == ""


# --- events of the agent ------------------------------------------------------------------------------


def test_events_of_the_agent_tell_failed_from_killed(tmp_path):
    imported = import_one(tmp_path, SAMPLES / "elastic_events.jsonl")
    quality = imported.quality
    assert (quality.read, quality.accepted, quality.ignored_count, quality.rejected_count) == (
        7,
        4,
        2,
        1,
    )
    found = {(e.ranks, e.role, e.symptom, e.attempt) for e in imported.events}
    assert found == {
        ((13,), "unknown", "process_exit", 2),
        ((8,), "teardown", None, 2),
        ((), "unknown", "group_error", None),
    }
    assert {e.run for e in imported.events} == {"pretrain"}


def test_an_event_without_a_stamp_takes_that_of_the_error_inside(tmp_path):
    events = import_one(tmp_path, SAMPLES / "elastic_events.jsonl").events
    (agent,) = [e for e in events if e.body.get("source") == "AGENT"]
    assert (agent.t_occurred_us, agent.clock) == (1_793_601_295 * S, None)


# --- which files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "least"),
    [
        ("log", "E1102 03:14:07.1 1 torch/distributed/elastic/multiprocessing/api.py:869] failed", 80),
        ("log", "WARNING:torch.distributed.elastic.multiprocessing.api:Sending", 80),
        ("log", "W1102 torch/distributed/run.py:793] ***", 40),
        ("error.json", error_file(), 90),
        ("error.json", '{"message": "x", "timestamp": 1}', 60),
    ],
)  # fmt: skip
def test_the_format_knows_its_files(name, text, least):
    assert IMPORTER.recognises(Head(text.encode(), text, name)) >= least


def test_other_files_are_not_taken():
    for text in ("NVRM: Xid (PCI:0000:41:00): 94", '{"jobs": []}', "a,b\n1,2"):
        assert IMPORTER.recognises(Head(text.encode(), text, "x")) == 0
