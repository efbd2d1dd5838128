"""Which passes through the user's step a rank makes after a restore. Pure.

Re-wrapping DDP starts again with its first bucket layout, which changes the bits of the next update. One pass
with the new wrapper shows DDP the order of the gradients; the next forward pass rebuilds the buckets from it before
anything is reduced, so one pass is thrown away, unless the buckets of the step are known and the wrapper is made with
them (`buckets.py`). Step 1 is different: plain torch itself still runs the first layout
there, so a replay of step 1 takes a fresh wrapper and no throw-away pass.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lastgood.recovery.messages import VerifyMode

FIRST_SETTLED_STEP = 3
"""The buckets of this step are those of every later one: DDP has laid them out before it at the latest."""


class PassKind(enum.StrEnum):
    """What one run of the user's step is for."""

    STEP = "step"
    """A new step: its result is kept and published."""
    DISCARD = "discard"
    """Thrown away: shows DDP the order in which gradients become ready."""
    TRIAL = "trial"
    """The first of two runs of the same step; only its digest is kept."""
    PROBE = "probe"
    """The second run of a step at the start, which measures whether steps repeat bit for bit."""
    REPLAY = "replay"
    """Compared with the published digest (or with the trial); nothing goes on until the supervisor accepts it."""


PROBE_COUNT = 8
"""Runs of one step that measure the noise of a job whose steps do not repeat.

The bound is a multiple of the largest of them (`watching/noise.py`). One run alone can come out close by chance.
"""


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the user's step, from the restored state unless it is a new step."""

    kind: PassKind
    step: int
    wraps: bool = False
    """A fresh DDP wrapper is made before it."""


def passes_after_restore(
    mode: VerifyMode,
    *,
    restore_step: int,
    has_buckets: bool = True,
    is_laid_out: bool = False,
) -> tuple[Pass, ...]:
    """Return the passes that verify a restored state. Without buckets (shards) there is nothing to settle.

    Args:
        is_laid_out: a fresh wrapper begins with the buckets of the step that is replayed (see `buckets.py`).
    """
    step = restore_step + 1
    is_settled = step == 1 or not has_buckets or is_laid_out
    if mode is VerifyMode.PREDECESSOR:
        if is_settled:
            return (Pass(PassKind.REPLAY, step, wraps=True),)
        return (_discard(step), Pass(PassKind.REPLAY, step))
    if is_settled:
        again = Pass(PassKind.REPLAY, step, wraps=has_buckets)
        return (Pass(PassKind.TRIAL, step, wraps=True), again)
    return (_discard(step), Pass(PassKind.TRIAL, step), Pass(PassKind.REPLAY, step))


def passes_of_static_graph(this: Pass) -> tuple[Pass, ...]:
    """Return what is thrown away besides, where DDP was told that its graph is static: it lays out behind its second pass."""
    is_needed = this.kind is PassKind.DISCARD and this.step >= FIRST_SETTLED_STEP
    return (Pass(PassKind.DISCARD, this.step),) if is_needed else ()


def passes_of_probe(step: int, *, has_buckets: bool = True) -> tuple[Pass, ...]:
    """Return the passes that run a finished step once more, through a fresh wrapper as a recovery would."""
    if not has_buckets:
        return (Pass(PassKind.PROBE, step, wraps=True),)
    return (_discard(step), Pass(PassKind.PROBE, step))


def more_passes_of_probe(step: int, *, has_buckets: bool = True) -> tuple[Pass, ...]:
    """Return the passes that measure the noise, once the first probe has shown that there is some."""
    return (Pass(PassKind.PROBE, step, wraps=not has_buckets),) * (PROBE_COUNT - 1)


def _discard(step: int) -> Pass:
    return Pass(PassKind.DISCARD, step, wraps=True)
