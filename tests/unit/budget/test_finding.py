"""P values and numbers as words."""

import pytest
from scipy.stats import chi2, norm, t

from lastgood.budget.finding import (
    chi_square_tail,
    format_float,
    format_p,
    normal_p,
    student_p,
    too_few,
)


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (0.5103, "p = 0.51"),
        (0.0267, "p = 0.027"),
        (3.98e-5, "p = 4e-05"),
        (1e-20, "p < 1e-16"),
        (1.0, "p = 1"),
    ],
)
def test_a_p_value_reads_as_people_write_it(p, words):
    assert format_p(p) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(5.1769, "5.18"), (0.0231, "0.0231"), (1234.5, "1,234"), (0.0, "0"), (2.5e-9, "2.50e-09")],
)
def test_a_number_has_three_digits(value, words):
    assert format_float(value) == words


def test_tails_are_those_of_scipy():
    assert normal_p(-2.5) == pytest.approx(2 * norm.sf(2.5))
    assert student_p(2.5, 7) == pytest.approx(2 * t.sf(2.5, 7))
    assert chi_square_tail(30.0, 24) == pytest.approx(chi2.sf(30.0, 24))


def test_too_few_is_not_tested():
    found = too_few("x", null="y", n=4, source="s", assumes="a")
    assert (found.p, found.is_rejected) == (None, None)
    assert "Nothing was tested" in found.limit
