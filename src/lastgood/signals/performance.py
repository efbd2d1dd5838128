"""Are the ranks moving at the expected rate, and is it worth doing something about one that is not?

Think of a rope team: in a synchronous step everybody waits for the slowest, so all look equally slow. What
is compared is therefore each rank's *own* time (outside collectives), per unit of work where the script
reports its work, against the median of the *other* ranks in the same step. A host that slows all of them
down names nobody. What a rank waited for a processor, ready to run, is taken off first: another process on the
same host would wait as long, so a *starved* rank is recorded and never replaced for it.

A rank is `suspect` when it stayed slow over a window of steps. It is `failed`, and the loop replaces it, when
besides its pace *changed* (a rank that always was slower by the nature of its work is no new fault) and the
time that it has cost since has reached what replacing it costs. That is the rule of the ski rental: whoever
rents until the rent has reached the price, and then buys, never pays more than twice what was best in
hindsight. The price is learned from the run's own recoveries, and until there was one it is assumed.

Being slow never ends a job, so acting on it must not either. A rank is replaced for it once in half an hour at
the most (slow again in its next process: the work or the host is slow, and another process will not cure that),
and every replacement within that time doubles the price of the next one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lastgood.base.units import format_duration
from lastgood.signals.pace import MAD_TO_SIGMA, Change, Mark, RankPace, Usual, find_change
from lastgood.signals.reading import Assessment, Question, StepReport, Symptom, Verdict

_KEPT_RECOVERIES = 8
_DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceMemory:
    """Thresholds, what replacing a rank costs, and what is remembered of each rank (bounded)."""

    ratio_min: float = 1.3
    """A rank is slow in a step when it took this many times what is usual for it, relative to its peers."""
    deviations_min: float = 2.5
    """... and lies this many robust standard deviations above that, and above its peers."""
    window_count: int = 10
    """Steps looked back on."""
    slow_count_min: int = 8
    """Slow steps within the window that make it persistent."""
    usual_count_min: int = 20
    """Steps that have to be known before a change of pace can be told from a rank's nature."""
    usual_count_max: int = 64
    """Steps kept as the usual ones."""
    skip_count: int = 3
    """First steps of a generation that teach nothing: caches are cold and memory is touched the first time."""
    assumed_cost_us: int = 30_000_000
    """What replacing a rank is taken to cost, as long as this run has not recovered once."""
    again_us: int = 1_800_000_000
    """A rank that was replaced for being slow is only recorded for so long."""
    may_act: bool = True
    """False: a slow rank is recorded and never replaced."""
    recoveries_us: tuple[int, ...] = ()
    """From detection to new steps, of the run's last recoveries."""
    skipped_count: int = 0
    replaced_us: Mapping[int, int] = field(default_factory=dict)
    """Rank -> when it was last replaced for being slow."""
    ranks: Mapping[int, RankPace] = field(default_factory=dict)

    @property
    def cost_us(self) -> int:
        """How long the job stands still when a rank is replaced."""
        if not self.recoveries_us:
            return self.assumed_cost_us
        return int(statistics.median(self.recoveries_us))

    def recently_replaced(self, now_us: int) -> frozenset[int]:
        """The ranks that were replaced for being slow a short time ago."""
        return frozenset(r for r, at in self.replaced_us.items() if now_us - at < self.again_us)

    def price_us(self, now_us: int) -> int:
        """What a slow rank has to have cost before it is replaced: the cost, doubled for each recent replacement."""
        return self.cost_us << min(len(self.recently_replaced(now_us)), _DOUBLINGS_MAX)


class PerformanceResult(NamedTuple):
    """The verdict after one step and the memory after it."""

    assessment: Assessment
    memory: PerformanceMemory


def learn_recovery(memory: PerformanceMemory, duration_us: int) -> PerformanceMemory:
    """The memory after one more recovery of this run; it says what the next one will cost."""
    kept = (*memory.recoveries_us, max(0, duration_us))[-_KEPT_RECOVERIES:]
    return replace(memory, recoveries_us=kept)


def begin_generation(memory: PerformanceMemory) -> PerformanceMemory:
    """The memory when other processes may serve: the next steps are warm-up, windows start afresh."""
    ranks = {
        rank: replace(pace, recent=(), began=None, lost_us=0) for rank, pace in memory.ranks.items()
    }
    return replace(memory, skipped_count=0, ranks=ranks)


def assess(
    reports: Sequence[StepReport], *, memory: PerformanceMemory, now_us: int
) -> PerformanceResult:
    """Names the ranks whose own time rose above their peers' and stayed there."""
    if len(reports) < 2:
        words = ("a rank can be called slow only against peers",)
        return PerformanceResult(
            Assessment(question=Question.PERFORMANCE, verdict=Verdict.UNKNOWN, evidence=words),
            memory,
        )
    if memory.skipped_count < memory.skip_count:
        return PerformanceResult(_ok(), replace(memory, skipped_count=memory.skipped_count + 1))
    marks = _marks(reports, memory=memory, now_us=now_us)
    ranks = {
        rank: memory.ranks.get(rank, RankPace()).after(
            mark,
            window_count=memory.window_count,
            slow_count_min=memory.slow_count_min,
            usual_count=(memory.usual_count_min, memory.usual_count_max),
        )
        for rank, mark in marks.items()
    }
    return _verdict(replace(memory, ranks=ranks), world=len(reports), now_us=now_us)


# --- one step ---------------------------------------------------------------------------------------


def _marks(
    reports: Sequence[StepReport], *, memory: PerformanceMemory, now_us: int
) -> dict[int, Mark]:
    """Each rank of one step against its peers, and what its slowness cost the job in this step."""
    whole_us = {r.rank: max(1, r.self_us + r.between_us) for r in reports}
    own_us = {r.rank: max(1, whole_us[r.rank] - (r.starved_us or 0)) for r in reports}
    work = {r.rank: _work_of(r, reports) for r in reports}
    pace = {rank: own_us[rank] / work[rank] for rank in own_us}
    whole_pace = {rank: whole_us[rank] / work[rank] for rank in own_us}
    levels, slow, starved, wanted_us = {}, set(), set(), {}
    for rank, mine in pace.items():
        others = _others(pace, rank)
        middle = statistics.median(others)
        usual = memory.ranks.get(rank, RankPace()).usual_level(count_min=memory.usual_count_min)
        levels[rank] = math.log(mine / middle)
        wanted_us[rank] = middle * work[rank] * math.exp(usual.level if usual else 0.0)
        if _is_slow(mine, others=others, usual=usual, memory=memory):
            slow.add(rank)
        elif _is_slow(
            whole_pace[rank], others=_others(whole_pace, rank), usual=usual, memory=memory
        ):
            starved.add(rank)
    well_us = max((us for rank, us in own_us.items() if rank not in slow), default=0)
    return {
        r.rank: Mark(
            r.step,
            levels[r.rank],
            r.rank in slow,
            int(max(0.0, own_us[r.rank] - max(wanted_us[r.rank], well_us)))
            if r.rank in slow
            else 0,
            now_us,
            waited_ratio=None if r.starved_us is None else r.starved_us / whole_us[r.rank],
            is_starved=r.rank in starved,
        )
        for r in reports
    }


def _others(pace: Mapping[int, float], rank: int) -> list[float]:
    return [value for other, value in pace.items() if other != rank]


def _work_of(report: StepReport, reports: Sequence[StepReport]) -> float:
    """Work units of the rank; 1 unless every rank of the step reported some."""
    units = [r.work for r in reports]
    if report.work is None or not all(u is not None and 0 < u < math.inf for u in units):
        return 1.0
    return report.work


def _is_slow(
    mine: float, *, others: Sequence[float], usual: Usual | None, memory: PerformanceMemory
) -> bool:
    """Above its peers in this step, and above what is usual for it."""
    middle = statistics.median(others)
    if mine <= middle:
        return False
    deviations = MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in others)
    if not mine > middle + memory.deviations_min * deviations:
        return False
    level, bar = math.log(mine / middle), math.log(memory.ratio_min)
    if usual is None:
        return level > bar
    bar = max(usual.level + max(bar, memory.deviations_min * usual.spread), usual.high)
    return level > bar


# --- over the window --------------------------------------------------------------------------------


class _Slow(NamedTuple):
    """A rank that stayed slow, with what is known about it."""

    rank: int
    pace: RankPace
    change: Change | None
    """How its pace moved; None when it did not, or when too little is known."""
    is_known: bool


def _verdict(memory: PerformanceMemory, *, world: int, now_us: int) -> PerformanceResult:
    price_us = memory.price_us(now_us)
    barred = memory.recently_replaced(now_us)
    slow = [
        _look_closer(rank, pace, memory=memory, price_us=price_us)
        for rank, pace in sorted(memory.ranks.items())
        if pace.is_persistent(memory.slow_count_min)
    ]
    if not slow:
        return PerformanceResult(_starved(memory), memory)
    due = [
        s
        for s in slow
        if s.change is not None
        and s.pace.lost_us >= price_us
        and s.rank not in barred
        and s.pace.is_wait_known
    ]
    named = due if due and memory.may_act else slow
    assessment = Assessment(
        question=Question.PERFORMANCE,
        verdict=Verdict.FAILED if named is due else Verdict.SUSPECT,
        symptom=Symptom.SLOW,
        culprits=tuple(s.rank for s in named),
        onset_us=min(s.pace.began.seen_us for s in named if s.pace.began is not None),
        evidence=tuple(_words(s, memory=memory, world=world, now_us=now_us) for s in named),
        lost_device_us=world * max(s.pace.lost_us for s in named),
    )
    if assessment.verdict is Verdict.FAILED:
        # If the rank is as slow again in the next process, that is the nature of its work: it starts afresh.
        ranks = {r: RankPace() if r in assessment.culprits else p for r, p in memory.ranks.items()}
        replaced_us = {**memory.replaced_us, **dict.fromkeys(assessment.culprits, now_us)}
        memory = replace(memory, ranks=ranks, replaced_us=replaced_us)
    return PerformanceResult(assessment, memory)


def _starved(memory: PerformanceMemory) -> Assessment:
    """Suspect, with the ranks that stayed slow for want of a processor; ok without any."""
    found = [
        (rank, pace.recent)
        for rank, pace in sorted(memory.ranks.items())
        if pace.is_persistently_starved(memory.slow_count_min)
    ]
    if not found or len(found) == len(memory.ranks):
        return _ok()
    hit = [[m for m in recent if m.is_slow or m.is_starved] for _, recent in found]
    return Assessment(
        question=Question.PERFORMANCE,
        verdict=Verdict.SUSPECT,
        symptom=Symptom.SLOW,
        culprits=tuple(rank for rank, _ in found),
        onset_us=min(marks[0].seen_us for marks in hit),
        evidence=tuple(
            f"rank {rank}: starved, not slow by itself: in {len(marks)} of its last {len(recent)} steps it took "
            f"longer than its peers, ready to run without a processor for "
            f"{statistics.median(m.waited_ratio or 0.0 for m in marks):.0%} of that time; recorded only"
            for (rank, recent), marks in zip(found, hit, strict=True)
        ),
    )


def _look_closer(rank: int, pace: RankPace, *, memory: PerformanceMemory, price_us: int) -> _Slow:
    """Whether the pace of a persistently slow rank changed, as far as can be told.

    Asked only when the answer is used: when the verdict is new, and when acting would pay.
    """
    is_new = pace.began is not None and pace.began in pace.recent
    if not is_new and pace.lost_us < price_us:
        return _Slow(rank, pace, None, is_known=True)
    if len(pace.usual) < memory.usual_count_min:
        return _Slow(rank, pace, None, is_known=False)
    levels = (*pace.usual, *(mark.level for mark in pace.recent))
    change = find_change(levels, least_count=memory.slow_count_min // 2)
    is_upward = (
        change is not None
        and change.after - change.before >= math.log(memory.ratio_min)
        and change.index >= len(levels) - 2 * memory.window_count
    )
    return _Slow(rank, pace, change if is_upward else None, is_known=True)


def _words(slow: _Slow, *, memory: PerformanceMemory, world: int, now_us: int) -> str:
    """The evidence in one sentence: how slow, since when, what it cost, and what acting would cost."""
    pace = slow.pace
    count = sum(mark.is_slow for mark in pace.recent)
    now = math.exp(statistics.median(mark.level for mark in pace.recent))
    began = pace.began or pace.recent[0]
    words = (
        f"rank {slow.rank}: {count} of its last {len(pace.recent)} steps slow, {now:.2f} times its "
        f"peers' own time"
    )
    if slow.change is not None:
        words += f", before that {math.exp(slow.change.before):.2f} times"
    elif not slow.is_known:
        words += ", and nothing is known about how it was before"
    else:
        words += ", without a change of pace that stands out from its earlier steps"
    cost = "assumed, no recovery was measured in this run yet"
    if memory.recoveries_us:
        cost = f"median of {len(memory.recoveries_us)} recoveries of this run"
    return (
        f"{words}; slow since step {began.step}, lost so far {format_duration(world * pace.lost_us)} "
        f"of device time, replacing a rank costs {format_duration(world * memory.cost_us)} ({cost})"
        f"{_restraint(slow.rank, memory=memory, now_us=now_us)}"
    )


def _restraint(rank: int, *, memory: PerformanceMemory, now_us: int) -> str:
    """Why nothing, or nothing yet, is done about a slow rank although it costs more than a recovery."""
    recent = memory.recently_replaced(now_us)
    if not memory.may_act:
        return "; slow ranks are recorded and not replaced here"
    if not memory.ranks[rank].is_wait_known:
        return (
            "; this kernel does not say how long it waited for a processor, so it is only recorded"
        )
    if rank in recent:
        ago = format_duration(now_us - memory.replaced_us[rank])
        return f"; it was replaced for this {ago} ago, so it is only recorded"
    if recent:
        times = 2 ** min(len(recent), _DOUBLINGS_MAX)
        return f"; taken {times} times, since ranks were replaced for being slow a short time ago"
    return ""


def _ok() -> Assessment:
    return Assessment(question=Question.PERFORMANCE, verdict=Verdict.OK)
