"""The run's folder: private, one owner, and what a killed owner left behind is cleared away."""

import os
import subprocess
import sys

import pytest

from lastgood.base.errors import Refused
from lastgood.training import rundir
from lastgood.training.rundir import SLOT_COUNT, RunDir


def test_only_the_owner_may_read_and_everything_has_its_place(tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=2)
    assert run.root.stat().st_mode & 0o777 == 0o700
    for path in (run.status("w0"), run.store(1), run.snapshot(1, 0), run.addresses("w0")):
        assert path.parent.is_dir()
    run.remove()
    assert not run.root.exists()


def test_states_share_three_places_by_turns(tmp_path):
    run = RunDir(tmp_path)
    paths = [run.snapshot(0, step) for step in range(SLOT_COUNT + 1)]
    assert paths[0] == paths[SLOT_COUNT]
    assert len(set(paths)) == SLOT_COUNT
    assert run.snapshot(0, 1) != run.snapshot(1, 1)
    assert run.store(1) != run.store(2)


def test_a_run_id_that_is_in_use_is_refused(tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=1)
    (run.root / "state.json").write_text("mine")
    with pytest.raises(Refused, match=r"another run.*--run-id"):
        RunDir.create(tmp_path / "run", ranks=1)
    assert (run.root / "state.json").read_text() == "mine"
    run.remove()
    RunDir.create(tmp_path / "run", ranks=1).remove()


def test_what_a_killed_supervisor_left_behind_is_cleared_away(tmp_path):
    """The same --run-id again after a hard stop, as a scheduler's requeue does."""
    root = tmp_path / "run"
    code = (
        "import os, sys; from pathlib import Path; from lastgood.training.rundir import RunDir\n"
        "run = RunDir.create(Path(sys.argv[1]), ranks=4)\n"
        "run.snapshot(0, 0).write_bytes(b'old')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, root], check=False).returncode == -9
    assert root.exists()
    run = RunDir.create(root, ranks=1)
    assert run.snapshots(0) == []
    run.remove()


@pytest.mark.parametrize("moment", ["mkdir", "lock"])
def test_of_two_starts_at_one_moment_one_is_refused(tmp_path, monkeypatch, moment):
    """The other one takes the name between two system calls of this one."""
    root, opened, look, others = tmp_path / "run", os.open, rundir.is_left_behind, []

    def other_start():
        with monkeypatch.context() as real:
            real.setattr(rundir.os, "open", opened)
            real.setattr(rundir, "is_left_behind", look)
            real.setattr(rundir, "_owned", {})
            others.append((RunDir.create(root, ranks=1), dict(rundir._owned)))

    def late_open(path, *rest, **more):
        descriptor = opened(path, *rest, **more)
        if not others:
            other_start()
        return descriptor

    def late_look(path):
        if not others:
            other_start()
        return False

    if moment == "lock":
        monkeypatch.setattr(rundir.os, "open", late_open)
    else:
        monkeypatch.setattr(rundir, "is_left_behind", late_look)
    with pytest.raises(Refused, match="another run with this id"):
        RunDir.create(root, ranks=1)
    ((other, owned),) = others
    assert other.status("w0").parent.is_dir()
    other.remove()
    os.close(owned[root])


def test_the_state_is_replaced_in_one_step(tmp_path):
    run = RunDir.create(tmp_path / "run", ranks=1)
    run.write_state({"generation": 1})
    before = (run.root / "state.json").stat().st_ino
    run.write_state({"generation": 2})
    assert (run.root / "state.json").read_text() == '{"generation": 2}'
    assert before != (run.root / "state.json").stat().st_ino
    assert not (run.root / "state.json.new").exists()
    run.remove()


def test_a_run_leaves_no_descriptor_behind(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        RunDir.create(tmp_path / "run", ranks=1).remove()
    assert before == len(os.listdir("/proc/self/fd"))


def test_the_room_of_the_next_meeting_is_taken_and_nothing_stands_in_it(tmp_path):
    run = RunDir(tmp_path)
    run.store(2).parent.mkdir()
    run.reserve_store(2)
    found = run.store(2).stat()
    assert found.st_size == 0
    assert found.st_blocks * 512 >= 60_000


def test_without_room_for_it_nothing_changes(tmp_path):
    RunDir(tmp_path / "nowhere").reserve_store(2)
