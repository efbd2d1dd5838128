"""Bytes of any kind become numbered lines, in bounded memory, and what is wrong with them is said."""

import gzip
import io
import os
import threading

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.importers import source as source_module
from lastgood.ledger.importers.source import Line, Source


def source_of(data: bytes, name: str = "x.log") -> Source:
    return Source(name, stream=io.BytesIO(data))


def lines_of(data: bytes, **how) -> list[Line]:
    return list(source_of(data).lines(**how))


@pytest.fixture
def small_bounds(monkeypatch):
    """Blocks of 64 bytes and lines of at most 100, so that every edge is met with little data."""
    monkeypatch.setattr(source_module, "BLOCK_BYTES", 64)
    monkeypatch.setattr(source_module, "HEAD_BYTES", 64)
    monkeypatch.setattr(source_module, "LINE_BYTES_MAX", 100)


def test_lines_are_numbered_from_one_and_lose_their_ends():
    assert lines_of(b"a\r\nb\n\nc") == [
        Line(1, b"a", "a"),
        Line(2, b"b", "b"),
        Line(3, b"", ""),
        Line(4, b"c", "c"),
    ]


def test_an_empty_input_has_no_lines():
    assert lines_of(b"") == []


def test_lines_that_lie_across_blocks_come_whole(small_bounds):
    texts = [f"line {i} " + "x" * (i % 50) for i in range(200)]
    assert [line.text for line in lines_of("\n".join(texts).encode())] == texts


def test_bad_utf8_becomes_the_replacement_character_and_marks_its_line():
    source = source_of(b"ok\nM\xfcnchen\nok")
    damaged = [line for line in source.lines() if line.is_damaged]
    assert damaged == [Line(2, b"M\xfcnchen", "M\ufffdnchen", is_damaged=True)]
    assert source.damaged_line_count == 1


def test_nul_bytes_stay_in_the_line():
    assert lines_of(b"a\x00b\n")[0].text == "a\x00b"


def test_a_line_without_an_end_is_cut_and_the_lines_behind_it_survive(small_bounds):
    source = source_of(b"first\n" + b"y" * 5_000 + b"\nlast\n")
    lines = list(source.lines())
    assert [(line.number, len(line.raw)) for line in lines] == [(1, 5), (2, 100), (3, 4)]
    assert source.cut_line_count == 1


def test_a_long_line_with_an_end_is_cut_too(small_bounds):
    source = source_of(b"y" * 120 + b"\nlast\n")
    assert [len(line.raw) for line in source.lines()] == [100, 4]
    assert source.cut_line_count == 1


def test_only_the_wanted_lines_and_the_edges_of_a_block_are_handed_out():
    data = b"".join(b"line %d\n" % i if i % 10 else b"NVRM %d\n" % i for i in range(1, 101))
    source = source_of(data)
    wanted = list(source.lines(containing=[b"NVRM"]))
    assert [line.number for line in wanted] == [1, *range(10, 101, 10)]
    assert all(line.text.split()[1] == str(line.number) for line in wanted)
    assert source.skipped_line_count == 100 - len(wanted)


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("every", [1, 2, 3, 7, 50])
def test_with_small_blocks_the_same_wanted_lines_come_with_the_same_numbers(
    small_bounds, end, every
):
    """Sparse and dense blocks are read in two ways."""
    rows = [b"NVRM %d" % i if i % every == 0 else b"other %d" % i for i in range(1, 300)]
    source = source_of(b"\n".join(rows) + end)
    given = list(source.lines(containing=[b"NVRM", b"SXid"]))
    assert {line.number: line.raw for line in given if b"NVRM" in line.raw} == {
        i: b"NVRM %d" % i for i in range(every, 300, every)
    }
    assert len(given) + source.skipped_line_count == len(rows)


def test_the_head_can_be_looked_at_without_losing_it():
    source = source_of(b"a\nb\n")
    assert source.head == b"a\nb\n"
    assert [line.text for line in source.lines()] == ["a", "b"]


def test_gzip_is_unpacked_whatever_the_file_is_called():
    source = source_of(gzip.compress(b"a\nb\n"), "messages.1")
    assert source.head == b"a\nb\n"
    assert [line.text for line in source.lines()] == ["a", "b"]


def test_a_cut_archive_gives_its_lines_and_says_that_it_is_cut():
    data = gzip.compress(os.urandom(50_000).hex().encode() + b"\nlast\n")
    source = source_of(b"".join([data[: len(data) // 2]]))
    assert len(list(source.lines())) == 1
    assert source.problems == [
        "the archive is damaged or cut: Compressed file ended before the end-of-stream marker was reached"
    ]


def test_an_archive_with_a_flipped_byte_is_said_to_be_damaged():
    data = bytearray(gzip.compress(b"line of a log\n" * 2_000))
    data[40] ^= 0xFF
    source = source_of(bytes(data))
    list(source.lines())
    assert source.problems
    assert source.problems[0].startswith("the archive is damaged or cut")


def test_an_archive_that_unpacks_to_much_is_read_in_blocks():
    """A gigabyte of zeros in a megabyte: nothing holds more than a block and a cut line of it."""
    packed = gzip.compress(b"\0" * 50_000_000 + b"\nlast")
    source = source_of(packed)
    lines = list(source.lines())
    assert [len(line.raw) for line in lines] == [source_module.LINE_BYTES_MAX, 4]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_its_mark_is_read_as_such_and_said(encoding):
    mark = "\ufeff".encode(encoding)
    source = source_of(mark + "Ärger\nb\n".encode(encoding))
    assert [line.text for line in source.lines()] == ["Ärger", "b"]
    assert source.notes == [f"x.log is {encoding.upper()}; it was read as such"]


def test_the_mark_of_utf8_is_no_part_of_the_first_line():
    assert lines_of(b"\xef\xbb\xbfa\n")[0].raw == b"a"


@pytest.mark.parametrize(
    ("magic", "packing"),
    [
        (b"\xfd7zXZ\x00", "xz"),
        (b"BZh9", "bzip2"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"PK\x03\x04", "zip"),
    ],
)
def test_another_packing_is_refused_with_the_command_that_unpacks_it(magic, packing):
    with pytest.raises(BadInput, match=f"packed with {packing}.*import FORMAT -"):
        _ = source_of(magic + b"rest").head


def test_a_pipe_is_read_like_a_file():
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(gzip.compress(b"a\n" * 100_000))

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb") as pipe:
        source = Source("-", stream=pipe)
        assert sum(1 for _ in source.lines()) == 100_000
    thread.join(10)
    assert source.size is None
    assert source.mtime_us is None


def test_a_file_that_is_not_there_is_the_persons_mistake(tmp_path):
    with pytest.raises(
        BadInput, match=r"nothing\.log: the file cannot be read: found No such file"
    ):
        _ = Source("nothing.log", path=tmp_path / "nothing.log").head


def test_content_stops_at_its_bound_and_says_so():
    source = source_of(b"x" * 3_000_000)
    assert len(source.content(bytes_max=1_000_000)) == 1_000_000
    assert source.problems == ["longer than 1,000,000 bytes: the rest is not read"]


def test_the_position_ends_at_the_size(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"line\n" * 500_000)
    source = Source("x.log", path=path)
    seen = [source.position for _ in source.blocks()]
    assert seen == sorted(seen)
    assert source.position == source.size == 2_500_000
    source.close()
