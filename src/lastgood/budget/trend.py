"""Is it getting worse? Three tests with different nulls, and the one that may say so.

Laplace's test asks whether the events of a *Poisson process* lie late in the window; on clustered failures it cries
wolf in 20 to 50 of 100 quiet fleets. Lewis and Robinson divide it by the variation of the gaps and so test a
constant *renewal* process. The headline here divides by the larger of two dispersions (squared variation of the gaps,
spread of the bin counts around a straight line), never by less than one, and reads the result on a Student scale:
bursts that overlap hide in either of the two, rarely in both. MIL-HDBK-189C sees shapes that Laplace is blind to (a
bathtub), but it also rejects on bursts without any trend: it is printed and never decides.

Source: Laplace (1773); Lewis and Robinson (1974); MIL-HDBK-189C (2011) section 6.3.2; Cox and Lewis (1966).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from lastgood.budget.dispersion import bins_for, check_times, count_in_bins
from lastgood.budget.finding import (
    ALPHA,
    EVENTS_MIN,
    Finding,
    format_p,
    normal_p,
    student_p,
    too_few,
    without_answer,
)
from lastgood.budget.spread import Spread, measure_spread

if TYPE_CHECKING:
    import numpy as np


class Truncation(enum.StrEnum):
    """What ended the observation. It decides which events a test may count."""

    TIME = "time"
    """At a time that the events did not choose."""
    FAILURE = "failure"
    """At the last event: it is then part of the window and no event of the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The trend tests of one group, and the verdict."""

    laplace: Finding
    mil_hdbk: Finding
    lewis_robinson: Finding
    headline: Finding
    """The one that decides; calibrated on Poisson, clustered and renewal processes."""
    direction: int
    """+1 rising, -1 falling, 0 no trend shown or too few to test."""
    truncation: Truncation
    is_operational: bool
    """Tested on cumulative exposure and not on the calendar."""
    is_untold: bool = False
    """There are events enough, but what was counted changes inside the window: no verdict, whatever the tests say."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, the one that decides first."""
        return (self.headline, self.laplace, self.lewis_robinson, self.mil_hdbk)


class _Truncated(NamedTuple):
    """The events that a test may count, and the end of its window."""

    times_h: np.ndarray
    end_h: float


def trend(
    times_h: np.ndarray,
    window_h: float,
    *,
    truncation: Truncation = Truncation.TIME,
    is_operational: bool = False,
    spread: Spread | None = None,
) -> Trend:
    """All trend tests, with a headline chosen by the dispersion of the counts.

    Assumes: operational time when the device count changes; one trend over the whole window.
    Source: see the module; the combination is calibrated by simulation.
    """
    times = check_times(times_h, window_h)
    first = laplace(times, window_h, truncation=truncation)
    if len(times) < EVENTS_MIN:
        decides, direction = first, 0
    else:
        spread = spread or measure_spread(times, window_h)
        decides = (
            first
            if spread.is_poisson_like
            else scaled_laplace(times, window_h, truncation=truncation)
        )
        direction = int(math.copysign(1, decides.statistic or 0.0)) if decides.is_rejected else 0
        if first.is_rejected and not decides.is_rejected:
            decides = _explained_by_bursts(decides, first)
    return Trend(
        laplace=first,
        mil_hdbk=mil_hdbk_189c(times, window_h, truncation=truncation),
        lewis_robinson=lewis_robinson(times, window_h, truncation=truncation),
        headline=decides,
        direction=direction,
        truncation=truncation,
        is_operational=is_operational,
    )


def without_verdict(found: Trend, why: str) -> Trend:
    """The same tests without a verdict, and with the reason beside each of them; `why` has no full stop."""
    if found.headline.is_rejected is None:
        return found

    def told(test: Finding) -> Finding:
        return replace(test, sentence=f"{test.sentence} No verdict on a trend: {why}.")

    return replace(
        found,
        laplace=told(found.laplace),
        mil_hdbk=told(found.mil_hdbk),
        lewis_robinson=told(found.lewis_robinson),
        headline=without_answer(found.headline, f"Could not tell: {why}."),
        direction=0,
        is_untold=True,
    )


def _explained_by_bursts(decides: Finding, first: Finding) -> Finding:
    """The verdict for the reader who saw Laplace's test reject and asks why the report does not."""
    where = "late" if (first.statistic or 0.0) > 0 else "early"
    shown = f"{decides.statistic_name} = {decides.statistic:+.2f}, {format_p(decides.p or 0.0)}"
    return replace(
        decides,
        sentence=(
            f"No trend shown ({shown}): the events lie {where} in the window (Laplace z = {first.statistic:+.2f}), "
            "but bursts as large as these do that by chance."
        ),
    )


def laplace_z(times_h: np.ndarray, window_h: float) -> float:
    """Mean position of the events in the window, in standard errors of a Poisson process."""
    n = len(times_h)
    return (float(times_h.mean()) / window_h - 0.5) * math.sqrt(12 * n)


def gap_cv(times_h: np.ndarray) -> float:
    """Standard deviation over mean of the gaps, the first counted from the window's start: 1 for a Poisson process."""
    import numpy as np

    gaps = np.diff(times_h, prepend=0.0)
    mean = float(gaps.mean())
    return float(gaps.std(ddof=1)) / mean if mean > 0 else 0.0


def laplace(
    times_h: np.ndarray, window_h: float, *, truncation: Truncation = Truncation.TIME
) -> Finding:
    """Laplace's test of a constant rate.

    Assumes: a Poisson process; bursts make it reject far too often.
    Source: Laplace (1773); Cox and Lewis (1966) section 3.3.
    """
    times, end_h = _truncated(times_h, window_h, truncation)
    null, source = (
        "a constant rate, events independent (Poisson)",
        "Laplace; Cox and Lewis (1966) 3.3",
    )
    assumes = f"Poisson process, {truncation}-truncated at {end_h:,.4g}"
    if len(times) < EVENTS_MIN:
        return too_few("Laplace", null=null, n=len(times), source=source, assumes=assumes)
    z = laplace_z(times, end_h)
    return _finding("Laplace", null, z, "z", normal_p(z), len(times), source, assumes)


def lewis_robinson(
    times_h: np.ndarray, window_h: float, *, truncation: Truncation = Truncation.TIME
) -> Finding:
    """Laplace's statistic over the variation of the gaps.

    Assumes: a renewal process: gaps independent of each other, of any shape.
    Source: Lewis and Robinson (1974).
    """
    times, end_h = _truncated(times_h, window_h, truncation)
    null, source = "a constant rate, gaps independent (renewal)", "Lewis and Robinson (1974)"
    assumes = f"renewal process, {truncation}-truncated at {end_h:,.4g}"
    if len(times) < EVENTS_MIN:
        return too_few("Lewis-Robinson", null=null, n=len(times), source=source, assumes=assumes)
    cv = gap_cv(times)
    z = laplace_z(times, end_h) / cv if cv > 0 else 0.0
    return _finding("Lewis-Robinson", null, z, "z", normal_p(z), len(times), source, assumes)


def scaled_laplace(
    times_h: np.ndarray, window_h: float, *, truncation: Truncation = Truncation.TIME
) -> Finding:
    """Lewis-Robinson with the larger of two dispersions and a Student scale: the headline on clustered failures.

    Assumes: bursts shorter than about a twentieth of the window; longer waves of the rate can look like a trend.
    Source: Lewis and Robinson (1974); spread of the counts around a line as in McCullagh and Nelder (1989) section
    9.2; the combination is ours and is calibrated by simulation.
    """
    times, end_h = _truncated(times_h, window_h, truncation)
    null = "a constant rate, events in bursts of any kind"
    source = "Lewis and Robinson (1974), with the larger of two dispersions on a Student scale"
    assumes = (
        f"bursts shorter than a twentieth of the window, {truncation}-truncated at {end_h:,.4g}"
    )
    name = "Lewis-Robinson, scaled"
    if len(times) < EVENTS_MIN:
        return too_few(name, null=null, n=len(times), source=source, assumes=assumes)
    bins = bins_for(len(times))
    around_line = spread_around_line(count_in_bins(times, end_h, bins))
    index = max(1.0, gap_cv(times) ** 2, around_line)
    t = laplace_z(times, end_h) / math.sqrt(index)
    return _finding(name, null, t, "t", student_p(t, bins - 2), len(times), source, assumes)


def spread_around_line(counts: np.ndarray) -> float:
    """Dispersion of counts around their straight line: what is left when a trend is taken out."""
    import numpy as np

    k, mean = len(counts), counts.mean()
    place = (np.arange(k) + 0.5) / k - 0.5
    slope = (place * (counts - mean)).sum() / (place * place).sum()
    fitted = np.maximum(mean + slope * place, 0.1 * mean)
    return float(((counts - mean - slope * place) ** 2 / fitted).sum() / (k - 2))


def mil_hdbk_189c(
    times_h: np.ndarray, window_h: float, *, truncation: Truncation = Truncation.TIME
) -> Finding:
    """The chi-square test against a power-law rate; it also rejects on bursts without a trend.

    Assumes: a Poisson process. Sees a bathtub, to which Laplace is blind.
    Source: MIL-HDBK-189C (2011) section 6.3.2; Crow (1974).
    """
    import numpy as np
    from scipy.special import gammainc, gammaincc

    times, end_h = _truncated(times_h, window_h, truncation)
    n = len(times)
    null, source = "a constant rate, events independent (Poisson)", "MIL-HDBK-189C (2011) 6.3.2"
    assumes = f"Poisson process, {truncation}-truncated at {end_h:,.4g}"
    if n < EVENTS_MIN:
        return too_few("MIL-HDBK-189C", null=null, n=n, source=source, assumes=assumes)
    # An event at the very start has a logarithm without bound: it counts as one at the finest step of the record.
    least = end_h * 1e-12
    statistic = 2 * float(np.log(end_h / np.maximum(times, least)).sum())
    below, above = float(gammainc(n, statistic / 2)), float(gammaincc(n, statistic / 2))
    p = min(1.0, 2 * min(below, above))
    is_rejected = p < ALPHA
    sentence = (
        f"Not a constant-rate Poisson process ({format_p(p)}); this test alone cannot say whether bursts or a trend."
        if is_rejected
        else f"A constant-rate Poisson process is not contradicted ({format_p(p)})."
    )
    return Finding(
        test="MIL-HDBK-189C",
        null=null,
        statistic=statistic,
        statistic_name=f"chi-square, {2 * n} degrees",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=sentence,
        limit="Rejected means not Poisson, which is not the same as a trend.",
        source=source,
        assumes=assumes,
    )


def _truncated(times_h: np.ndarray, window_h: float, truncation: Truncation) -> _Truncated:
    """The events that a test may count and where its window ends: a window that an event ended holds one less."""
    times = check_times(times_h, window_h)
    if truncation is Truncation.FAILURE and len(times):
        return _Truncated(times[:-1], max(float(times[-1]), window_h * 1e-12))
    return _Truncated(times, window_h)


def _finding(
    name: str, null: str, statistic: float, letter: str, p: float, n: int, source: str, assumes: str
) -> Finding:
    is_rejected = p < ALPHA
    way = "rising" if statistic > 0 else "falling"
    shown = f"{letter} = {statistic:+.2f}, {format_p(p)}"
    is_poisson = "Poisson" in null
    if not is_rejected:
        sentence = f"No trend shown ({shown})."
        limit = "A rate that falls and rises again, or a trend too small for this many events, would look the same."
    else:
        sentence = f"The rate is {way} ({shown})."
        limit = (
            "Bursts alone can do this: only the scaled test may call it a trend when the counts are dispersed."
            if is_poisson
            else "It says that the rate moved over this window, not why, and not that it goes on; a slow wave looks the same."
        )
    return Finding(
        test=name,
        null=null,
        statistic=statistic,
        statistic_name=letter,
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=sentence,
        limit=limit,
        source=source,
        assumes=assumes,
    )
