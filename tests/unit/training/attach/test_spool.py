"""A spool keeps whole lines with their checksums, in segments, whatever the disk does; errors are counted over hosts."""

import json
import os
import subprocess

import pytest

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import new_event
from lastgood.training.attach import spool as module
from lastgood.training.attach.failures import Failures, signature_of
from lastgood.training.attach.live import Joined, LiveDir
from lastgood.training.attach.spool import SpoolEvents, attempts_of


def event(text: str):
    return new_event("annotation", clock=ManualClock(1_000_000), run="r", body={"text": text})


def lines(folder) -> list[str]:
    return [
        line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def test_each_event_is_one_line_with_a_checksum_and_only_the_owner_may_read_it(tmp_path):
    spool = SpoolEvents(tmp_path / "h", name="r-a1-7")
    for text in ("one", "two"):
        spool.submit(event(text))
    spool.close()
    assert [json.loads(line)["event"]["body"]["text"] for line in lines(tmp_path / "h")] == ["one", "two"]  # fmt: skip
    (segment,) = (tmp_path / "h").glob("*.jsonl")
    assert segment.stat().st_mode & 0o777 == 0o600


def test_a_long_spool_goes_on_in_another_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 600)
    spool = SpoolEvents(tmp_path, name="r-a1-7")
    for at in range(6):
        spool.submit(event(f"{at}"))
    spool.close()
    assert len(list(tmp_path.glob("*.jsonl"))) > 1
    assert len(lines(tmp_path)) == 6


def test_a_full_disk_costs_its_event_only_and_is_said_once(tmp_path, monkeypatch, capsys):
    spool = SpoolEvents(tmp_path, name="r-a1-7")
    spool.submit(event("before"))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
        spool.submit(event("lost"))
        spool.submit(event("lost too"))
    spool.submit(event("after"))
    spool.close()
    assert spool.lost_count == 2
    assert capsys.readouterr().err.count("the disk is full") == 1
    whole = [line for line in lines(tmp_path) if line.endswith("}}")]
    assert [json.loads(line)["event"]["body"]["text"] for line in whole] == ["before", "after"]


def test_a_host_knows_how_many_attempts_it_has_seen(tmp_path):
    assert attempts_of(tmp_path, "r") == 0
    for attempt in (1, 3, 2):
        (tmp_path / f"r-a{attempt}-99-0.jsonl").touch()
    (tmp_path / "other-a9-99-0.jsonl").touch()
    assert attempts_of(tmp_path, "r") == 3


def test_an_error_counts_once_an_attempt_over_all_hosts(tmp_path):
    here, there = (Failures(tmp_path / host, run="r") for host in ("h1", "h2"))
    assert here.add("ValueError@train.py:9", attempt=1) == 1
    assert there.add("ValueError@train.py:9", attempt=1) == 1
    assert there.add("ValueError@train.py:9", attempt=2) == 2
    assert here.add("KeyError@train.py:9", attempt=2) == 1
    assert Failures(tmp_path / "h1", run="other").add("ValueError@train.py:9", attempt=3) == 1


def test_a_signature_is_type_and_line_and_not_the_message():
    def fail(text: str) -> BaseException:
        try:
            raise ValueError(text)
        except ValueError as error:
            return error

    assert signature_of(fail("loss 0.1")) == signature_of(fail("loss 0.2"))
    assert signature_of(fail("x")).startswith("ValueError@test_spool.py:")


@pytest.mark.parametrize("is_there", [True, False])
def test_ranks_find_each_other_in_the_live_folder(tmp_path, is_there):
    live = LiveDir(tmp_path / "live")
    if is_there:
        LiveDir(tmp_path / "live").join(1, Joined(5, 123))
    assert live.joined() == ({1: Joined(5, 123)} if is_there else {})


def test_a_stop_that_one_rank_writes_is_read_by_another(tmp_path):
    live = LiveDir(tmp_path / "live")
    here, there = live.stop_page, live.stop_page
    assert there.step == 0
    here.step = 107
    assert there.step == 107


def test_the_peers_that_run_are_told_from_those_on_their_way_out(tmp_path):
    live = LiveDir(tmp_path / "live")
    running = subprocess.Popen(["sleep", "60"])
    ended = subprocess.Popen(["true"])
    os.waitid(
        os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT
    )  # dead, and nobody has asked for its code
    try:
        for rank, pid in enumerate((os.getpid(), running.pid, ended.pid, 2**22 + 1)):
            live.join(rank, Joined(rank, pid))
        assert live.running_peers() == [1]
    finally:
        running.kill()
        running.wait()
        ended.wait()
