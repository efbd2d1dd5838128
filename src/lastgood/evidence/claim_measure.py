"""Each claim in numbers: which values, by which statistic, and what it would take to tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lastgood.budget import mean_shift, rank_shift, share_shift
from lastgood.budget.order_statistics import quantile_ranks
from lastgood.budget.rank_shift import Stratum
from lastgood.evidence.claim_records import (
    POWER,
    Asked,
    ClaimName,
    ClaimResult,
    Found,
    SideSummary,
    StratumRow,
)
from lastgood.evidence.claim_sides import Counted, Side


def measure(claim: ClaimName, before: Side, after: Side, asked: Asked) -> Found:
    """The numbers of one claim, before any answer."""
    match claim:
        case ClaimName.ETTR:
            return _ettr(before, after, asked)
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


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The values of both sides by kind of fault."""

    kinds: tuple[str, ...]
    strata: tuple[Stratum, ...]
    rows: tuple[StratumRow, ...]
    left_out: tuple[str, ...]
    obstacles: tuple[str, ...]

    def all_of(self, side: int) -> list[float]:
        return [value for stratum in self.strata for value in stratum[side]]


def _by_kind(
    take: Callable[[Counted], float | None], before: Side, after: Side, middle: Callable[[Sequence[float]], float | None]
) -> _Sorted:  # fmt: skip
    sides: list[dict[str, list[float]]] = [{}, {}]
    unknown = [0, 0]
    for number, side in enumerate((before, after)):
        for counted in side.counted:
            value = take(counted)
            if value is None:
                unknown[number] += 1
            else:
                sides[number].setdefault(counted.kind, []).append(value)
    kinds = tuple(sorted(sides[0].keys() & sides[1].keys()))
    left_out, obstacles = [], []
    for number, word in enumerate(("before", "after")):
        if unknown[number]:
            left_out.append(f"{unknown[number]} incidents {word} without this on record")
        alone = sorted(sides[number].keys() - set(kinds))
        total = sum(map(len, sides[number].values()))
        lost = sum(len(sides[number][kind]) for kind in alone)
        if alone:
            left_out.append(f"only {word}: {', '.join(alone)} ({lost} of {total})")
        if total and lost * 2 > total:
            obstacles.append(
                f"different faults: {lost} of {total} {word} are of a kind that the other side lacks"
            )
    rows = tuple(
        StratumRow(
            kind=kind,
            n_before=len(sides[0][kind]),
            n_after=len(sides[1][kind]),
            before=middle(sides[0][kind]),
            after=middle(sides[1][kind]),
        )
        for kind in kinds
    )
    strata = tuple(Stratum(sides[0][kind], sides[1][kind]) for kind in kinds)
    if not kinds:
        empty = [
            word for word, values in zip(("before", "after"), sides, strict=True) if not values
        ]
        obstacles = [f"no incident {word} has this on record" for word in empty]
        obstacles = obstacles or ["no kind of fault is on both sides"]
    return _Sorted(kinds, strata, rows, tuple(left_out), tuple(obstacles))


def _times(
    claim: ClaimName, words: str, take: Callable[[Counted], float | None], before: Side, after: Side, asked: Asked
) -> Found:  # fmt: skip
    by_kind = _by_kind(take, before, after, _median)
    shift = rank_shift.ratio_shift(by_kind.strata, level=asked.level)
    p = rank_shift.p_of_ratio(by_kind.strata, asked.at_least)
    spread = rank_shift.log_spread(by_kind.strata)
    obstacles = [*by_kind.obstacles]
    if by_kind.kinds and not shift.can_tell:
        obstacles.append(_too_few(shift.n_a, shift.n_b, shift.p_min, asked))
    ratio = shift.ratio
    result = _result(
        claim, asked, measure=words, unit="us", statistic="median", effect_unit="ratio",
        before=_summary(before, by_kind.all_of(0), asked), after=_summary(after, by_kind.all_of(1), asked),
        effect=ratio if by_kind.kinds else None, lo=shift.lo, hi=shift.hi, p=p, method=rank_shift.METHOD,
        needed=_needed_ratio(ratio, spread, asked) if by_kind.kinds else "", by_kind=by_kind, is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    return Found(
        result=result,
        p_better=p,
        p_any=shift.p,
        is_better=ratio is not None and ratio > asked.at_least,
        is_worse=ratio is not None and ratio < 1,
        obstacles=tuple(obstacles),
    )


def _too_few(n_a: int, n_b: int, p_min: float, asked: Asked) -> str:
    return (
        f"too few: whatever {n_a} and {n_b} values say, chance explains it (p is {p_min:.2g} at best); "
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
        lo, hi = (None if at is None else _finite(ordered[at]) for at in (ranks.lo, ranks.hi))
    return SideSummary(
        name=side.name, n=len(ordered), value=_finite(_median(ordered)), lo=lo, hi=hi, never=ordered.count(math.inf)
    )  # fmt: skip


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# --- lost steps: means ----------------------------------------------------------------------------


def _lost_work(before: Side, after: Side, asked: Asked) -> Found:
    by_kind = _by_kind(lambda c: c.lost_steps, before, after, _mean)
    shift = mean_shift.mean_shift(by_kind.strata, level=asked.level)
    scaled = [Stratum(s.a, [asked.at_least * v for v in s.b]) for s in by_kind.strata]
    claimed = shift if asked.at_least == 1 else mean_shift.mean_shift(scaled, level=asked.level)
    obstacles = [*by_kind.obstacles]
    if by_kind.kinds and not shift.can_tell:
        obstacles.append(_too_few(shift.n_a, shift.n_b, shift.p_min, asked))
    result = _result(
        ClaimName.LOST_WORK, asked, measure="training steps that an incident made do again", unit="steps",
        statistic="mean", effect_unit="steps", before=_mean_summary(before, by_kind.all_of(0)),
        after=_mean_summary(after, by_kind.all_of(1)), effect=shift.difference if by_kind.kinds else None,
        lo=shift.lo, hi=shift.hi, p=claimed.p, method=mean_shift.METHOD,
        needed=_needed_steps(by_kind, shift, asked), by_kind=by_kind, is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    return Found(
        result=result,
        p_better=claimed.p,
        p_any=shift.p,
        is_better=claimed.difference > 0,
        is_worse=shift.difference < 0,
        obstacles=tuple(obstacles),
    )


def _needed_steps(by_kind: _Sorted, shift: mean_shift.MeanShift, asked: Asked) -> str:
    if not by_kind.kinds:
        return ""
    if not any(by_kind.all_of(0)) and not any(by_kind.all_of(1)):
        return "Neither side lost a step: there is nothing to improve on."
    if not shift.difference:
        return "The means are equal: no number of incidents shows a difference of nothing."
    from scipy.special import ndtri

    spread = sum(_variance(by_kind.all_of(side)) for side in (0, 1))
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


def _mean_summary(side: Side, values: Sequence[float]) -> SideSummary:
    return SideSummary(name=side.name, n=len(values), value=_mean(values), lo=None, hi=None)


# --- useful time: shares --------------------------------------------------------------------------


def _ettr(before: Side, after: Side, asked: Asked) -> Found:
    words = "useful time over wall time without planned stops, all runs together"
    a, b = before.pieces, after.pieces
    shift = share_shift.share_shift(a, b, level=asked.level) if a and b else None
    p = share_shift.p_of_waste_ratio(a, b, asked.at_least) if shift else 1.0
    obstacles = []
    if shift is None:
        obstacles.append("a side has no run whose steps are on record")
    elif not shift.can_tell:
        obstacles.append(
            f"too few: {len(a)} and {len(b)} pieces between incidents, and {share_shift.PIECES_MIN} on each side are "
            "the least that scatter"
        )
    obstacles += _different_injections(before, after)
    n = share_shift.pieces_needed(shift, a, b) if shift else None
    needed = (
        "" if n is None or shift is None
        else f"To show the difference that was seen ({shift.difference:+.2g}) in {POWER:.0%} of trials takes about {n} "
        "pieces between incidents on each side."
    )  # fmt: skip
    result = _result(
        ClaimName.ETTR, asked, measure=words, unit="ratio", statistic="share", effect_unit="share",
        before=_share_summary(before, None if shift is None else shift.share_a),
        after=_share_summary(after, None if shift is None else shift.share_b),
        effect=None if shift is None else shift.difference, lo=None if shift is None else shift.lo,
        hi=None if shift is None else shift.hi, p=p, method=share_shift.METHOD, needed=needed, by_kind=None,
        is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    claimed = 0.0 if shift is None else (1 - shift.share_a) - asked.at_least * (1 - shift.share_b)
    return Found(
        result=result,
        p_better=p,
        p_any=1.0 if shift is None else shift.p,
        is_better=claimed > 0,
        is_worse=shift is not None and shift.difference < 0,
        obstacles=tuple(obstacles),
    )


def _different_injections(before: Side, after: Side) -> list[str]:
    """In the field the mix of faults is part of the answer; on purpose it is what somebody chose."""
    kinds = [Counter(c.kind for c in side.counted) for side in (before, after)]
    if not (before.is_injected or after.is_injected) or kinds[0] == kinds[1]:
        return []
    more = [sorted((kinds[i] - kinds[1 - i]).elements()) for i in (0, 1)]
    words = [
        f"{word} has more of: {', '.join(extra)}"
        for word, extra in zip(("before", "after"), more, strict=True)
        if extra
    ]
    return [f"different faults were injected: {'; '.join(words)}"]


def _share_summary(side: Side, share: float | None) -> SideSummary:
    return SideSummary(name=side.name, n=len(side.pieces), value=share, lo=None, hi=None)


def _result(
    claim: ClaimName, asked: Asked, *, measure: str, unit: str, statistic: str, effect_unit: str,
    before: SideSummary, after: SideSummary, effect: float | None, lo: float | None, hi: float | None, p: float,
    method: str, needed: str, by_kind: _Sorted | None, is_injected: bool,
) -> ClaimResult:  # fmt: skip
    return ClaimResult(
        claim=str(claim), measure=measure, unit=unit, statistic=statistic, before=before, after=after,
        effect=_finite(effect), effect_unit=effect_unit, lo=_finite(lo), hi=_finite(hi), level=asked.level, p=p,
        p_adjusted=None, at_least=asked.at_least, answer="", reasons=(), needed=needed, method=method,
        is_injected=is_injected, differing=(), strata=() if by_kind is None else by_kind.rows,
        left_out=() if by_kind is None else by_kind.left_out,
    )  # fmt: skip
