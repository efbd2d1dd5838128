"""What one statistical test says: the number, what was tested, the verdict in words, and what it does not show.

A p value alone misleads twice. "Not rejected" is read as "true", and "rejected" is read as the alternative that the
reader had in mind: a test of *homogeneous Poisson* that rejects has not found a trend. So every result carries its
null in words, a sentence, and the sentence that takes the usual wrong reading away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

EVENTS_MIN = 10
"""Below this many events nothing is tested: count, exposure and the exact interval say all there is."""
ALPHA = 0.05
"""Level of every test whose verdict is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One test with its verdict. `is_rejected` is None where nothing was tested."""

    test: str
    """Such as `Laplace`."""
    null: str
    """What was tested, such as `a constant rate, Poisson`."""
    statistic: float | None
    statistic_name: str = "z"
    p: float | None
    n: int
    """How many observations it rests on."""
    is_rejected: bool | None
    sentence: str
    """The verdict in words."""
    limit: str
    """What this does not show."""
    source: str
    assumes: str


def too_few(
    test: str, *, null: str, n: int, source: str, assumes: str, needs: int = EVENTS_MIN
) -> Finding:
    """A finding for a sample that is too small: nothing was tested, which is not the same as nothing found."""
    return Finding(
        test=test,
        null=null,
        statistic=None,
        p=None,
        n=n,
        is_rejected=None,
        sentence=f"Too few to test: {n} of the {needs} events that this needs.",
        limit="Nothing was tested; that is no sign that nothing is there.",
        source=source,
        assumes=assumes,
    )


def without_answer(finding: Finding, why: str) -> Finding:
    """The same test where the data give no number, with the reason."""
    return replace(finding, statistic=None, p=None, is_rejected=None, sentence=why)


def format_p(p: float) -> str:
    """A p value as people read it: `p = 0.51`, `p = 4e-05`, `p < 1e-16`."""
    if p < 1e-16:
        return "p < 1e-16"
    return f"p = {p:.2g}" if p >= 0.001 else f"p = {p:.0e}"


def format_float(value: float, digits: int = 3) -> str:
    """A number with this many significant digits and no exponent in the usual range."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:,.{decimals}f}"
    return f"{value:.{digits - 1}e}"


def normal_p(z: float) -> float:
    """Two-sided p value of a standard normal statistic."""
    return math.erfc(abs(z) / math.sqrt(2))


def student_p(t: float, df: float) -> float:
    """Two-sided p value of a Student t statistic with `df` degrees of freedom."""
    from scipy.special import stdtr

    return 2 * float(stdtr(df, -abs(t)))


def chi_square_tail(statistic: float, df: float) -> float:
    """P(chi-square with `df` degrees of freedom exceeds the statistic)."""
    from scipy.special import gammaincc

    return float(gammaincc(df / 2, max(statistic, 0.0) / 2))
