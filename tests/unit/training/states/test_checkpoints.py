"""Which checkpoints count, which are kept, and what a helper that dies, hangs or babbles does: nothing but one event."""

import json
import pathlib
import shutil
import time

import pytest

from lastgood.base.clock import boot_id
from lastgood.base.errors import Refused
from lastgood.training.rundir import RunDir
from lastgood.training.states import checkpoint_process
from lastgood.training.states.checkpoints import (
    CheckpointKeeper,
    checkpoint_candidates,
    find_torn,
    list_checkpoints,
    read_mark,
    seal_mark,
)


def put(folder, step, *, world=2, **fields):
    path = folder / f"step-{step:09d}"
    path.mkdir(parents=True)
    (path / ".metadata").write_bytes(b"")
    mark = {"step": step, "digest": f"d{step}", "bytes": 7, "world": world} | fields
    (path / "lastgood.json").write_text(seal_mark(mark))
    return path


def steps(folder, *, world=2):
    return [c.step for c in list_checkpoints(folder, world=world)]


def test_checkpoints_are_listed_newest_first(tmp_path):
    for step in (5, 100, 20):
        put(tmp_path, step)
    assert steps(tmp_path) == [100, 20, 5]


def test_torn_foreign_and_unfinished_folders_are_passed_over(tmp_path):
    put(tmp_path, 1)
    (put(tmp_path, 2) / ".metadata").unlink()
    (put(tmp_path, 3) / "lastgood.json").unlink()
    (put(tmp_path, 4) / "lastgood.json").write_text("{")
    put(tmp_path, 5, world=4)
    put(tmp_path, 6).rename(tmp_path / "step-000000006.partial")
    put(tmp_path, 7).rename(tmp_path / "step-000000007.abandoned")
    (tmp_path / "step-notes").mkdir()
    assert steps(tmp_path) == [1]


def test_any_changed_byte_of_the_mark_is_found(tmp_path):
    path = put(tmp_path, 1)
    whole = (path / "lastgood.json").read_bytes()
    assert read_mark(path)["step"] == 1
    for at in range(len(whole)):
        for mask in (1, 32):
            changed = bytearray(whole)
            changed[at] ^= mask
            (path / "lastgood.json").write_bytes(changed)
            assert read_mark(path) is None, at


def test_a_checkpoint_of_this_boot_has_its_time_and_one_of_an_earlier_boot_has_none(tmp_path):
    """Without a time the recovery loop takes a checkpoint for older than every recovery."""
    put(tmp_path, 1, published_us=50, boot_id="another")
    put(tmp_path, 2, published_us=60, boot_id=boot_id())
    found = checkpoint_candidates(list_checkpoints(tmp_path, world=2), generation=3)
    assert [(c.step, c.published_us) for c in found] == [(2, 60), (1, None)]
    assert found[0].locator == str(tmp_path / "step-000000002")


class Keeper(CheckpointKeeper):
    """A keeper whose helper is a shell script."""

    script = "cat"

    def request(self, step, **options):
        self.helper.command = ["sh", "-c", self.script]
        return super().request(step, **options)


@pytest.fixture
def keeper(tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=2)
    made = Keeper(tmp_path / "checkpoints", run=run, world=2, kept=2)
    yield made
    made.close()


def listen(keeper, kind, *, limit_s=5.0):
    """Poll, as the supervisor does, until an answer of that kind; returns all answers."""
    heard = []
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        heard += keeper.answers()
        if any(answer["kind"] == kind for answer in heard):
            return heard
        time.sleep(0.005)
    pytest.fail(f"no {kind}: {heard}")


def lines(*answers):
    return "; ".join(["read request", *(f"echo '{json.dumps(a)}'" for a in answers), "sleep 9"])


COPIED = {"kind": "copied", "step": 8}
WRITTEN = {"kind": "written", "step": 8, "bytes": 3, "digest": "d8"}


def test_a_checkpoint_is_asked_for_copied_written_and_then_waits_for_the_next_step(keeper):
    keeper.script = lines(COPIED, WRITTEN)
    keeper.request(8)
    assert keeper.is_busy
    assert [a["kind"] for a in listen(keeper, "written")] == ["copied", "written"]
    assert not keeper.is_busy
    assert keeper.verified_up_to(8) == []
    assert [c.step for c in keeper.verified_up_to(9)] == [8]
    assert keeper.pinned == keeper.folder / "step-000000008"


def test_the_request_says_what_when_and_where(keeper, tmp_path):
    keeper.script = (
        f"read line; echo \"$line\" > {tmp_path}/request; echo '{json.dumps(WRITTEN)}'; sleep 9"
    )
    keeper.request(8, published_us=77)
    listen(keeper, "written")
    request = json.loads((tmp_path / "request").read_text())
    assert request == {
        "run_dir": str(tmp_path / "run"),
        "world": 2,
        "step": 8,
        "path": str(tmp_path / "checkpoints" / "step-000000008"),
        "published_us": 77,
        "tolerance": None,
    }


def test_a_helper_that_dies_is_a_failed_checkpoint_and_the_next_one_starts_clean(keeper):
    keeper.script = 'read request; printf \'{"kind": "wri\'; exit 3'
    keeper.request(8)
    (failed,) = listen(keeper, "failed")
    assert failed["step"] == 8
    assert "code 3" in failed["reason"]
    keeper.script = lines(COPIED, WRITTEN)
    keeper.request(8)
    assert [a["kind"] for a in listen(keeper, "written")] == ["copied", "written"]


def test_what_a_library_prints_is_not_taken_for_an_answer(keeper):
    keeper.script = (
        f"read request; echo warning: slow disk; echo 3; echo '{json.dumps(WRITTEN)}'; sleep 9"
    )
    keeper.request(8)
    assert [a["kind"] for a in listen(keeper, "written")] == ["written"]


@pytest.mark.parametrize(
    ("limit", "script"),
    [
        ("COPY_US_MAX", "exec sleep 20"),
        ("WRITE_US_MAX", f"read r; echo '{json.dumps(COPIED)}'; exec sleep 20"),
    ],
)
def test_a_helper_that_hangs_does_not_pin_a_snapshot_for_ever(keeper, monkeypatch, limit, script):
    monkeypatch.setattr(checkpoint_process, limit, 100_000)
    keeper.script = script
    keeper.request(8)
    assert listen(keeper, "failed")[-1]["step"] == 8
    assert not keeper.is_busy


def test_a_checkpoint_that_is_being_written_when_the_run_goes_back_does_not_count(keeper):
    keeper.script = f"read request; echo '{json.dumps(COPIED)}'; read more; echo '{json.dumps(WRITTEN)}'; sleep 9"
    keeper.request(8)
    listen(keeper, "copied")
    keeper.abandon_behind(6)
    put(keeper.folder, 8)
    keeper.helper._process.stdin.write(b"\n")
    assert "went back" in listen(keeper, "failed")[-1]["reason"]
    assert keeper.verified_up_to(99) == []
    assert steps(keeper.folder) == []


def test_a_checkpoint_behind_which_the_run_went_back_is_set_aside_and_not_deleted(keeper):
    for step in (3, 8):
        put(keeper.folder, step)
    assert [(a.checkpoint.step, a.problem) for a in keeper.abandon_behind(6)] == [(8, "")]
    assert steps(keeper.folder) == [3]
    assert (keeper.folder / "step-000000008.abandoned" / "lastgood.json").exists()


def remember(keeper, step):
    put(keeper.folder, step)
    (found,) = [c for c in list_checkpoints(keeper.folder, world=2) if c.step == step]
    keeper.unverified[step] = found


def test_the_newest_two_are_kept(keeper):
    for step in (1, 2, 3, 4):
        remember(keeper, step)
    keeper.verified_up_to(99)
    assert steps(keeper.folder) == [4, 3]


def test_the_newest_verified_one_is_kept_however_old(keeper):
    remember(keeper, 1)
    keeper.verified_up_to(2)
    for step in (5, 6, 7):
        remember(keeper, step)
    keeper._prune()
    assert steps(keeper.folder) == [7, 6, 5, 1]
    keeper.verified_up_to(6)
    assert steps(keeper.folder) == [7, 6, 5]


def test_a_checkpoint_that_vanished_is_no_reason_to_stop(keeper):
    remember(keeper, 1)
    shutil.rmtree(keeper.folder / "step-000000001")
    assert [c.step for c in keeper.verified_up_to(2)] == [1]


def test_a_stopped_helper_is_killed_at_once_since_the_ranks_wait_for_it(keeper):
    keeper.script = "read request; kill -STOP $$; sleep 9"
    keeper.request(8)
    (failed,) = listen(keeper, "failed")
    assert failed["reason"] == "the helper was stopped for 500 ms, and was killed"
    keeper.script = lines(COPIED, WRITTEN)
    keeper.request(8)
    assert [a["kind"] for a in listen(keeper, "written")] == ["copied", "written"]


def test_a_helper_that_neither_computes_nor_writes_is_stuck(keeper, monkeypatch):
    monkeypatch.setattr(checkpoint_process, "SILENT_US_MAX", 300_000)
    keeper.script = f"read r; echo '{json.dumps(COPIED)}'; exec sleep 20"
    keeper.request(8)
    assert "neither computed nor wrote for 300 ms" in listen(keeper, "failed")[-1]["reason"]


def test_a_helper_that_writes_slowly_is_not_stuck(keeper, monkeypatch):
    monkeypatch.setattr(checkpoint_process, "SILENT_US_MAX", 300_000)
    partial = keeper.folder / "step-000000008.partial"
    keeper.script = (
        f"read r; echo '{json.dumps(COPIED)}'; mkdir {partial}; "
        f"for i in 1 2 3 4 5 6; do echo $i >> {partial}/data; sleep 0.1; done; "
        f"echo '{json.dumps(WRITTEN)}'; sleep 9"
    )
    keeper.request(8)
    assert [a["kind"] for a in listen(keeper, "written")] == ["copied", "written"]


def test_a_helper_that_cannot_start_is_not_started_over_and_over_and_says_why(keeper):
    keeper.helper.command = ["sh", "-c", "exit 4"]
    pids = set()
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        assert not keeper.is_ready()
        pids.add(keeper.helper.pid)
        time.sleep(0.005)
    assert len(pids) == 1
    assert keeper.helper.why_not_ready() == "the helper exited with code 4 at its start"


def test_a_helper_that_is_stopped_while_it_starts_gives_way_to_another_one_and_is_said(
    keeper, monkeypatch
):
    monkeypatch.setattr(checkpoint_process, "RESTART_US_MIN", 0)
    keeper.helper.command = ["sh", "-c", "kill -STOP $$; sleep 9"]
    until = time.monotonic() + 5
    while keeper.helper.why_not_ready() is None and time.monotonic() < until:
        assert not keeper.is_ready()
        time.sleep(0.005)
    assert keeper.helper.why_not_ready() == "the helper was stopped for 500 ms, and was killed"
    ready = json.dumps({"kind": "ready", "step": -1})
    keeper.helper.command = ["sh", "-c", f"echo '{ready}'; sleep 9"]
    while not keeper.is_ready() and time.monotonic() < until:
        time.sleep(0.005)
    assert keeper.is_ready()
    assert keeper.helper.why_not_ready() is None


def test_what_a_failed_checkpoint_left_half_written_is_taken_away(keeper):
    partial = keeper.folder / "step-000000008.partial"
    keeper.script = f"read r; mkdir {partial}; echo half > {partial}/data; kill -9 $$"
    keeper.request(8)
    (failed,) = listen(keeper, "failed")
    assert failed["reason"] == "the helper was killed by SIGKILL"
    assert not partial.exists()


def test_a_folder_that_another_run_writes_to_is_refused(keeper, tmp_path):
    run = RunDir(tmp_path / "other")
    with pytest.raises(Refused, match=r"another run writes.*--checkpoint-dir"):
        CheckpointKeeper(keeper.folder, run=run, world=2, kept=2)
    keeper.close()
    (keeper.folder / "step-000000004.partial").mkdir()  # of a run that was killed meanwhile
    CheckpointKeeper(keeper.folder, run=run, world=2, kept=2).close()
    assert not (keeper.folder / "step-000000004.partial").exists()


def test_a_checkpoint_that_cannot_be_renamed_is_named_and_never_offered_again(keeper, monkeypatch):
    put(keeper.folder, 3)
    put(keeper.folder, 8)

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "rename", refuse)
    (found,) = keeper.abandon_behind(6)
    assert (found.checkpoint.step, found.problem) == (8, "Read-only file system")
    assert [c.step for c in keeper.usable()] == [3]


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda p: (p / "lastgood.json").unlink(), "lastgood.json is missing"),
        (lambda p: (p / "lastgood.json").write_text("{"), "lastgood.json is not as it was written"),
        (lambda p: (p / ".metadata").unlink(), ".metadata is missing"),
    ],
)
def test_a_folder_that_only_looks_like_a_checkpoint_is_torn_and_says_why(
    tmp_path, break_it, reason
):
    put(tmp_path, 1)
    break_it(put(tmp_path, 2))
    put(tmp_path, 3).rename(tmp_path / "step-000000003.partial")
    (torn,) = find_torn(tmp_path)
    assert (torn.step, torn.path.name) == (2, "step-000000002")
    assert torn.reason.startswith(reason)


def test_the_noise_of_the_run_goes_with_its_checkpoints(tmp_path):
    put(tmp_path, 1, tolerance=(0.25).hex())
    put(tmp_path, 2, tolerance=None)
    assert [c.tolerance for c in list_checkpoints(tmp_path, world=2)] == [None, 0.25]
