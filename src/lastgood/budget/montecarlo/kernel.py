"""The loop of the simulation: one job from its first step to its end, by + - × ÷ and comparisons alone.

No function of a mathematics library is called here and no compiler may reorder the arithmetic, so the compiled and
the interpreted loop give the same bits. Random numbers come in as sequences, drawn by numpy outside. When one of them
runs out the loop stops and says so; called again with fresh ones and the same state it goes on where it was.

The functions work on lists (interpreted) and on arrays (compiled) alike: numba compiles this very source, see
`engine.py`. Read `run_job` first.
"""

from __future__ import annotations

from typing import Any

DONE, NEEDS_DRAWS, TOO_LONG, GO_ON = 0, 1, 2, 3
"""How a call ends; GO_ON never leaves this module."""

# Places in the state (floats; counts stay exact far beyond any job).
TIME, DONE_WORK, SAVED_WORK, GAP_LEFT, CORRUPT_LEFT, IS_CORRUPT, CORRUPT_AT, FOUND_AT = range(8)
IN_RECOVERY, EVENTS, CHECKPOINTS, CHECKPOINT_FAILURES, FAILURES, FAILURES_IN_RECOVERY = range(8, 14)
CORRUPTIONS, ROLLBACKS, RESTARTS, LOST_WORK = range(14, 18)
STATE_SIZE = 18
# Places in the parameters (floats).
(
    TOTAL,
    WORK,
    CHECKPOINT,
    DETECTION,
    RECOVERY,
    IS_EXPOSED,
    FAIL_CHANCE,
    HAS_CORRUPTION,
    EVENTS_MAX,
) = range(9)
# Places in the cursors (integers): one per sequence of draws, then the ring of kept checkpoints.
GAPS, CORRUPTION_GAPS, LATENCIES, WRITES, NEWEST, KEPT = range(6)
CURSOR_COUNT = 6
ALMOST_ONE_SEGMENT = 1.000000001
"""Sums of segments are rounded; a remainder this close to a segment is the last one."""


def run_job(s: Any, p: Any, c: Any, draws: Any, kept_work: Any, kept_at: Any) -> int:
    """Go on until the job is done, draws run out, or too much has happened.

    Legend: s state, p parameters, c cursors, draws = (gaps, corruption gaps, latencies, writes), kept_work and
    kept_at the ring of kept checkpoints. A negative GAP_LEFT or CORRUPT_LEFT means: draw a new one.
    """
    while True:
        if s[IN_RECOVERY] != 0.0:
            status = recover(s, p, c, draws[0])
        else:
            status = advance(s, p, c, draws, kept_work, kept_at)
        if status != GO_ON:
            return status


def advance(s: Any, p: Any, c: Any, draws: Any, kept_work: Any, kept_at: Any) -> int:
    """Work and write checkpoints until something stops it; the hot loop, so its state lies in locals."""
    gaps, writes = draws[0], draws[3]
    if s[GAP_LEFT] < 0.0:
        if c[GAPS] >= len(gaps):
            return NEEDS_DRAWS
        s[GAP_LEFT] = gaps[c[GAPS]]
        c[GAPS] += 1
    total, work, checkpoint, fail_chance = p[TOTAL], p[WORK], p[CHECKPOINT], p[FAIL_CHANCE]
    has_corruption = p[HAS_CORRUPTION] != 0.0
    t, done, gap = s[TIME], s[DONE_WORK], s[GAP_LEFT]
    written_count = 0.0
    events_left = p[EVENTS_MAX] - s[EVENTS]
    write_at, write_end = c[WRITES], len(writes)
    status = GO_ON
    while True:
        left = total - done
        is_last = left <= work * ALMOST_ONE_SEGMENT
        segment = left if is_last else work
        span = segment + checkpoint
        if has_corruption:
            s[TIME] = t
            if not meet_corruption(s, c, draws, segment, gap):
                status = NEEDS_DRAWS
                break
            if s[IS_CORRUPT] != 0.0 and s[FOUND_AT] - t < span:
                break
        if gap < span:
            break
        if fail_chance > 0.0 and write_at >= write_end:
            status = NEEDS_DRAWS
            break
        if written_count >= events_left:
            status = TOO_LONG
            break
        t += span
        gap -= span
        done = total if is_last else done + segment
        written_count += 1.0
        if has_corruption:
            s[CORRUPT_LEFT] -= segment
        if fail_chance > 0.0:
            write_at += 1
            if writes[write_at - 1] < fail_chance:
                s[CHECKPOINT_FAILURES] += 1.0
                continue
        s[SAVED_WORK] = done
        if has_corruption:
            keep(c, kept_work, kept_at, done, t - checkpoint)
        if is_last:
            status = DONE
            break
    s[TIME], s[DONE_WORK], s[GAP_LEFT], c[WRITES] = t, done, gap, write_at
    s[EVENTS] += written_count
    s[CHECKPOINTS] += written_count
    if status == GO_ON:
        stop(s, p, c, segment, kept_work, kept_at)
    return status


def meet_corruption(s: Any, c: Any, draws: Any, segment: float, gap: float) -> bool:
    """Let a corruption strike in this segment if it is its time; False when draws have run out."""
    if s[IS_CORRUPT] != 0.0:
        return True
    if s[CORRUPT_LEFT] < 0.0:
        if c[CORRUPTION_GAPS] >= len(draws[1]):
            return False
        s[CORRUPT_LEFT] = draws[1][c[CORRUPTION_GAPS]]
        c[CORRUPTION_GAPS] += 1
    if s[CORRUPT_LEFT] < segment and s[CORRUPT_LEFT] < gap:
        if c[LATENCIES] >= len(draws[2]):
            return False
        s[IS_CORRUPT] = 1.0
        s[CORRUPT_AT] = s[TIME] + s[CORRUPT_LEFT]
        s[FOUND_AT] = s[CORRUPT_AT] + draws[2][c[LATENCIES]]
        s[CORRUPTIONS] += 1.0
        c[LATENCIES] += 1
    return True


def keep(c: Any, kept_work: Any, kept_at: Any, work: float, at: float) -> None:
    """Put a checkpoint into the ring; the oldest one makes room."""
    c[NEWEST] += 1
    if c[NEWEST] == len(kept_work):
        c[NEWEST] = 0
    kept_work[c[NEWEST]] = work
    kept_at[c[NEWEST]] = at
    if c[KEPT] < len(kept_work):
        c[KEPT] += 1


def stop(s: Any, p: Any, c: Any, segment: float, kept_work: Any, kept_at: Any) -> None:
    """A failure, or a corruption that was found, ends this segment: go back and begin the recovery."""
    run = s[GAP_LEFT]
    is_found = False
    if s[IS_CORRUPT] != 0.0:
        until_found = s[FOUND_AT] - s[TIME]
        until_found = max(until_found, 0.0)
        if until_found < run:
            run, is_found = until_found, True
    worked = min(segment, run)
    s[TIME] += run
    if is_found:
        s[GAP_LEFT] -= run
        s[ROLLBACKS] += 1.0
        go_back_before(s, c, kept_work, kept_at)
    else:
        s[GAP_LEFT] = -1.0
        s[FAILURES] += 1.0
        if s[IS_CORRUPT] == 0.0:
            s[CORRUPT_LEFT] -= worked
        elif c[KEPT] == 0 or kept_at[c[NEWEST]] <= s[CORRUPT_AT]:
            s[IS_CORRUPT] = 0.0  # the restart goes back behind the corruption and undoes it unseen
            s[CORRUPT_LEFT] = -1.0
    s[EVENTS] += 1.0
    s[LOST_WORK] += s[DONE_WORK] + worked - s[SAVED_WORK]
    s[DONE_WORK] = s[SAVED_WORK]
    s[TIME] += p[DETECTION]
    s[IN_RECOVERY] = 1.0


def go_back_before(s: Any, c: Any, kept_work: Any, kept_at: Any) -> None:
    """Drop every kept checkpoint that is newer than the corruption; without an older one begin again."""
    while c[KEPT] > 0 and kept_at[c[NEWEST]] > s[CORRUPT_AT]:
        c[KEPT] -= 1
        c[NEWEST] -= 1
        if c[NEWEST] < 0:
            c[NEWEST] = len(kept_work) - 1
    if c[KEPT] > 0:
        s[SAVED_WORK] = kept_work[c[NEWEST]]
    else:
        s[SAVED_WORK] = 0.0
        s[RESTARTS] += 1.0
    s[IS_CORRUPT] = 0.0
    s[CORRUPT_LEFT] = -1.0


def recover(s: Any, p: Any, c: Any, gaps: Any) -> int:
    """Restore; when exposed, another failure can strike meanwhile and costs detection and a new attempt."""
    while True:
        if s[GAP_LEFT] < 0.0:
            if c[GAPS] >= len(gaps):
                return NEEDS_DRAWS
            s[GAP_LEFT] = gaps[c[GAPS]]
            c[GAPS] += 1
        if s[EVENTS] >= p[EVENTS_MAX]:
            return TOO_LONG
        s[EVENTS] += 1.0
        if p[IS_EXPOSED] == 0.0 or s[GAP_LEFT] >= p[RECOVERY]:
            break
        s[TIME] += s[GAP_LEFT] + p[DETECTION]
        s[GAP_LEFT] = -1.0
        s[FAILURES] += 1.0
        s[FAILURES_IN_RECOVERY] += 1.0
    s[TIME] += p[RECOVERY]
    if p[IS_EXPOSED] != 0.0:
        s[GAP_LEFT] -= p[RECOVERY]
    s[IN_RECOVERY] = 0.0
    return GO_ON
