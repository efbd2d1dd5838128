"""Is A worse than B, or after worse than before: the ratio of two rates and the difference of two medians.

Two exact Poisson intervals that do not overlap prove nothing when failures come in bursts: one burst more or less is
chance. The ratio here carries the dispersion of both sides; where one side is too small to show its own, it is given
that of the other, and where both are, nothing is tested. A difference of medians counts open incidents as open.
A date chosen because things looked bad there makes everything look better afterwards; that is said beside it.

Source: ratio of independent rates on the log scale with Welch's (1947) degrees of freedom; exact conditional test,
Przyborowski and Wilenski (1940); bootstrap of a quantile, Efron (1979).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import BadInput
from lastgood.base.rng import numpy_stream
from lastgood.budget.finding import (
    ALPHA,
    EVENTS_MIN,
    Finding,
    format_float,
    format_p,
    student_p,
    without_answer,
)
from lastgood.budget.rate_interval import RateInterval
from lastgood.budget.rates import RateStudy
from lastgood.budget.sample import Sample
from lastgood.budget.survival import Durations, format_hours, kaplan_meier

if TYPE_CHECKING:
    import numpy as np

DRAWS = 4000
UNKNOWN_EXPOSURE = "Exposure unknown on one side: the rates cannot be compared."


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRatio:
    """Rate of B over rate of A."""

    ratio: float | None
    """None when A has no event."""
    lo: float
    hi: float | None
    """None: no upper bound (A has no event)."""
    level: float
    method: str
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianDifference:
    """Median of B minus median of A for one duration."""

    name: str
    median_a_h: float | None
    median_b_h: float | None
    difference_h: float | None
    lo_h: float | None
    """None: the records do not bound it on this side."""
    hi_h: float | None
    n_a: int
    n_b: int
    level: float
    method: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two groups side by side."""

    a: str
    b: str
    rate: RateRatio | None
    """None when an exposure is unknown: counts of different exposure compare nothing."""
    durations: tuple[MedianDifference, ...]
    sentences: tuple[str, ...]
    limit: str = (
        "A difference has no cause in it. When the date or the group was picked because it looked bad, "
        "some improvement afterwards is chance."
    )


def compare(a: RateStudy, b: RateStudy, *, level: float = 0.95, seed: int = 0) -> Comparison:
    """The rate ratio B over A, and the difference of every duration that both have.

    Assumes: independent groups; what the intervals of the two studies assume.
    Source: see the module.
    """
    ratio = None
    if a.headline is not None and b.headline is not None:
        ratio = rate_ratio(
            a.headline.interval,
            b.headline.interval,
            names=(a.name, b.name),
            level=level,
        )
    others = {d.name: d for d in b.durations}
    differences = tuple(
        median_difference(d, others[d.name], a.sample, b.sample, level=level, seed=seed)
        for d in a.durations
        if d.name in others
    )
    first = ratio.finding.sentence if ratio else UNKNOWN_EXPOSURE
    return Comparison(
        a=a.name,
        b=b.name,
        rate=ratio,
        durations=differences,
        sentences=(first, *(d.sentence for d in differences)),
    )


def rate_ratio(
    a: RateInterval,
    b: RateInterval,
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
) -> RateRatio:
    """The ratio of two rates with the dispersion of both sides; exact where both are like independent events.

    A side below ten events shows no dispersion of its own. It is given that of the other side; where both have
    fewer there is an interval as if events were independent, and no test.

    Assumes: independent groups; one dispersion where one side is small; for the exact form independent events.
    Source: Welch (1947) on the log scale; Przyborowski and Wilenski (1940) for the exact form, which is given the
    number of independent events that the counts are worth where they are dispersed (quasi-likelihood, Wedderburn
    (1974)); calibrated by simulation.
    """
    if not a.count + b.count:
        raise BadInput(
            "two rates without any event have no ratio", found="0 and 0 events", needs="at least 1"
        )
    is_few, is_untested = (pick(a.count, b.count) < EVENTS_MIN for pick in (min, max))
    is_exact = is_few or a.dispersion == b.dispersion == 1.0
    worth, spread_words = _worth(a, b, level) if is_few else _Worth(1.0, "")
    lo, hi, statistic, p = _exact(a, b, level, worth) if is_exact else _dispersed(a, b, level)
    ratio = b.rate / a.rate if a.count else None
    method = (
        f"exact conditional binomial{spread_words}"
        if is_exact
        else "log ratio with dispersion, Welch degrees of freedom"
    )
    judged = _judge(
        names, ratio, lo, hi, statistic, p, a.count + b.count, is_exact=is_exact, is_few=is_few
    )
    if is_untested:
        # Two bursts on one side and one on the other are what chance gives, and nothing here could tell them apart.
        why = f"Too few to test: {a.count} and {b.count} events, and ten on one side are needed to look for bursts."
        judged = without_answer(judged, why)
    return RateRatio(ratio=ratio, lo=lo, hi=hi, level=level, method=method, finding=judged)


class _Ends(NamedTuple):
    """Both ends of a ratio with the test behind them."""

    lo: float
    hi: float | None
    statistic: float | None
    p: float


class _Worth(NamedTuple):
    """The share of the events that counts as independent, and the words for it."""

    share: float
    words: str


def _worth(a: RateInterval, b: RateInterval, level: float) -> _Worth:
    """What an event is worth as an independent one, by the dispersion that the larger side shows."""
    from scipy.special import ndtri, stdtrit

    larger = max(a, b, key=lambda side: side.count)
    if larger.dispersion <= 1.0:
        return _Worth(1.0, "")
    tail = (1 - level) / 2
    student = float(stdtrit(larger.degrees or 1e6, tail)) / float(ndtri(tail))
    words = f", both sides with dispersion {format_float(larger.dispersion)}"
    return _Worth(1 / (larger.dispersion * student * student), words)


def _exact(a: RateInterval, b: RateInterval, level: float, worth: float = 1.0) -> _Ends:
    """Given the sum of the counts, B's share is binomial; counts that are worth less need no whole numbers."""
    from scipy.special import betainc, betaincinv

    of_a, of_b = a.count * worth, b.count * worth
    share, odds, tail = (
        b.exposure / (a.exposure + b.exposure),
        a.exposure / b.exposure,
        (1 - level) / 2,
    )
    low = float(betaincinv(of_b, of_a + 1, tail)) if of_b else 0.0
    high = float(betaincinv(of_b + 1, of_a, 1 - tail)) if of_a else 1.0
    at_least = float(betainc(of_b, of_a + 1, share)) if of_b else 1.0
    at_most = 1 - float(betainc(of_b + 1, of_a, share)) if of_a else 1.0
    hi = high / (1 - high) * odds if high < 1 else None
    return _Ends(low / (1 - low) * odds, hi, None, min(1.0, 2 * min(at_least, at_most)))


def _dispersed(a: RateInterval, b: RateInterval, level: float) -> _Ends:
    from scipy.special import stdtrit

    parts = [(side.dispersion / side.count, side.degrees or 1e6) for side in (a, b)]
    variance = sum(v for v, _ in parts)
    degrees = variance**2 / sum(v * v / df for v, df in parts)
    middle = math.log(b.rate / a.rate)
    reach = -float(stdtrit(degrees, (1 - level) / 2)) * math.sqrt(variance)
    t = middle / math.sqrt(variance)
    return _Ends(math.exp(middle - reach), math.exp(middle + reach), t, student_p(t, degrees))


def _judge(
    names: tuple[str, str], ratio: float | None, lo: float, hi: float | None, statistic: float | None, p: float,
    n: int, *, is_exact: bool, is_few: bool,
) -> Finding:  # fmt: skip
    a, b = names
    within = (
        f"{format_float(lo)} to {'no bound' if hi is None else format_float(hi)}, {format_p(p)}"
    )
    is_rejected = p < ALPHA
    shown = "no event" if ratio is None else f"{format_float(ratio)} times"
    if ratio is None:
        sentence = f"{a} has no event: the ratio has only a lower bound ({within})."
    elif is_rejected:
        sentence = f"The rate of {b} is {shown} that of {a} ({within})."
    else:
        sentence = f"No difference shown: the rate of {b} is {shown} that of {a} ({within})."
    few = (
        " One side has fewer than ten events and is given the dispersion of the other."
        if is_few
        else ""
    )
    return Finding(
        test="rate ratio",
        null="both groups have one rate",
        statistic=ratio if statistic is None else statistic,
        statistic_name="ratio" if statistic is None else "t",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=sentence + few,
        limit="Not shown is not equal: the interval says how large a difference may hide.",
        source="Przyborowski and Wilenski (1940)"
        if is_exact
        else "log ratio, Welch (1947), quasi-Poisson variance",
        assumes="independent groups"
        + (", independent events" if is_exact else ", bursts shorter than the bins"),
    )


def median_difference(
    a: Durations,
    b: Durations,
    sample_a: Sample,
    sample_b: Sample,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> MedianDifference:
    """The difference of two medians with a bootstrap interval, open incidents counted as open.

    The bootstrap draws the rank of the median from its Beta law, which is what resampling does, so its cost does not
    grow with the sample; under censoring the law is given Greenwood's variance.

    Assumes: incidents independent of each other within a group; bursts recovered together make it too narrow.
    Source: Efron (1979); Greenwood (1926).
    """
    import numpy as np

    draws_a = _median_draws(a, sample_a, seed, "a")
    draws_b = _median_draws(b, sample_b, seed, "b")
    median_a, median_b = a.at(0.5).value_h, b.at(0.5).value_h
    lo = hi = None
    if draws_a is not None and draws_b is not None:
        # A draw beyond the record stands for "longer than all that is known": an infinity that bounds nothing.
        both = np.where(np.isinf(draws_a) & np.isinf(draws_b), np.nan, draws_b - draws_a)
        finite = both[~np.isnan(both)]
        if len(finite) >= 0.9 * len(both):
            ends = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2], method="nearest")
            lo, hi = (float(end) if np.isfinite(end) else None for end in ends)
    difference = None if median_a is None or median_b is None else median_b - median_a
    return MedianDifference(
        name=a.name,
        median_a_h=median_a,
        median_b_h=median_b,
        difference_h=difference,
        lo_h=lo,
        hi_h=hi,
        n_a=a.n,
        n_b=b.n,
        level=level,
        method=f"bootstrap of the medians, {DRAWS} draws, seed {seed}",
        sentence=_difference_in_words(a.name, median_a, median_b, lo, hi, level),
    )


def _median_draws(of: Durations, sample: Sample, seed: int, side: str) -> np.ndarray | None:
    import numpy as np

    if of.n - of.open < EVENTS_MIN:
        return None
    closed = np.asarray(sample.closed_h[of.name], dtype=np.float64)
    still = np.asarray(sample.open_h.get(of.name, ()), dtype=np.float64)
    curve = kaplan_meier(closed, still)
    at = int(np.searchsorted(-curve.surviving, -0.5))
    at = min(at, len(curve.steps_h) - 1)
    share, greenwood = float(curve.surviving[at]), float(curve.greenwood[at])
    variance = share * share * greenwood if math.isfinite(greenwood) else 0.0
    # Uncensored this is n; censoring leaves the information of fewer.
    worth = min(float(of.n), share * (1 - share) / variance if variance > 0 else float(of.n))
    generator = numpy_stream(seed, "median", of.name, side)
    ranks = generator.beta((worth + 1) / 2, (worth + 1) / 2, size=DRAWS)
    cell = np.searchsorted(-curve.surviving, ranks - 1, side="left")
    return np.append(curve.steps_h, np.inf)[cell]


def _difference_in_words(
    name: str, a: float | None, b: float | None, lo: float | None, hi: float | None, level: float
) -> str:
    medians = f"median {format_hours(a)} against {format_hours(b)}"
    if lo is None and hi is None:
        return f"{name}: {medians}; too few, or too many open, for an interval."
    bounds = f"{_signed(lo)} to {_signed(hi)}, {level:.0%}"
    if lo is not None and lo > 0:
        return f"{name} takes longer: {medians} (difference {bounds})."
    if hi is not None and hi < 0:
        return f"{name} is faster: {medians} (difference {bounds})."
    return f"{name}: no difference shown, {medians} (difference {bounds})."


def _signed(hours: float | None) -> str:
    if hours is None:
        return "no bound"
    return ("-" if hours < 0 else "+") + format_hours(abs(hours))
