"""Adjusted p values against statsmodels."""

import pytest
from statsmodels.stats.multitest import multipletests

from lastgood.base.rng import numpy_stream
from lastgood.budget.multiplicity import benjamini_hochberg, holm

P = numpy_stream(3, "p").uniform(size=40) ** 3


@pytest.mark.parametrize(("ours", "name"), [(holm, "holm"), (benjamini_hochberg, "fdr_bh")])
def test_adjustment_is_that_of_statsmodels(ours, name):
    assert ours(P) == pytest.approx(multipletests(P, method=name)[1])


def test_one_test_needs_no_adjustment_and_none_is_none():
    assert holm([0.03]).tolist() == benjamini_hochberg([0.03]).tolist() == [0.03]
    assert holm([]).tolist() == []
