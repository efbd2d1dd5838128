"""The tail of a Poisson count and its inverse: as scipy gives them, without scipy."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from scipy.special import gammainc, gammaincinv

from lastgood.base.poisson import COUNT_MAX, mean_of_tail, poisson_tail
from lastgood.ledger.store import open_store
from tests.unit.evidence import sample_run

COUNTS = (1, 2, 3, 5, 12, 31, 64, 99, COUNT_MAX, COUNT_MAX + 1)


@pytest.mark.parametrize("count", COUNTS)
def test_the_tail_is_the_incomplete_gamma_function(count):
    for mean in (1e-3, 0.025, 0.5, 1.0, 3.7, 10.0, 30.0, 60.0, 99.5, 150.0, 2_000.0):
        assert poisson_tail(count, mean) == pytest.approx(float(gammainc(count, mean)), rel=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_the_mean_of_a_tail_is_the_quantile_of_a_gamma_variable(count):
    for probability in (1e-6, 0.005, 0.025, 0.5, 0.95, 0.975, 0.9999):
        expected = float(gammaincinv(count, probability))
        assert mean_of_tail(count, probability) == pytest.approx(expected, rel=1e-12)


def test_one_event_has_the_textbook_answers():
    """P(N >= 1) = 1 - exp(-mean), so three events are expected where none is seen with 95 % confidence."""
    assert poisson_tail(1, 1.0) == pytest.approx(1 - 1 / math.e, rel=1e-15)
    assert mean_of_tail(1, 0.95) == pytest.approx(-math.log(0.05), rel=1e-15)
    assert (poisson_tail(1, 0.0), poisson_tail(0, 0.0), poisson_tail(0, 7.0)) == (0.0, 1.0, 1.0)


def test_the_report_of_a_run_loads_no_scipy(tmp_path):
    with open_store(tmp_path / "run.db") as store:
        store.append(sample_run.five_faults())
    code = (
        "import sys; from lastgood.cli.main import main; "
        "assert main(['report', sys.argv[1]]) == 0; sys.exit('scipy' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run.db"], stdout=subprocess.DEVNULL, timeout=50, check=False
    )  # fmt: skip
    assert ran.returncode == 0
