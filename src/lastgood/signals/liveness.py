"""Are the ranks moving, and if not, whose fault is it?

Think of a convoy at a level crossing: everybody stands still, and asking drivers "are you moving?" names
all of them. The right question is who has *not reached* the place where the others wait. In a training
step that place is a collective: every rank counts the collectives it enters, so the rank with the lowest
count that is not itself waiting is the one all others wait for.

The evidence is read in a fixed order, strongest first: a process that ended, an exception of the user's
code, a rank that is overdue and behind its peers, a rank that the kernel says is stopped. When nothing
of that names anybody, the answer is *unknown*; it is never a guess and never ok.

Pure: what must be remembered between two looks is a `LivenessMemory`, passed in and made by `remember`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lastgood.signals.limits import Limits, limit_us
from lastgood.signals.reading import (
    Assessment,
    Phase,
    ProcessState,
    Question,
    Raised,
    RankReading,
    Symptom,
    Verdict,
)

_SIGABRT = 6
"""How the C library ends a process that gave up by itself: the same number on every Linux."""
_ACTIVE_RATIO_MIN = 0.1
"""Share of wall time on a CPU that a process which waits does not reach, even on a host full of others."""
_WANTED_RATIO_MIN = 0.8
"""Share of wall time that was spent running or waiting to run by a process that never sleeps."""
_OWN_CODE = frozenset({Phase.LAUNCHING, Phase.BETWEEN, Phase.COMPUTE})
_BUSY_RATIO_MIN = 0.5
"""Share of wall time that must go to the run queue (starved) or to the CPU (spinning) to say so."""
_TOLD_US_MIN = 1_000_000
"""The evidence tells how long a rank is waited for when that is so much shorter than its silence."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The first reading of a rank since it last made progress: deltas are measured from here."""

    reading: RankReading
    seen_us: int


@dataclass(frozen=True, slots=True)
class LivenessMemory:
    """What liveness remembers between two looks: one anchor per rank."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)


def remember(
    previous: LivenessMemory | None, readings: Sequence[RankReading], *, now_us: int
) -> LivenessMemory:
    """The memory after this look; a rank that moved, changed its worker or generation starts afresh."""
    old = previous.anchors if previous is not None else {}
    anchors: dict[int, Anchor] = {}
    for reading in readings:
        known = old.get(reading.rank)
        is_same = known is not None and _place(known.reading) == _place(reading)
        anchors[reading.rank] = known if is_same and known is not None else Anchor(reading, now_us)
    return LivenessMemory(anchors)


def assess(
    readings: Sequence[RankReading],
    *,
    limits: Limits,
    now_us: int,
    previous: LivenessMemory | None = None,
) -> Assessment:
    """One verdict on all ranks of a generation: failed with culprits, suspect, unknown, or ok."""
    if not readings:
        return _answer(Verdict.UNKNOWN, evidence=("no rank reported anything",))
    found = assess_ends(readings)
    if found is not None:
        return found
    moving = [reading for reading in readings if reading.exit_code is None]
    hang = _hang(moving, limits=limits, now_us=now_us, previous=previous)
    if hang is not None and hang.verdict is not Verdict.SUSPECT:
        return hang
    group = _group_error(moving, limits=limits, now_us=now_us)
    if group is not None:
        return group
    return hang if hang is not None else _answer(Verdict.OK)


def assess_ends(readings: Sequence[RankReading]) -> Assessment | None:
    """A process that ended or user code that raised: the strongest evidence there is; None when there is none.

    What the kernel says of a living process is not asked for here.
    """
    exited = [r for r in readings if r.exit_code is not None and not _is_done(r)]
    raised = [
        r for r in readings if r.exit_code is None and r.raised and not r.raised.is_group_error
    ]
    # A rank that died *of* a peer's death raised a group error first: it is part of the cascade.
    initiating = [r for r in exited if not is_cascade(r.raised, r.exit_code)]
    own_code = [r for r in initiating if r.raised and not r.raised.is_group_error]
    if own_code and len(own_code) == len(initiating):
        raised = [*raised, *own_code]
        initiating = []
    if initiating or (exited and not raised):
        culprits = initiating or exited
        return _answer(
            Verdict.FAILED,
            Symptom.PROCESS_EXIT,
            culprits,
            onset_us=min(r.progress_us for r in culprits),
            evidence=tuple(
                f"rank {r.rank} ({r.worker}) ended{_early(r)}: {exit_words(r.exit_code)}"
                for r in culprits
            ),
            key=",".join(sorted({exit_words(r.exit_code) for r in culprits})),
        )
    if not raised:
        return None
    return _answer(
        Verdict.FAILED,
        Symptom.EXCEPTION,
        raised,
        onset_us=min(r.raised.t_us for r in raised if r.raised),
        evidence=tuple(_raised_words(r.rank, r.raised) for r in raised if r.raised),
        key=",".join(sorted({_error_key(r.raised) for r in raised if r.raised})),
    )


def _raised_words(rank: int, raised: Raised) -> str:
    where = raised.loader or f"in step {raised.step}"
    place = f" ({raised.place})" if raised.place else ""
    return f"rank {rank} raised {raised.type_name} {where}{place}: {raised.message}"


def _error_key(raised: Raised) -> str:
    """What makes two errors of user code the same failure: the type, and whether the loader raised it."""
    return f"{raised.type_name} in the loader" if raised.loader else raised.type_name


def _hang(
    readings: Sequence[RankReading], *, limits: Limits, now_us: int, previous: LivenessMemory | None
) -> Assessment | None:
    """The overdue rank that the others wait for, if there is one."""
    generation = max((r.generation for r in readings), default=0)
    live = [r for r in readings if r.generation == generation and limit_us(limits, r) is not None]
    overdue = [
        r for r in live if _is_overdue(r, live, limits=limits, now_us=now_us, previous=previous)
    ]
    if not overdue:
        return None
    in_section = [r for r in overdue if r.phase is Phase.SECTION]
    culprits = in_section or _behind(live, overdue)
    if not culprits:
        return None
    if len(culprits) == len(live) > 1 or all(_is_waiting(r, live) for r in culprits):
        stopped = [r for r in overdue if r.process is ProcessState.STOPPED]
        if not stopped or len(stopped) == len(live) > 1:
            return _nobody_named(overdue, now_us=now_us)
        culprits = stopped
    culprits = _standing_out(culprits)
    excused = {
        r.rank: words
        for r in culprits
        if (words := _excuse(r, _shares(r, previous=previous, now_us=now_us))) is not None
    }
    if len(excused) == len(culprits):
        patience = [
            r
            for r in culprits
            if now_us - _late_since_us(r, live, limits=limits)
            <= limits.starved_factor * (limit_us(limits, r) or 0)
        ]
        if patience:
            return _patient_answer(patience, excused, now_us=now_us)
    return _answer(
        Verdict.FAILED,
        Symptom.HANG,
        culprits,
        onset_us=min(r.progress_us for r in culprits),
        evidence=tuple(_hang_words(r, live, previous=previous, now_us=now_us) for r in culprits),
    )


def _standing_out(culprits: Sequence[RankReading]) -> list[RankReading]:
    """Of several ranks that are behind, those that the kernel says are stopped, if there are any.

    The others may sit in a collective that nobody counts (a user's own), where they wait for the stopped one.
    """
    stopped = [r for r in culprits if r.process is ProcessState.STOPPED]
    return stopped or list(culprits)


def _behind(live: Sequence[RankReading], overdue: Sequence[RankReading]) -> list[RankReading]:
    """The overdue ranks with the fewest collectives entered; empty while that place is someone in time."""
    launches_min = min(r.launches for r in live)
    lowest = [r for r in live if r.launches == launches_min]
    absent = [r for r in lowest if not _is_waiting(r, live)]
    pool = absent or lowest
    overdue_ranks = {r.rank for r in overdue}
    if any(r.rank not in overdue_ranks for r in pool):
        # Somebody the others wait for is still within its own limit: there is no hang yet, unless the
        # kernel already says that an overdue peer of it is stopped.
        return [r for r in pool if r.rank in overdue_ranks and r.process is ProcessState.STOPPED]
    return pool


def _is_waiting(reading: RankReading, live: Sequence[RankReading]) -> bool:
    """Whether the rank sits inside the collective that the foremost rank has reached."""
    return reading.phase is Phase.COLLECTIVE and reading.launches == max(r.launches for r in live)


def _nobody_named(overdue: Sequence[RankReading], *, now_us: int) -> Assessment:
    oldest_us = min(r.progress_us for r in overdue)
    words = (
        f"{len(overdue)} ranks made no progress for {(now_us - oldest_us) // 1000} ms with equal "
        "collective counts and no rank stopped: nobody can be named"
    )
    return _answer(Verdict.UNKNOWN, Symptom.HANG, onset_us=oldest_us, evidence=(words,))


def _group_error(
    readings: Sequence[RankReading], *, limits: Limits, now_us: int
) -> Assessment | None:
    """Errors of the process group with no culprit: wait for one up to a limit, then say unknown."""
    raised = [r for r in readings if r.raised is not None and r.raised.is_group_error]
    if not raised:
        return None
    since_us = min(r.raised.t_us for r in raised if r.raised)
    words = tuple(
        f"rank {r.rank}: {r.raised.type_name}: {r.raised.message}" for r in raised if r.raised
    )
    if now_us - since_us <= limits.group_error_us:
        return _answer(
            Verdict.SUSPECT,
            Symptom.GROUP_ERROR,
            onset_us=since_us,
            evidence=(*words, "waiting for a culprit to show"),
        )
    return _answer(
        Verdict.UNKNOWN,
        Symptom.GROUP_ERROR,
        onset_us=since_us,
        evidence=(*words, f"no culprit showed within {limits.group_error_us // 1000} ms"),
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    cpu: float
    runqueue: float


def _excuse(reading: RankReading, share: _Shares | None) -> str | None:
    """Why an overdue rank is given more time, in words; None when it is not."""
    if share is None:
        return None
    if share.runqueue >= _BUSY_RATIO_MIN and share.cpu < _BUSY_RATIO_MIN:
        # The run-queue wait grew about as fast as the clock, the CPU time did not.
        return "is starved, not hung: runnable without a CPU for most of"
    if (
        reading.phase is Phase.SNAPSHOT
        and reading.process is not ProcessState.STOPPED
        and share.cpu > 0
        and share.cpu + share.runqueue >= _ACTIVE_RATIO_MIN
    ):
        # The work of this phase has an end and none of it is the user's: who computes here gets there.
        return f"copies its state, not hung: a CPU for {share.cpu:.0%} and runnable without one for {share.runqueue:.0%} of"
    return None


def _shares(
    reading: RankReading, *, previous: LivenessMemory | None, now_us: int
) -> _Shares | None:
    anchor = previous.anchors.get(reading.rank) if previous is not None else None
    if anchor is None or _place(anchor.reading) != _place(reading) or now_us <= anchor.seen_us:
        return None
    elapsed_us = now_us - anchor.seen_us
    return _Shares(
        cpu=(reading.cpu_us - anchor.reading.cpu_us) / elapsed_us,
        runqueue=(reading.runqueue_wait_us - anchor.reading.runqueue_wait_us) / elapsed_us,
    )


def _patient_answer(
    late: Sequence[RankReading], excused: Mapping[int, str], *, now_us: int
) -> Assessment:
    return _answer(
        Verdict.SUSPECT,
        Symptom.SLOW,
        late,
        onset_us=min(r.progress_us for r in late),
        evidence=tuple(
            f"rank {r.rank} {excused[r.rank]} {(now_us - r.progress_us) // 1000} ms" for r in late
        ),
    )


def _hang_words(
    reading: RankReading,
    live: Sequence[RankReading],
    *,
    previous: LivenessMemory | None,
    now_us: int,
) -> str:
    if reading.phase is Phase.SECTION:
        where = f"section {reading.section}, after step {reading.step}"
    elif reading.phase is Phase.BETWEEN:
        where = f"its own code or data between two steps, after step {reading.step}"
    elif reading.phase is Phase.COLLECTIVE and 0 < reading.launches <= reading.completions:
        # Nobody says when the step goes on behind its last collective: that none is entered and not left says it.
        where = f"its own code or data behind the collectives of step {reading.step}"
    else:
        where = f"{reading.phase.name.lower()} of step {reading.step}"
    foremost = max(r.launches for r in live)
    words = (
        f"rank {reading.rank} ({reading.worker}) made no progress for "
        f"{(now_us - reading.progress_us) // 1000} ms in {where}; "
        f"collectives entered {reading.launches}, foremost rank {foremost}; process {reading.process.value}"
    )
    awaited_us = _awaited_since_us(reading, live)
    if awaited_us is not None and awaited_us - reading.progress_us >= _TOLD_US_MIN:
        words += f"; waited for since {(now_us - awaited_us) // 1000} ms"
    return words + _state_words(reading, _shares(reading, previous=previous, now_us=now_us))


def _state_words(reading: RankReading, share: _Shares | None) -> str:
    """What the kernel adds: burning CPU, waiting for a lock, or held where no signal reaches it."""
    if reading.process is ProcessState.UNINTERRUPTIBLE:
        place = f" ({reading.waits_in})" if reading.waits_in else ""
        return f"; held in the kernel{place}: no signal but SIGKILL can reach it"
    is_asleep = reading.process is ProcessState.SLEEPING and bool(reading.waits_in)
    if share is not None and (_is_spinning(share) or share.cpu >= _ACTIVE_RATIO_MIN):
        if is_asleep and "futex" in reading.waits_in and not _is_spinning(share):
            return (
                "; its main thread waits on a lock while another thread is spinning: it burns CPU"
            )
        return "; spinning: it burns CPU without progress"
    if share is not None and share.cpu + share.runqueue >= _WANTED_RATIO_MIN:
        return f"; spinning, or starved: it wanted a processor all the time and had one for {share.cpu:.0%} of it"
    if not is_asleep:
        return ""
    if "futex" in reading.waits_in:
        return f"; waiting on a lock ({reading.waits_in}): it sleeps and burns no CPU"
    return f"; asleep in {reading.waits_in}"


def _is_spinning(share: _Shares) -> bool:
    """Most of the time in which it was given a processor, or could have been, went into CPU time."""
    return share.cpu >= _BUSY_RATIO_MIN * max(0.2, 1 - share.runqueue)


def _is_overdue(
    reading: RankReading,
    live: Sequence[RankReading],
    *,
    limits: Limits,
    now_us: int,
    previous: LivenessMemory | None,
) -> bool:
    """Whether the present phase of the rank has lasted longer than it may.

    A worker that was parked for an hour has not written its slot for an hour when it is assigned: joining
    is measured from the first look at it in this generation. A rank that others are ahead of may have been silent for
    good reason until the first of them came to wait for it, such as an evaluation that all ranks made.
    """
    allowed_us = limit_us(limits, reading)
    if allowed_us is None:
        return False
    since_us = reading.progress_us
    if reading.phase is Phase.JOINING:
        anchor = previous.anchors.get(reading.rank) if previous is not None else None
        is_known = anchor is not None and _place(anchor.reading) == _place(reading)
        since_us = max(since_us, anchor.seen_us if anchor is not None and is_known else now_us)
        return now_us - since_us > allowed_us
    if reading.phase in _OWN_CODE and limits.unawaited_us and not _is_stop_enough(reading, limits):
        if now_us - since_us > max(allowed_us, limits.unawaited_us):
            return True
        if _awaited_since_us(reading, live) is None:
            return False
    return now_us - _late_since_us(reading, live, limits=limits) > allowed_us


def _late_since_us(reading: RankReading, live: Sequence[RankReading], *, limits: Limits) -> int:
    """From when it is counted how late a rank is: its last progress, or when the first peer came to wait for it."""
    is_undeclared = reading.phase in _OWN_CODE and limits.unawaited_us > 0
    if not (is_undeclared or reading.phase is Phase.COLLECTIVE) or _is_stop_enough(reading, limits):
        return reading.progress_us
    return max(reading.progress_us, _awaited_since_us(reading, live) or 0)


def _is_stop_enough(reading: RankReading, limits: Limits) -> bool:
    return reading.process is ProcessState.STOPPED and limits.is_stop_enough


def _awaited_since_us(late: RankReading, live: Sequence[RankReading]) -> int | None:
    """Since when a peer has stood behind a collective that this rank has not entered; None when none does.

    A peer counts whichever phase it says: some calls wait where no phase can tell, such as those of a device.
    """
    ahead = [
        r
        for r in live
        if r.launches > late.launches and (r.phase in _OWN_CODE or r.phase is Phase.COLLECTIVE)
    ]
    return min((r.progress_us for r in ahead), default=None)


def _place(reading: RankReading) -> tuple[object, ...]:
    return (
        reading.worker,
        reading.generation,
        reading.phase,
        reading.step,
        reading.launches,
        reading.completions,
        reading.progress_us,
    )


def _is_done(reading: RankReading) -> bool:
    return reading.phase is Phase.FINISHED and reading.exit_code == 0


def is_cascade(raised: Raised | None, exit_code: int | None) -> bool:
    """Whether a process ended of a peer's end: an error of the group first, then by itself and not by a signal.

    The abort is the exception among the signals: threads of the group send it to their own process.
    """
    is_by_itself = exit_code is None or exit_code >= 0 or exit_code == -_SIGABRT
    return raised is not None and raised.is_group_error and is_by_itself


def _early(reading: RankReading) -> str:
    """Code 0 looks like success; before the last step it is none."""
    return " early, before its last step" if reading.exit_code == 0 else ""


def exit_words(exit_code: int | None) -> str:
    """Say how a process ended, a negative code being that of a signal."""
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}"
    return f"exit code {exit_code}"


def _answer(
    verdict: Verdict,
    symptom: Symptom | None = None,
    culprits: Sequence[RankReading] = (),
    *,
    onset_us: int | None = None,
    evidence: tuple[str, ...] = (),
    key: str = "",
) -> Assessment:
    return Assessment(
        question=Question.LIVENESS,
        verdict=verdict,
        symptom=symptom,
        culprits=tuple(sorted(r.rank for r in culprits)),
        onset_us=onset_us,
        evidence=evidence,
        key=key,
    )
