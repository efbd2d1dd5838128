"""Each claim in numbers: which values, by which statistic, and what it would take to tell.

What never happened is worse than everything that did. What nobody knows counts against the answer, whichever it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lastgood.budget import mean_shift, rank_shift
from lastgood.budget.order_statistics import quantile_ranks
from lastgood.budget.rank_shift import Stratum
from lastgood.evidence.claim_ettr import ettr
from lastgood.evidence.claim_records import (
    POWER,
    TOO_FEW,
    Asked,
    ClaimName,
    Found,
    SideSummary,
    finite,
    make_result,
)
from lastgood.evidence.claim_sides import Counted, Side
from lastgood.evidence.claim_strata import Strata, strata_of

LEAST = 1e-300
"""Stands before every time, as infinity stands behind it."""


def measure(claim: ClaimName, before: Side, after: Side, asked: Asked) -> Found:
    """The numbers of one claim, before any answer."""
    match claim:
        case ClaimName.ETTR:
            return ettr(before, after, asked)
        case ClaimName.LOST_WORK:
            return _lost_work(before, after, asked)
        case ClaimName.RECOVERY_TIME:
            take: Callable[[Counted], float | None] = lambda c: c.recovery_us  # noqa: E731
            words = "from the detection to the end of the incident, verification included"
        case ClaimName.DETECTION_LATENCY:
            is_true = all(
                c.since_injection_us is not None for side in (before, after) for c in side.counted
            )
            take = (lambda c: c.since_injection_us) if is_true else (lambda c: c.since_onset_us)
            words = f"from the {'injection' if is_true else 'recorded onset'} to the detection"
    return _times(claim, words, take, before, after, asked)


# --- times: ranks ---------------------------------------------------------------------------------


def _times(
    claim: ClaimName, words: str, take: Callable[[Counted], float | None], before: Side, after: Side, asked: Asked
) -> Found:  # fmt: skip
    strata = strata_of(take, before, after, asked.changed)
    known = strata.known
    shift = rank_shift.ratio_shift(known, level=asked.level)
    worst = best = shift
    p = rank_shift.p_of_ratio(known, asked.at_least)
    if strata.has_unknown:
        for_it = strata.filled(LEAST, math.inf)
        worst = rank_shift.ratio_shift(for_it, level=asked.level)
        best = rank_shift.ratio_shift(strata.filled(math.inf, LEAST), level=asked.level)
        p = rank_shift.p_of_ratio(for_it, asked.at_least)
    obstacles = [*strata.obstacles]
    if strata.groups and not shift.can_tell:
        obstacles.append(_too_few(shift.n_a, shift.n_b, shift.p_min, asked))
    result = make_result(
        claim, asked, measure=words, unit="us", statistic="median", effect_unit="ratio",
        before=_summary(before, strata.all_of(0), asked), after=_summary(after, strata.all_of(1), asked),
        effect=shift.ratio if strata.groups else None, lo=shift.lo, hi=shift.hi, p=p, method=rank_shift.METHOD,
        needed=_needed_ratio(shift.ratio, rank_shift.log_spread(known), asked) if strata.groups else "",
        strata=strata.rows(_median), left_out=strata.left_out, is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    return Found(
        result=result,
        p_better=p,
        p_any=best.p,
        is_better=worst.ratio is not None and worst.ratio > asked.at_least,
        is_worse=best.ratio is not None and best.ratio < 1,
        obstacles=tuple(obstacles),
        to_name=strata.to_name,
        has_unknown=strata.has_unknown,
    )


def _too_few(n_a: int, n_b: int, p_min: float, asked: Asked) -> str:
    return (
        f"{TOO_FEW}: whatever {n_a} and {n_b} values say, chance explains it (p is {p_min:.2g} at best); "
        f"{rank_shift.smallest_n(asked.level)} on each side of one kind are the least"
    )


def _needed_ratio(ratio: float | None, spread: float | None, asked: Asked) -> str:
    """What it would take, at the scatter that was seen."""
    if spread is None:
        return "Each kind has one value: at least two of a kind on a side show how they scatter."
    beyond = (ratio or 0) / asked.at_least
    beyond, why = (beyond, "the factor that was seen") if beyond > 1.05 else (2.0, "a factor of 2")
    beyond = min(beyond, 1e6)
    n = rank_shift.values_needed(beyond, log_spread=spread, level=asked.level, power=POWER)
    past = "" if asked.at_least == 1 else f" beyond {asked.at_least:g}"
    return f"To show {why} ({beyond:.2g}{past}) in {POWER:.0%} of trials takes about {n} of one kind on each side."


def _summary(side: Side, values: Sequence[float], asked: Asked) -> SideSummary:
    ordered = sorted(values)
    lo = hi = None
    if ordered:
        ranks = quantile_ranks(len(ordered), 0.5, level=asked.level)
        lo, hi = (None if at is None else finite(ordered[at]) for at in (ranks.lo, ranks.hi))
    return SideSummary(
        name=side.name, n=len(ordered), value=finite(_median(ordered)), lo=lo, hi=hi, never=ordered.count(math.inf)
    )  # fmt: skip


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


# --- lost steps: means ----------------------------------------------------------------------------


def _lost_work(before: Side, after: Side, asked: Asked) -> Found:
    """An incident that ended the job lost more than any other did: how much more is nowhere on record."""
    limit = 1 + max((c.lost_at_least for s in (before, after) for c in s.counted), default=0.0)
    strata = strata_of(
        lambda c: None if c.lost_steps is None else min(c.lost_steps, limit), before, after, asked.changed
    )  # fmt: skip
    known = strata.known
    worst = _scaled(strata.filled(0.0, limit), asked.at_least)
    shift = mean_shift.mean_shift(known, level=asked.level)
    claimed = mean_shift.mean_shift(worst, level=asked.level)
    best = mean_shift.mean_shift(strata.filled(limit, 0.0), level=asked.level)
    obstacles = [*strata.obstacles, *_unbounded(strata, limit, shift.difference)]
    if strata.groups and not shift.can_tell:
        obstacles.append(_too_few(shift.n_a, shift.n_b, shift.p_min, asked))
    never = [strata.all_of(side).count(limit) for side in (0, 1)]
    words = "training steps that an incident made do again"
    if any(never):
        words += f"; {limit:g} for one that ended the job, more than any other"
    result = make_result(
        ClaimName.LOST_WORK, asked, measure=words, unit="steps", statistic="mean", effect_unit="steps",
        before=_mean_summary(before, strata.all_of(0), never[0]), after=_mean_summary(after, strata.all_of(1), never[1]),
        effect=shift.difference if shift.n_a else None, lo=shift.lo, hi=shift.hi, p=claimed.p,
        method=mean_shift.METHOD, needed=_needed_steps(strata, shift, asked), strata=strata.rows(_mean),
        left_out=strata.left_out, is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    return Found(
        result=result,
        p_better=claimed.p,
        p_any=best.p,
        is_better=claimed.difference > 0,
        is_worse=best.difference < 0,
        obstacles=tuple(obstacles),
        to_name=strata.to_name,
        has_unknown=strata.has_unknown,
    )


def _scaled(strata: Sequence[Stratum], at_least: float) -> list[Stratum]:
    return [Stratum(s.a, [at_least * v for v in s.b]) for s in strata]


def _unbounded(strata: Strata, limit: float, difference: float) -> list[str]:
    """The side that loses less per incident ended the job more often: the answer hangs on what that lost."""
    ended = mean_shift.difference_of_means([
        Stratum([float(v == limit) for v in s.a], [float(v == limit) for v in s.b]) for s in strata.known
    ])  # fmt: skip
    if ended * difference >= 0:
        return []
    values = [strata.all_of(side) for side in (0, 1)]
    never, total = [v.count(limit) for v in values], [len(v) for v in values]
    ends = f"{never[0]} of {total[0]} incidents before and {never[1]} of {total[1]} after ended the job"
    return [f"{ends}, and what that lost is not on record"]


def _needed_steps(strata: Strata, shift: mean_shift.MeanShift, asked: Asked) -> str:
    if not strata.groups:
        return ""
    if not any(strata.all_of(0)) and not any(strata.all_of(1)):
        return "Neither side lost a step: there is nothing to improve on."
    if not shift.difference:
        return "The means are equal: no number of incidents shows a difference of nothing."
    from scipy.special import ndtri

    spread = sum(_variance(strata.all_of(side)) for side in (0, 1))
    reach = float(ndtri(1 - (1 - asked.level) / 2)) + float(ndtri(POWER))
    n = max(rank_shift.smallest_n(asked.level), math.ceil(reach**2 * spread / shift.difference**2))
    return (
        f"To show the difference that was seen ({shift.difference:.2g} steps) in {POWER:.0%} of trials takes about {n} "
        "incidents on each side."
    )


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values) or 0.0
    return sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_summary(side: Side, values: Sequence[float], never: int) -> SideSummary:
    return SideSummary(
        name=side.name, n=len(values), value=_mean(values), lo=None, hi=None, never=never
    )
