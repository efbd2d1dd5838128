"""Flight-recorder dumps: where each rank stood, and which one the others waited for."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Head
from lastgood.ledger.importers.nccl_dump import rank_of, read_dump
from lastgood.ledger.importers.nccl_flight import IMPORTER
from lastgood.ledger.importers.nccl_group import compare_dumps
from lastgood.ledger.importers.times import RowProblem
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import open_store
from tests.unit.ledger.importers.import_cases import NOW_US, SAMPLES, import_text
from tests.unit.ledger.importers.nccl_made import START_S, made_dump


def suspects(dumps: dict[int, dict[str, Any]]) -> dict[int, str]:
    read = [read_dump(dump, name=f"trace_{rank}") for rank, dump in dumps.items()]
    return {s.rank: s.why for s in compare_dumps(read).suspects}


def fleet(*stands: tuple[int, int], **more) -> dict[int, dict[str, Any]]:
    ranks = list(range(len(stands)))
    return {r: made_dump(called=c, completed=d, ranks=ranks, **more) for r, (c, d) in enumerate(stands)}  # fmt: skip


def import_folder(folder: Path, paths: list[Path]):
    ledger = folder / "ledger.db"
    result = import_files(paths, ledger=ledger, clock=ManualClock(NOW_US))
    with open_store(ledger, create=False) as store:
        return result, [e for e in store.events() if "coverage" not in e.body]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("nccl_trace_rank_12.json", 12),
        ("trace_7", 7),
        ("node4_rank_31.pickle", 31),
        ("rank3_of_host_9", 3),
        ("dump.bin", None),
    ],
)
def test_the_rank_comes_from_the_file_name(name, rank):
    assert rank_of(name) == rank


def test_a_rank_that_has_not_called_what_the_others_called_is_behind():
    assert suspects(fleet((6, 5), (6, 5), (5, 5))) == {2: "behind"}


def test_how_far_a_rank_has_called_ahead_says_nothing():
    assert suspects(fleet((9, 5), (6, 5), (8, 5))) == {}


def test_the_others_wait_since_they_called_what_the_rank_behind_has_not():
    dumps = fleet((8, 5), (7, 5), (5, 5))
    read = [read_dump(dump, name=f"trace_{rank}") for rank, dump in dumps.items()]
    (suspect,) = compare_dumps(read).suspects
    assert (suspect.rank, suspect.why) == (2, "behind")
    assert suspect.waiting_us == (START_S + 6) * 1_000_000


def test_what_a_rank_has_not_called_was_not_complete_elsewhere():
    assert suspects(fleet((6, 6), (6, 6), (5, 5))) == {2: "behind"}


def test_a_device_that_has_not_begun_what_others_have_begun_is_suspect():
    dumps = fleet((6, 5), (6, 5), (6, 5))
    dumps[1]["entries"][-1]["state"] = "scheduled"
    assert suspects(dumps) == {1: "not started"}


def test_a_rank_that_saw_less_complete_is_suspect_when_all_have_called():
    assert suspects(fleet((6, 6), (6, 5), (6, 6))) == {1: "incomplete"}


def test_a_rank_without_a_dump_is_suspect_when_most_are_there():
    dumps = fleet((6, 5), (6, 5), (6, 5), (6, 5))
    del dumps[2]
    assert suspects(dumps) == {2: "no dump"}


def test_few_dumps_of_many_ranks_blame_nobody_for_being_away():
    dumps = fleet(*[(6, 5)] * 8)
    found = compare_dumps([read_dump(dumps[r], name=f"trace_{r}") for r in (0, 1)])
    assert found.suspects == ()
    assert found.notes[0] == "dumps of 2 of 8 ranks are here: a missing one says nothing"
    assert (found.expected, found.present) == (8, 2)


def test_a_rank_that_called_something_else_is_named():
    dumps = fleet((6, 5), (6, 5), (6, 5))
    dumps[1] = made_dump(called=6, completed=5, ranks=[0, 1, 2], op="nccl:broadcast")
    assert suspects(dumps) == {1: "other call"}


def test_ranks_at_the_same_place_give_no_suspect():
    assert suspects(fleet((6, 5), (6, 5))) == {}


def test_groups_are_compared_by_name_and_not_by_the_number_that_each_rank_gave_them():
    whole = fleet((9, 9), (9, 9))
    for rank, number in ((0, 1), (1, 2)):
        more = made_dump(called=4, completed=4 - rank, ranks=[0, 1], name="tp")
        for entry in more["entries"]:
            # As gloo writes them: only the status says how far the group came.
            entry |= {"pg_id": number, "state": "scheduled", "time_discovered_completed_ns": None}
        whole[rank]["entries"] += more["entries"]
        whole[rank]["pg_status"][str(number)] = more["pg_status"]["0"]
    assert suspects(whole) == {1: "incomplete"}


def test_point_to_point_calls_do_not_move_the_count_of_collectives():
    dumps = fleet((6, 5), (6, 5))
    extra = dict(dumps[0]["entries"][-1], collective_seq_id=99, is_p2p=True)
    dumps[0]["entries"].append(extra)
    assert suspects(dumps) == {}


def test_without_a_status_the_entries_tell_the_same():
    dumps = fleet((6, 5), (6, 5), (5, 5))
    for dump in dumps.values():
        del dump["pg_status"]
    assert suspects(dumps) == {2: "behind"}


def test_a_folder_of_pickles_and_json_is_one_incident_with_evidence(tmp_path):
    result, events = import_folder(tmp_path, [SAMPLES / "nccl"])
    assert [(f.format, f.quality.accepted) for f in result.files] == [("nccl_flight", 1)] * 3
    told = [e for e in events if e.role == "initiating"]
    assert [(e.ranks, e.symptom, e.body["why"]) for e in told] == [
        ((2,), "hang", "behind"),
        ((3,), "unknown", "no dump"),
    ]
    # The others called number 6 at start + 6 s, and that is since when they wait.
    assert told[0].t_occurred_us == (START_S + 6) * 1_000_000
    assert told[0].body["evidence"] == ["rank 2 has called up to 5, others up to 6"]
    (incident,) = fold_incidents(events)
    assert (incident.class_, incident.cause_status) == ("fail_slow", "unknown")
    assert incident.domain[0].id == "2"
    again, _ = import_folder(tmp_path, [SAMPLES / "nccl"])
    assert again.total.events_new == 0


def test_a_dump_alone_is_context_and_says_where_its_rank_stood(tmp_path):
    data = pickle.dumps(made_dump(called=3, completed=2, ranks=[0, 1]))
    imported = import_text(tmp_path, data, name="trace_1")
    (event,) = imported.events
    assert (event.role, event.ranks, event.class_) == ("context", (1,), None)
    assert event.body["groups"]["0"] == {
        "called": 3,
        "completed": 2,
        "last": {"name": "nccl:all_reduce", "state": "started"},
        "at": "step at /srv/train.py:40",
    }
    assert imported.incidents == []


def test_a_pickle_with_code_in_it_is_rejected_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    data = pickle.dumps({"entries": [Evil()], "pg_config": {}, "pg_status": {}})
    quality = import_text(tmp_path, data, name="trace_1", format="nccl_flight").quality
    assert list(quality.rejected) == ["a pickle that is more than plain data, or broken"]
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not a dump", "neither a pickle nor JSON"),
        (b'{"entries": 3}', "not a flight-recorder dump: no entries"),
        (b"[1]", "not a flight-recorder dump: no entries"),
        (b"\x80\x02}", "a pickle that is more than plain data, or broken"),
    ],
)
def test_what_is_no_dump_is_rejected(tmp_path, data, reason):
    quality = import_text(tmp_path, data, name="trace_1", format="nccl_flight").quality
    assert list(quality.rejected) == [reason]


def test_entries_without_their_fields_are_counted_as_lost(tmp_path):
    dump = made_dump(called=3, completed=3, ranks=[0])
    dump["entries"] += ["odd", {"process_group": 7}]
    quality = import_text(tmp_path, json.dumps(dump), name="trace_0.json").quality
    assert sum(quality.known_losses.values()) == 2


def test_the_format_knows_its_files():
    pickled = pickle.dumps(made_dump(called=1, completed=1, ranks=[0]), protocol=2)
    assert IMPORTER.recognises(Head(pickled, "", "trace_0")) >= 90
    assert IMPORTER.recognises(Head(pickle.dumps([1]), "", "trace_0")) == 0
    assert IMPORTER.recognises(Head(b"entries pg_config pg_status", "", "x.txt")) == 0


def test_a_dump_that_is_none_says_so():
    with pytest.raises(RowProblem, match="no entries"):
        read_dump([], name="x")
