"""The folder of a watched rank: that of its own supervisor, whatever a later start makes under the same name."""

import os
import shutil

import pytest

from lastgood.base.errors import Refused
from lastgood.training.rank.observed import live_folder
from lastgood.training.rundir import RunDir, is_left_behind
from lastgood.training.slot import StatusSlot
from lastgood.training.starter import VARIABLE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    root = tmp_path / "run"
    (root / "endings").mkdir(parents=True)
    (root / "status").mkdir()
    StatusSlot(root / "status" / "r0a1", create=True).close()
    monkeypatch.setenv("LASTGOOD_RUN_DIR", str(root))
    monkeypatch.setenv(VARIABLE, str(os.getppid()))
    return root


def test_a_rank_writes_into_the_folder_of_its_supervisor(folder):
    (live_folder("r0a1") / "endings" / "r0a1").write_text("0")
    assert (folder / "endings" / "r0a1").read_text() == "0"


def test_the_folder_of_a_later_start_is_left_alone(folder):
    held = live_folder("r0a1")
    assert is_left_behind(folder)
    later = RunDir.renew(folder, ranks=1)
    (folder / "endings").mkdir()
    with pytest.raises(OSError, match="No such file"):
        (held / "endings" / "r0a1").write_text("0")
    assert os.listdir(folder / "endings") == []
    with pytest.raises(Refused):
        is_left_behind(folder)
    later.remove()
    assert os.listdir(folder.parent) == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_rank_that_comes_behind_the_end_of_its_supervisor_goes_on_unread(
    folder, monkeypatch, is_removed
):
    monkeypatch.setenv(VARIABLE, str(os.getpid()))  # not the parent of this process
    before = (folder / "status" / "r0a1").read_bytes()
    if is_removed:
        shutil.rmtree(folder)
    own = live_folder("r0a1")
    StatusSlot(own / "status" / "r0a1").begin_generation(9, 0)
    for name in ("first", "endings", "stacks"):
        (own / name / "r0a1").write_text("unread")
    assert os.environ["LASTGOOD_RUN_DIR"] == str(own)
    if not is_removed:
        assert (folder / "status" / "r0a1").read_bytes() == before
    shutil.rmtree(own)
