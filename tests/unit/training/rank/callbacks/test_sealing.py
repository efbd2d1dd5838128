"""Which checkpoint of a framework is the last good one: sealed, whole, and the newest of those."""

import json

import pytest

from lastgood.training.rank.callbacks.sealing import newest_that_holds, seal


def folder_checkpoint(folder, step, *, is_sealed=True):
    path = folder / f"checkpoint-{step}"
    (path / "parts").mkdir(parents=True)
    (path / "weights.bin").write_bytes(b"w" * 100 + bytes([step]))
    (path / "parts" / "rank0.bin").write_bytes(b"r" * 50)
    if is_sealed:
        seal(path, step=step)
    return path


def file_checkpoint(folder, step, *, is_sealed=True):
    path = folder / f"epoch=0-step={step}.ckpt"
    path.write_bytes(b"c" * 100 + bytes([step]))
    if is_sealed:
        seal(path, step=step)
    return path


@pytest.fixture(params=[folder_checkpoint, file_checkpoint], ids=["folder", "file"])
def make(request):
    return request.param


def test_the_newest_by_step_is_taken_whatever_was_written_last(tmp_path, make):
    newest = make(tmp_path, 12)
    make(tmp_path, 9)
    assert newest_that_holds(tmp_path) == (12, newest)


def test_one_without_a_seal_is_passed_over(tmp_path, make):
    """A job that died while it wrote left it behind."""
    older = make(tmp_path, 4)
    make(tmp_path, 8, is_sealed=False)
    assert newest_that_holds(tmp_path) == (4, older)


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "added"])
def test_one_whose_bytes_are_not_those_that_were_sealed_is_passed_over(tmp_path, damage):
    older, newer = folder_checkpoint(tmp_path, 4), folder_checkpoint(tmp_path, 8)
    part = newer / "parts" / "rank0.bin"
    match damage:
        case "flip":
            part.write_bytes(b"r" * 49 + b"s")
        case "cut":
            part.write_bytes(b"r" * 49)
        case "missing":
            part.unlink()
        case "added":
            (newer / "parts" / "rank1.bin").write_bytes(b"")
    assert newest_that_holds(tmp_path) == (4, older)


def test_a_damaged_file_is_passed_over(tmp_path):
    older, newer = file_checkpoint(tmp_path, 4), file_checkpoint(tmp_path, 8)
    newer.write_bytes(newer.read_bytes()[:-1])
    assert newest_that_holds(tmp_path) == (4, older)


def test_a_seal_whose_checkpoint_was_deleted_is_no_checkpoint(tmp_path, make):
    older, newer = make(tmp_path, 4), make(tmp_path, 8)
    for file in [newer] if newer.is_file() else newer.rglob("*.bin"):
        file.unlink()
    assert newest_that_holds(tmp_path) == (4, older)


@pytest.mark.parametrize("text", ["", "[]", '{"step": 9}', '{"step": "x", "files": {}}', "{"])
def test_a_seal_that_cannot_be_read_seals_nothing(tmp_path, make, text):
    older, newer = make(tmp_path, 4), make(tmp_path, 8)
    place = newer / "lastgood.json" if newer.is_dir() else tmp_path / f"{newer.name}.lastgood.json"
    assert json.loads(place.read_text())["step"] == 8
    place.write_text(text)
    assert newest_that_holds(tmp_path) == (4, older)


def test_there_is_none_in_an_empty_folder_or_in_none(tmp_path):
    assert newest_that_holds(tmp_path) is None
    assert newest_that_holds(tmp_path / "absent") is None


def test_sealing_again_is_the_same_seal(tmp_path):
    path = folder_checkpoint(tmp_path, 4)
    before = (path / "lastgood.json").read_bytes()
    seal(path, step=4)
    assert (path / "lastgood.json").read_bytes() == before


def test_a_folder_that_cannot_be_written_costs_the_seal_and_nothing_else(tmp_path, monkeypatch):
    path = folder_checkpoint(tmp_path, 4, is_sealed=False)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    seal(path, step=4)
    assert newest_that_holds(tmp_path) is None
