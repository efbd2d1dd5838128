"""How long a declared section without a limit may last: ten minutes at first, then what its own durations teach."""

import pytest

from lastgood.signals.limits import Limits, has_learned, learn, limit_of_key_us, section_key

S = 1_000_000
EVAL = section_key("eval")


def learned(*seconds, **settings):
    limits = Limits(**settings)
    for duration in seconds:
        limits = learn(limits, EVAL, duration * S)
    return limits


def test_a_section_that_never_ended_before_has_ten_minutes():
    assert limit_of_key_us(learned(), EVAL) == 600 * S


def test_one_ended_section_teaches_nothing_yet():
    limits = learned(40)
    assert not has_learned(limits, EVAL)
    assert limit_of_key_us(limits, EVAL) == 600 * S


@pytest.mark.parametrize(("seconds", "limit"), [((40, 50), 250), ((1, 2), 60), ((300, 400), 2000)])
def test_two_ended_sections_teach_five_times_their_length_and_a_minute_at_least(seconds, limit):
    assert limit_of_key_us(learned(*seconds), EVAL) == limit * S


def test_a_section_learns_nothing_from_another_one_or_from_steps():
    limits = learned(40, 50)
    assert limit_of_key_us(limits, section_key("export")) == 600 * S
    for _ in range(9):
        limits = learn(limits, "compute", S)
    assert limit_of_key_us(limits, EVAL) == 250 * S


def test_short_limits_of_tests_and_drills_hold_for_learned_sections_too():
    assert limit_of_key_us(learned(1, 2, section_floor_us=3 * S), EVAL) == 10 * S
    assert limit_of_key_us(learned(1, 2, section_floor_us=20 * S), EVAL) == 20 * S
