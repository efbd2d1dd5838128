"""A bundle on disk: all or nothing when written, distrusted when read."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile

import pytest

from lastgood.base.errors import BadInput
from lastgood.evidence import archive


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    for number, name in enumerate(archive.NAMES):
        (folder / name).write_bytes(name.encode() * (number + 1))
    return folder


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def tar_of(path, entries):
    """A tar with exactly these (TarInfo, bytes) entries."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
        for entry, data in entries:
            entry.size = len(data) if entry.isreg() else 0
            out.addfile(entry, io.BytesIO(data))
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("write", "name"), [(archive.write_tar, "b.tar"), (archive.write_folder, "b")]
)
def test_what_is_written_comes_back(source, into, tmp_path, write, name):
    write(source, tmp_path / name)
    archive.unpack(tmp_path / name, into)
    assert contents(into) == contents(source)


def test_a_tar_has_the_same_bytes_whenever_it_is_written(source, tmp_path):
    archive.write_tar(source, tmp_path / "a.tar")
    for path in source.iterdir():
        os.utime(path, (1, 1))
    archive.write_tar(source, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("write", "name"), [(archive.write_tar, "b.tar"), (archive.write_folder, "b")]
)
def test_an_existing_path_is_never_overwritten(source, tmp_path, write, name):
    (tmp_path / name).write_text("evidence")
    with pytest.raises(BadInput, match="already there"):
        write(source, tmp_path / name)
    assert (tmp_path / name).read_text() == "evidence"


@pytest.mark.parametrize(
    ("write", "name"), [(archive.write_tar, "b.tar"), (archive.write_folder, "b")]
)
def test_a_write_that_fails_leaves_nothing_behind(source, tmp_path, write, name):
    (source / archive.LEDGER).unlink()
    with pytest.raises(BadInput, match="cannot be written"):
        write(source, tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"source"}


def test_a_missing_folder_is_named_with_the_command_that_makes_it(source, tmp_path):
    with pytest.raises(BadInput, match="mkdir -p"):
        archive.write_tar(source, tmp_path / "no" / "b.tar")


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "", ".", "manifest.json/../../x", "extra.txt"]
)
def test_a_name_that_has_no_place_in_a_bundle_is_refused(tmp_path, into, name):
    path = tar_of(tmp_path / "b.tar", [(tarfile.TarInfo(name), b"x")])
    with pytest.raises(BadInput, match="no place in it"):
        archive.unpack(path, into)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_an_entry_that_is_no_plain_file_is_refused(tmp_path, into, kind):
    entry = tarfile.TarInfo(archive.MANIFEST)
    entry.type, entry.linkname = kind, "/etc/passwd"
    path = tar_of(tmp_path / "b.tar", [(entry, b"")])
    with pytest.raises(BadInput, match="not a plain file"):
        archive.unpack(path, into)


def test_a_link_in_a_folder_is_refused(source, into):
    (source / archive.CONTRACT).unlink()
    (source / archive.CONTRACT).symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="not a plain file"):
        archive.unpack(source, into)


def test_a_file_that_comes_twice_is_refused(tmp_path, into):
    twice = [(tarfile.TarInfo(archive.MANIFEST), b"{}"), (tarfile.TarInfo(archive.MANIFEST), b"[]")]
    with pytest.raises(BadInput, match="holds a file twice"):
        archive.unpack(tar_of(tmp_path / "b.tar", twice), into)


def test_a_missing_file_is_named(source, tmp_path, into):
    archive.write_tar(source, tmp_path / "b.tar")
    with tarfile.open(tmp_path / "b.tar") as whole:
        kept = [(e, whole.extractfile(e).read()) for e in whole if e.name != archive.HEAD]
    with pytest.raises(BadInput, match=r"no tree-head\.txt"):
        archive.unpack(tar_of(tmp_path / "c.tar", kept), into)


@pytest.mark.parametrize("keep_bytes", [0, 1, 100, 511, 512, 700, 1024, 2000, 5000])
def test_a_tar_that_is_cut_short_is_bad_input(source, tmp_path, into, keep_bytes):
    archive.write_tar(source, tmp_path / "b.tar")
    whole = (tmp_path / "b.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:keep_bytes])
    with pytest.raises(BadInput):
        archive.unpack(tmp_path / "cut.tar", into)


def test_a_header_that_promises_more_than_is_there_is_refused_at_once(tmp_path, into):
    entry = tarfile.TarInfo(archive.LEDGER)
    entry.size = 8 * 2**30
    (tmp_path / "b.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(BadInput, match="cut short"):
        archive.unpack(tmp_path / "b.tar", into)


def test_a_file_beyond_its_bound_is_refused(tmp_path, into):
    entry = tarfile.TarInfo(archive.MANIFEST)
    entry.size = archive.BYTES_MAX[archive.MANIFEST] + 1
    (tmp_path / "b.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(BadInput, match="too large"):
        archive.unpack(tmp_path / "b.tar", into)


def test_a_compressed_tar_is_refused(source, tmp_path, into):
    with tarfile.open(tmp_path / "b.tar", "w:gz") as out:
        out.add(source / archive.MANIFEST, archive.MANIFEST)
    with pytest.raises(BadInput, match="cannot be read as a tar file"):
        archive.unpack(tmp_path / "b.tar", into)


@pytest.mark.parametrize("seed", range(30))
def test_a_tar_with_damaged_headers_never_raises_anything_else(source, tmp_path, into, seed):
    import random

    archive.write_tar(source, tmp_path / "b.tar")
    damaged = bytearray((tmp_path / "b.tar").read_bytes())
    rolls = random.Random(seed)
    for _ in range(20):
        damaged[rolls.randrange(min(len(damaged), 4096))] = rolls.randrange(256)
    (tmp_path / "d.tar").write_bytes(damaged)
    with contextlib.suppress(BadInput):
        archive.unpack(tmp_path / "d.tar", into)


def test_no_such_bundle_says_how_to_write_one(tmp_path, into):
    with pytest.raises(BadInput, match="lastgood bundle -o PATH"):
        archive.unpack(tmp_path / "none.tar", into)
