"""The supervisor's page: read by whoever comes after it, also when it died between two words."""

import os

import pytest

from lastgood.training.resuming import life
from lastgood.training.resuming.life import LifePage, Tail, read_life


@pytest.fixture
def path(tmp_path):
    return tmp_path / "life"


def test_a_fresh_page_tells_of_no_state_no_turn_and_no_steps(path):
    LifePage(path).close()
    sign = read_life(path)
    assert (sign.generation, sign.assessed_step, sign.turn_us, sign.tolerance, sign.tail) == (
        0, -1, 0, None, None,
    )  # fmt: skip
    assert sign.pid == os.getpid()


def test_what_its_owner_says_is_what_the_next_one_reads(path):
    page = LifePage(path)
    assert page.turn(now_us=50, wall_us=1_050) == 0
    assert page.turn(now_us=60, wall_us=1_060) == 50
    page.begin_generation(3, step=8)
    page.assess(9)
    page.tolerate(0.25)
    page.begin_tail(first=10, began_us=1_000)
    page.add_to_tail(ended_us=1_020, loss=0.5)
    page.add_to_tail(ended_us=1_040, loss=None)
    sign = read_life(path)
    assert sign[:5] == (3, 9, 60, 1_060, 0.25)
    assert sign.tail == Tail(10, 1_000, (1_020, 1_040), (0.5, None))
    page.begin_tail(first=12, began_us=1_040)
    assert read_life(path).tail is None
    page.close()


def test_a_page_that_is_opened_again_keeps_what_it_says_but_the_owner(path):
    page = LifePage(path)
    page.begin_generation(2, step=5)
    page.tolerate(0.5)
    page.close()
    LifePage(path).close()
    sign = read_life(path)
    assert (sign.generation, sign.assessed_step, sign.tolerance) == (2, 5, 0.5)


def test_a_tail_that_is_full_stays_whole(path):
    page = LifePage(path)
    page.begin_tail(first=1, began_us=0)
    for number in range(life.TAIL_STEPS_MAX + 5):
        page.add_to_tail(ended_us=number, loss=1.0)
    tail = read_life(path).tail
    assert len(tail.ended_us) == len(tail.losses) == life.TAIL_STEPS_MAX


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * 4096, b"y" * 4096])
def test_what_is_no_such_page_is_none(path, content):
    path.write_bytes(content)
    assert read_life(path) is None
    assert read_life(path.with_name("missing")) is None
