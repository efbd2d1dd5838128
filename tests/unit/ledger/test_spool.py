from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lastgood.base.errors import BadInput, LedgerError
from lastgood.ledger.spool import PAYLOAD_BYTES_MAX, SpoolWriter, read_spool


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w1.spool"


def write(path: Path, *payloads: bytes) -> None:
    with SpoolWriter(path) as spool:
        for payload in payloads:
            spool.append(payload)


def test_frames_come_back_in_order_and_reading_goes_on_where_it_stopped(path):
    write(path, b"one", b"", b"three" * 1000)
    first = read_spool(path)
    assert first.payloads == (b"one", b"", b"three" * 1000)
    assert first.damages == ()
    write(path, b"four")
    assert read_spool(path, offset=first.next_offset).payloads == (b"four",)


def test_a_mapping_is_written_as_canonical_bytes(path):
    with SpoolWriter(path) as spool:
        spool.append({"b": 0.5, "a": 1}, is_synced=True)
    assert read_spool(path).payloads == (b'{"a":1,"b":"0x1.0000000000000p-1"}',)


def test_the_file_is_readable_by_its_user_only(path):
    write(path, b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_cut_of_the_last_frame_is_a_torn_tail_and_keeps_the_frames_before(path):
    write(path, b"one", b"two")
    whole = path.read_bytes()
    for length in range(len(whole) // 2 + 1, len(whole)):
        path.write_bytes(whole[:length])
        read = read_spool(path)
        assert read.payloads == (b"one",)
        assert read.next_offset == len(whole) // 2
        (damage,) = read.damages
        assert (damage.start, damage.end, damage.is_tail) == (len(whole) // 2, length, True)


def test_a_tail_that_gets_completed_is_read_then(path):
    write(path, b"one", b"two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    offset = read_spool(path).next_offset
    path.write_bytes(whole)
    assert read_spool(path, offset=offset).payloads == (b"two",)


def test_frames_behind_a_torn_one_are_found_again(path):
    write(path, b"one", b"two")
    path.write_bytes(path.read_bytes()[:-2])
    write(path, b"three")
    read = read_spool(path)
    assert read.payloads == (b"one", b"three")
    (damage,) = read.damages
    assert not damage.is_tail
    assert read.next_offset == path.stat().st_size


def test_every_flipped_byte_is_found(path):
    write(path, b"one", b"two", b"three")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        read = read_spool(path)
        assert read.damages, at
        assert set(read.payloads) < {b"one", b"two", b"three"}


def test_a_record_that_no_reader_would_take_is_refused(path):
    with SpoolWriter(path) as spool, pytest.raises(BadInput, match="too long"):
        spool.append(bytes(PAYLOAD_BYTES_MAX + 1))


def test_a_spool_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(LedgerError, match="cannot be opened"):
        SpoolWriter(tmp_path)
    with pytest.raises(LedgerError, match="cannot be read"):
        read_spool(tmp_path / "absent")
