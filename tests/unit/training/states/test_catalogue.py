"""Which states the supervisor offers: one digest and one generation on every rank, and no header in doubt."""

import pytest

from lastgood.training.rundir import RunDir
from lastgood.training.states.catalogue import (
    HEADER_BYTES,
    read_headers,
    read_snapshot_header,
    seal_header,
    slot_candidates,
)


def header(step, *, digest="aa", generation=1, published_us=0):
    return {
        "step": step,
        "generation": generation,
        "published_us": published_us,
        "bytes": 10,
        "data_offset": HEADER_BYTES,
        "digest": digest,
        "stripe": 0,
        "stripes": 1,
        "stripe_digest": digest,
        "private_digest": "bb",
        "blob_offset": HEADER_BYTES,
        "blob_bytes": 10,
        "blob_digest": "cc",
    }


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", ranks=2)


def put(run, rank, step, **fields):
    run.snapshot(rank, step).write_bytes(seal_header(header(step, **fields)) + bytes(10))


def test_a_sealed_header_is_one_page_and_reads_back(run):
    put(run, 0, 1)
    assert run.snapshot(0, 1).stat().st_size == HEADER_BYTES + 10
    assert header(1) == read_snapshot_header(run.snapshot(0, 1))


def test_states_are_offered_newest_first_with_the_time_of_the_last_rank(run):
    for step in (4, 5, 3):
        put(run, 0, step, published_us=10 * step)
        put(run, 1, step, published_us=10 * step + 1)
    found = slot_candidates(read_headers(run, world=2), world=2)
    assert [(c.step, c.published_us, c.has_predecessor) for c in found] == [
        (5, 51, True),
        (4, 41, True),
        (3, 31, False),
    ]


@pytest.mark.parametrize("other", [{"digest": "dd"}, {"generation": 2}])
def test_a_state_on_which_the_ranks_do_not_agree_is_not_offered(run, other):
    put(run, 0, 1)
    put(run, 1, 1, **other)
    assert slot_candidates(read_headers(run, world=2), world=2) == ()


def test_a_state_that_one_rank_lacks_is_not_offered_and_is_no_predecessor(run):
    put(run, 0, 1)
    for rank in (0, 1):
        put(run, rank, 2)
    (only,) = slot_candidates(read_headers(run, world=2), world=2)
    assert (only.step, only.has_predecessor) == (2, False)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" " * HEADER_BYTES,
        b"{",
        b"[1, 2]\n",
        b'{"step": 1}\n',
        b"\xff" * HEADER_BYTES,
        seal_header(header(1))[:300],
        seal_header(header(1))[:-1] + b"x",
        seal_header(header(1)).replace(b'"step":1', b'"step":2'),
        seal_header({"step": 1}),
    ],
    ids=[
        "empty",
        "blank",
        "torn",
        "list",
        "bare",
        "noise",
        "cut",
        "padding",
        "step",
        "too few fields",
    ],
)
def test_a_header_in_doubt_is_no_header(run, content):
    run.snapshot(0, 1).write_bytes(content)
    assert read_snapshot_header(run.snapshot(0, 1)) is None


def test_no_file_is_no_header(run):
    assert read_snapshot_header(run.snapshot(0, 1)) is None
    assert slot_candidates(read_headers(run, world=2), world=2) == ()
