"""The difference of two useful shares: ratio of sums, its error by leaving one piece out, against hand arithmetic."""

import math

import pytest
from scipy.stats import t as student

from lastgood.budget.share_shift import (
    Piece,
    PieceStratum,
    p_of_waste_ratio_within,
    pieces_needed,
    share_shift,
    share_shift_within,
)

A = [Piece(8, 10), Piece(6, 10), Piece(9, 10), Piece(5, 10)]
B = [Piece(9, 10), Piece(10, 10), Piece(9, 10), Piece(8, 10), Piece(10, 10)]


def test_the_share_is_the_ratio_of_sums_and_not_the_mean_of_shares():
    long = [Piece(90, 100), Piece(0, 1), Piece(0, 1), Piece(0, 1)]
    assert share_shift(long, B).share_a == pytest.approx(90 / 103)


def test_pieces_of_one_length_give_students_test_of_means():
    """With equal lengths a ratio of sums is a mean, and leaving one out gives the variance of a mean.

    The degrees of freedom are those of the smaller sample, never more than Welch's.
    """
    one, two = [p.useful_us / 10 for p in A], [p.useful_us / 10 for p in B]

    def variance(values):
        mean = sum(values) / len(values)
        return sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values)

    v_a, v_b = variance(one), variance(two)
    degrees = 3
    assert degrees <= (v_a + v_b) ** 2 / (v_a**2 / 3 + v_b**2 / 4)
    difference = sum(two) / 5 - sum(one) / 4
    reach = student.ppf(0.975, degrees) * math.sqrt(v_a + v_b)
    shift = share_shift(A, B)
    assert shift.difference == pytest.approx(difference)
    assert (shift.lo, shift.hi) == pytest.approx((difference - reach, difference + reach))
    assert shift.p == pytest.approx(2 * student.sf(difference / math.sqrt(v_a + v_b), degrees))


def test_a_factor_is_of_the_share_that_is_not_useful():
    a, b = [Piece(8, 10), Piece(7.9, 10)] * 5, [Piece(9, 10), Piece(9.1, 10)] * 5
    assert p_of_waste_ratio_within([PieceStratum(a, b)], 1.0) == pytest.approx(share_shift(a, b).p)
    exactly = (1 - share_shift(a, b).share_a) / (1 - share_shift(a, b).share_b)
    assert p_of_waste_ratio_within([PieceStratum(a, b)], exactly) == pytest.approx(1.0)


def test_few_pieces_have_no_interval():
    shift = share_shift(A[:3], B)
    assert not shift.can_tell
    assert math.isinf(shift.hi)
    assert shift.p == 1.0
    assert p_of_waste_ratio_within([PieceStratum(A[:3], B)], 2.0) == 1.0


def test_pieces_that_do_not_scatter_are_not_divided_by_nothing():
    same = [Piece(8, 10)] * 5
    assert share_shift(same, same).p == 1.0
    assert share_shift(same, [Piece(9, 10)] * 5).p == 0.0


def test_the_number_of_pieces_needed_is_that_of_a_difference_of_means():
    shift = share_shift(A, B)
    assert pieces_needed(shift, [PieceStratum(A, B)]) >= 4
    close = [Piece(7.5, 10)] * 5
    near = pieces_needed(share_shift(A, close), [PieceStratum(A, close)])
    assert near > pieces_needed(shift, [PieceStratum(A, B)])
    assert pieces_needed(share_shift(A, A), [PieceStratum(A, A)]) is None


def test_a_side_with_more_of_the_bad_conditions_is_not_worse_for_it():
    """Within either condition nothing differs; only the mix does. Both shares are those of one mix."""
    good, bad = [Piece(9, 10), Piece(9.2, 10)] * 4, [Piece(3, 10), Piece(3.2, 10)] * 4
    pooled = share_shift([*good[:4], *bad, *bad], [*good, *good, *bad[:4]])
    assert pooled.p < 0.05
    apart = share_shift_within([
        PieceStratum(good[:4], [*good, *good]), PieceStratum([*bad, *bad], bad[:4]),
    ])  # fmt: skip
    assert apart.difference == pytest.approx(0.0)
    assert apart.p == pytest.approx(1.0)
    assert apart.share_a == pytest.approx((9.1 + 3.1) / 20)


def test_strata_of_which_one_is_too_small_tell_nothing():
    short = share_shift_within([PieceStratum(A, B), PieceStratum(A, B[:3])])
    assert not short.can_tell
    assert short.p == 1.0


def test_two_strata_of_the_same_pieces_have_half_the_variance_of_one():
    both = share_shift_within([PieceStratum(A, B), PieceStratum(A, B)])
    one = share_shift(A, B)
    assert both.difference == pytest.approx(one.difference)
    assert (one.hi - one.lo) / (both.hi - both.lo) == pytest.approx(math.sqrt(2))
