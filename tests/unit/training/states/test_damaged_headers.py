"""A snapshot whose header does not hold is reported with its step; one that is being written is not."""

import pytest

from lastgood.training.states.catalogue import HEADER_BYTES, damaged_headers, read_headers
from tests.unit.training.states.test_catalogue import put, run

__all__ = ["run"]


@pytest.fixture
def held(run):
    for rank in (0, 1):
        for step in (3, 4, 5):
            put(run, rank, step)
    return run


def spoil(run, rank, step, page):
    path = run.snapshot(rank, step)
    path.write_bytes(page + path.read_bytes()[len(page) :])
    return path


def test_whole_headers_are_no_news(held):
    assert damaged_headers(read_headers(held, world=2)) == ()


@pytest.mark.parametrize("page", [b'{"step": 9', b"\xff\xff", b" x"])
def test_a_changed_header_is_reported_with_the_step_of_the_same_file_elsewhere(held, page):
    path = spoil(held, 1, 4, page)
    (found,) = damaged_headers(read_headers(held, world=2))
    assert (found.rank, found.path, found.step) == (1, path, 4)


@pytest.mark.parametrize("blank", [b" ", b"\0"])
def test_a_blank_header_is_a_snapshot_that_is_being_written(held, blank):
    spoil(held, 1, 4, blank * HEADER_BYTES)
    assert damaged_headers(read_headers(held, world=2)) == ()


def test_a_header_that_no_other_rank_can_place_has_no_step(held):
    for rank in (0, 1):
        spoil(held, rank, 4, b"[")
    assert [(d.rank, d.step) for d in damaged_headers(read_headers(held, world=2))] == [
        (0, None),
        (1, None),
    ]
