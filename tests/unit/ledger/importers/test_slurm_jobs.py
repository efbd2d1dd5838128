"""Jobs out of Slurm's accounting. The counts of the samples are counted by hand in the samples."""

from __future__ import annotations

import json

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.event import in_effect
from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.importers.importer import Head
from lastgood.ledger.importers.mapping import load_mapping, remap
from lastgood.ledger.importers.slurm_attempt import split_exit, split_state
from lastgood.ledger.importers.slurm_jobs import DOCUMENTED, IMPORTER
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.walltime import partition
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text

REQUEUE = SAMPLES / "sacct_requeue.psv"
S = 1_000_000
HEADER = (
    "JobIDRaw|JobName|State|ExitCode|Submit|Start|End|Restarts|NNodes|NodeList|FailedNode|AllocTRES"
)


def job(number: int = 1, **fields: str) -> str:
    row = {
        "JobIDRaw": str(number), "JobName": "train", "State": "COMPLETED", "ExitCode": "0:0", "Submit": "1793600000",
        "Start": "1793600100", "End": "1793600200", "Restarts": "0", "NNodes": "1", "NodeList": "gpu-0001",
        "FailedNode": "", "AllocTRES": "gres/gpu=8",
    }  # fmt: skip
    return "|".join((row | fields)[name] for name in HEADER.split("|"))


def table(*rows: str) -> str:
    return "\n".join((HEADER, *rows, ""))


def kinds(events) -> list[str]:
    return [event.kind for event in events]


def test_every_row_of_the_sample_is_accounted_for(tmp_path):
    quality = import_one(tmp_path, REQUEUE).quality
    assert (quality.read, quality.accepted) == (11, 8)
    assert dict(quality.ignored) == {
        "a step of a job, which has a row of its own": 1,
        "never started (CANCELLED)": 1,
    }
    assert list(quality.rejected) == ["the row is cut: 4 of 16 fields"]
    assert quality.rejected["the row is cut: 4 of 16 fields"].examples[0].locator.endswith("#9")
    assert (quality.clock_corrections, quality.clock_corrected_us) == (1, 60 * S)


def test_a_second_import_and_an_overlapping_one_add_nothing(tmp_path):
    first = import_one(tmp_path, REQUEUE)
    again = import_one(tmp_path, REQUEUE)
    assert (again.quality.events_new, again.quality.events_merged) == (
        0,
        first.quality.events_new,
    )
    lines = REQUEUE.read_text().splitlines()
    part = import_text(tmp_path, "\n".join([lines[0], *lines[3:6]]), name="part.psv")
    # Only the coverage of the shorter file is new; it ends with other rows.
    assert part.quality.events_new == 1


def test_attempts_of_one_job_are_one_run_and_its_queue_is_down_time(tmp_path):
    events = import_one(tmp_path, REQUEUE).events
    as_of_us = 1_793_607_600 * S
    wall = partition(events, run="slurm/5123", as_of_us=as_of_us)
    # Handed in at ..3900, ran 4100-1300, 2200-5800 and from 6400 on (by hand from the sample).
    waited = 200 + 900 + 600
    assert {str(k): v // S for k, v in wall.totals_us.items() if v} == {
        "down.schedule": waited,
        "unknown": 7200 + 3600 + 1200,
    }
    assert (wall.start_us, wall.end_us) == (1_793_593_900 * S, as_of_us)


def test_the_end_of_a_run_is_taken_back_when_a_later_attempt_shows_up(tmp_path):
    def ends(events):
        return [e for e in in_effect(events) if e.kind == "run.end" and e.run == "slurm/5123"]

    lines = REQUEUE.read_text().splitlines()
    monday = import_text(tmp_path, "\n".join(lines[:2]), name="a.psv")
    assert [e.t_occurred_us for e in ends(monday.events)] == [1_793_601_300 * S]
    tuesday = import_text(tmp_path, "\n".join(lines[:4]), name="b.psv")
    assert ends(tuesday.events) == []
    assert not [i for i in tuesday.incidents if i.run == "slurm/5123" and i.is_open]


def test_rows_with_the_newest_attempt_first_give_the_same_end_and_incidents(tmp_path):
    lines = REQUEUE.read_text().splitlines()[:4]
    forward = import_text(tmp_path, "\n".join(lines), name="a.psv", ledger="a")
    backward = import_text(
        tmp_path, "\n".join([lines[0], *reversed(lines[1:])]), name="b.psv", ledger="b"
    )

    def told(imported):
        return [
            (i.opened_us, i.closed_us, i.class_, i.symptom, i.domain) for i in imported.incidents
        ]

    assert told(forward) == told(backward)
    assert len(told(forward)) == 2
    assert not [e for e in in_effect(backward.events) if e.kind == "run.end"]


def test_classes_come_from_the_table_and_cancelled_or_completed_jobs_are_no_failures(tmp_path):
    incidents = import_one(tmp_path, REQUEUE).incidents
    assert sorted((i.run, i.class_, i.symptom, i.cause) for i in incidents) == sorted(
        [
            ("slurm/5123", "fail_stop", "host_unreachable", "unknown"),
            ("slurm/5123", "planned", "preemption_notice", "software.scheduler"),
            ("slurm/5125", "fail_stop", "out_of_memory", "software.user"),
            ("slurm/5129", "planned", None, "operator"),
            ("slurm/5130", None, None, "unknown"),
        ],
        key=str,
    )


def test_only_a_node_that_slurm_blames_is_a_failed_host(tmp_path):
    rows = table(
        job(1, State="NODE_FAIL", NNodes="2", NodeList="gpu-[0001-0002]", FailedNode="gpu-0002"),
        job(2, State="NODE_FAIL"),
        job(3, State="NODE_FAIL", NNodes="2", NodeList="gpu-[0001-0002]"),
        job(4, State="FAILED", ExitCode="1:0"),
    )
    incidents = import_text(tmp_path, rows).incidents
    hosts = {i.run: tuple(d.id for d in i.domain) for i in incidents}
    assert hosts == {
        "slurm/1": ("gpu-0002",),
        "slurm/2": ("gpu-0001",),
        "slurm/3": (),
        "slurm/4": (),
    }


def test_exposure_is_devices_times_time_of_each_attempt(tmp_path):
    rows = table(job(1), job(2, AllocTRES="cpu=4"), job(3, Start="1793600100", End="1793600100"))
    events = import_text(tmp_path, rows).events
    exposure = measure_exposure(events, as_of_us=1_793_700_000 * S)
    assert (exposure.device_us, exposure.inferred_device_us) == (8 * 100 * S, 0)


def test_exposure_of_nodes_needs_what_a_node_has(tmp_path):
    rows = table(job(1, AllocTRES="", NNodes="3"))
    unknown = import_text(tmp_path, rows, ledger="a")
    assert not [e for e in unknown.events if e.kind.startswith("exposure")]
    assert any("exposure is unknown" in note for note in unknown.quality.notes)
    told = import_text(tmp_path, rows, ledger="b", devices_per_node=8)
    assert {e.devices for e in told.events if e.kind.startswith("exposure")} == {24}


def test_local_times_are_inferred_without_a_zone_and_known_with_one(tmp_path):
    row = job(1, Submit="2026-11-02T03:00:00", Start="2026-11-02T03:14:07", End="Unknown", State="RUNNING")  # fmt: skip
    told = import_text(tmp_path, table(row), ledger="a", zone="+01:00")
    start = next(e for e in told.events if e.kind == "attempt.start")
    assert (start.t_occurred_us, start.clock.source) == (1_793_585_647 * S, "server")
    assumed = import_text(tmp_path, table(row), ledger="b")
    start = next(e for e in assumed.events if e.kind == "attempt.start")
    assert (start.t_occurred_us, start.clock.source) == (1_793_589_247 * S, "inferred")
    assert assumed.quality.inferred_times == len(assumed.events)


def test_the_documented_order_needs_no_header_and_any_delimiter_does(tmp_path):
    row = dict.fromkeys(DOCUMENTED, "") | {
        "jobidraw": "5123", "jobname": "a|b", "state": "FAILED", "exitcode": "1:0", "derivedexitcode": "0:0",
        "submit": "1793594000", "eligible": "1793594001", "start": "1793594100", "end": "1793601300",
    }  # fmt: skip
    text = "\x1f".join(row.values())
    assert IMPORTER.recognises(Head(text.encode(), text, "x")) >= 80
    assert kinds(import_text(tmp_path, text).events) == [
        "run.start",
        "attempt.start",
        "attempt.end",
        "run.end",
        "incident.open",
    ]


def test_json_of_two_generations_gives_the_same_kinds_of_events(tmp_path):
    imported = import_one(tmp_path, SAMPLES / "sacct.json")
    quality = imported.quality
    assert (quality.read, quality.accepted, quality.rejected_count) == (5, 2, 2)
    assert [(i.run, i.symptom, [d.id for d in i.domain]) for i in imported.incidents] == [
        ("slurm/tyl/6002", "process_exit", []),
        ("slurm/tyl/6001", "host_unreachable", ["gpu-0002"]),
    ]
    assert {e.devices for e in imported.events if e.kind == "exposure.join"} == {16}
    body = next(e.body for e in imported.events if e.kind == "run.end" and e.run.endswith("6002"))
    assert body == {"exit_code": 2, "result": "FAILED"}


def test_text_and_json_of_one_attempt_are_one_event_each(tmp_path):
    row = job(6002, State="FAILED", ExitCode="2:0", Submit="1793593900", Start="1793594100", End="1793594200")  # fmt: skip
    import_one(tmp_path, SAMPLES / "sacct.json")
    merged = import_text(tmp_path, table(row), cluster="tyl")
    # Only the JSON does not say the allocation, so the two records of exposure are new, and the coverage.
    assert (merged.quality.events_new, merged.quality.events_merged) == (3, 5)


def test_jobs_may_be_told_to_be_one_run(tmp_path):
    rows = table(
        job(1, State="TIMEOUT"), job(2, Submit="1793600150", Start="1793600300", End="1793600400")
    )
    events = import_text(tmp_path, rows, run="pretrain").events
    wall = partition(events, run="pretrain", as_of_us=1_793_700_000 * S)
    assert {str(k): v // S for k, v in wall.totals_us.items() if v} == {
        "down.schedule": 100 + 100,
        "unknown": 100 + 100,
    }


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1001", ("CANCELLED", "1001")),
        ("COMPLETED+", ("COMPLETED", None)),
        ("NODE_FAIL", ("NODE_FAIL", None)),
    ],
)
def test_a_state_is_one_word_whatever_stands_behind_it(text, state):
    assert split_state(text) == state


def test_what_is_no_state_or_exit_code_is_refused():
    with pytest.raises(ValueError, match="no job state"):
        split_state("")
    with pytest.raises(ValueError, match="invalid literal"):
        split_exit("x:0")
    assert (split_exit("0:9"), split_exit("")) == ((0, 9), (None, None))


def test_rows_that_are_wrong_are_named_with_their_reason(tmp_path):
    rows = table(
        job(1, State="lost"), job(2, ExitCode="one"), job(3, Start="32 May"),
        job(5).replace("5|", "five|", 1), job(6),
    )  # fmt: skip
    quality = import_text(tmp_path, rows, name="x.psv").quality
    assert {reason: (r.count, r.examples[0].locator) for reason, r in quality.rejected.items()} == {
        "no job state": (1, "x.psv#2"),
        "no exit code": (1, "x.psv#3"),
        "not a time": (1, "x.psv#4"),
        "no job id": (1, "x.psv#5"),
    }
    with pytest.raises(BadInput, match="no job state"):
        import_text(tmp_path, rows, ledger="strict", is_strict=True)


@pytest.mark.parametrize(
    "tres",
    ["cpu=4,gres/gpu=-8", "gres/gpu=9999999999", "gres/gpu=many", "gres/gpu:h100=8.5", "gres/gpu="],
)
def test_a_count_of_accelerators_that_cannot_be_costs_the_exposure_and_not_the_failure(
    tmp_path, tres
):
    rows = table(job(1), job(2, State="NODE_FAIL", AllocTRES=tres))
    read = import_text(tmp_path, rows, name="x.psv")
    assert (read.quality.accepted, len(read.incidents)) == (2, 1)
    assert list(read.quality.unusable.values()) == [1]
    assert any("x.psv#3" in note for note in read.quality.notes)
    assert [e.devices for e in read.events if e.kind == "exposure.join"] == [8]


def test_a_count_in_json_that_cannot_be_costs_the_exposure_too(tmp_path):
    sample = (SAMPLES / "sacct.json").read_text()
    read = import_text(tmp_path, sample.replace('"count": 16', '"count": -16'), name="x.json")
    assert sum(read.quality.unusable.values()) == 1
    assert (
        read.quality.rejected_count
        == import_one(tmp_path, SAMPLES / "sacct.json").quality.rejected_count
    )
    assert all((e.devices or 0) >= 0 for e in read.events)


def test_bytes_that_are_no_utf8_cost_a_character_and_not_a_row(tmp_path):
    data = table(job(1, JobName="caf?")).encode().replace(b"caf?", b"caf\xe9")
    imported = import_text(tmp_path, data)
    assert (imported.quality.accepted, imported.quality.damaged_lines) == (1, 1)
    assert next(b for b in imported.bodies if "name" in b)["name"] == "caf\ufffd"


def test_a_start_that_is_only_expected_is_no_start(tmp_path):
    imported = import_text(tmp_path, table(job(1, State="PENDING", End="Unknown")))
    assert imported.events == []
    assert dict(imported.quality.ignored) == {"never started (PENDING)": 1}


def test_an_attempt_of_no_length_has_no_exposure(tmp_path):
    events = import_text(tmp_path, table(job(1, End="1793600100"))).events
    assert not [e for e in events if e.kind.startswith("exposure")]


def test_a_job_whose_allocation_lists_no_accelerator_had_none(tmp_path):
    events = import_text(tmp_path, table(job(1, AllocTRES="cpu=4")), devices_per_node=8).events
    assert [e.devices for e in events if e.kind == "attempt.start"] == [0]
    assert not [e for e in events if e.kind.startswith("exposure")]


def test_a_list_of_failed_hosts_that_cannot_be_rejects_its_row(tmp_path):
    quality = import_text(tmp_path, table(job(1, State="NODE_FAIL", FailedNode="gpu-[1-"))).quality
    assert list(quality.rejected) == ["a list of hosts that cannot be"]


def test_a_job_that_runs_is_covered_up_to_the_export(tmp_path):
    file = import_one(tmp_path, REQUEUE).file
    assert file.coverage_end_us == 1_793_607_600 * S  # 1,200 s after the start of attempt 3


def test_two_exports_in_one_file_are_one(tmp_path):
    header, *rows = REQUEUE.read_text().splitlines()
    without = [row.split("|") for row in (header, *rows[:3])]
    rows = ["|".join(fields[:10] + fields[11:]) for fields in without]  # no Restarts
    zero = rows[1].replace("5123", "5200").replace("1793601300", "1793594100")
    once = import_text(tmp_path, "\n".join([*rows, zero]), ledger="once")
    twice = import_text(tmp_path, "\n".join([*rows, zero, *rows, zero]), ledger="twice")
    assert sorted(e.id for e in twice.events) == sorted(e.id for e in once.events)
    assert {e.attempt for e in once.events if e.run == "slurm/5123"} == {1, 2, 3}


def test_an_attempt_that_comes_twice_is_counted_once(tmp_path):
    rows = [row.split("|") for row in REQUEUE.read_text().splitlines()[:3]]
    header, one, two = ["|".join(fields[:10] + fields[11:]) for fields in rows]  # no Restarts
    events = import_text(tmp_path, f"{header}\n{one}\n{one}\n{two}").events
    assert {(e.attempt, e.t_occurred_us) for e in events if e.kind == "attempt.start"} == {
        (1, 1_793_594_100 * S),
        (2, 1_793_602_200 * S),
    }


@pytest.mark.parametrize("job_id", ["5123", "5223", "5323", "5423", "5523"])
def test_a_later_export_without_the_first_attempt_still_shows_the_wait(tmp_path, job_id):
    """Several jobs, because events of one moment are ordered by their ids."""
    header, one, two, *_ = REQUEUE.read_text().replace("5123", job_id).splitlines()
    import_text(tmp_path, f"{header}\n{one}\n", name="monday.psv")
    events = import_text(tmp_path, f"{header}\n{two}\n", name="tuesday.psv").events
    wall = partition(events, run=f"slurm/{job_id}", as_of_us=1_793_700_000 * S)
    assert {str(k): v // S for k, v in wall.totals_us.items() if v} == {
        "down.schedule": 200 + 900,
        "unknown": 7200 + 3600,
    }
    assert wall.inferred_us == 0


def test_a_time_limit_counts_as_a_failure_when_the_reader_says_so(tmp_path):
    imported = import_text(tmp_path, table(job(1, State="TIMEOUT")))
    assert [i.is_planned for i in imported.incidents] == [True]
    mine = tmp_path / "mine.json"
    rows = {"TIMEOUT": {"class": "fail_slow", "symptom": "hang", "cause": "unknown"}}
    mine.write_text(
        json.dumps({"mapping": "slurm-state", "version": "1-ours", "source": "us", "rows": rows})
    )
    (again,) = fold_incidents(remap(imported.events, load_mapping("slurm-state", mine)))
    assert (again.class_, again.symptom, again.is_planned) == ("fail_slow", "hang", False)
