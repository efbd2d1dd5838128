"""What goes wrong in one simulated run: a few faults at any moment, also in the middle of a recovery."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, replace

from lastgood.faults import spec as faults
from lastgood.faults.tape import Tape
from lastgood.recovery.policy import LoopPhase


class FaultKind(enum.StrEnum):
    """Everything that the simulated world knows how to break."""

    KILL = "kill"
    """SIGKILL of a rank."""
    KILL_SPARE = "kill_spare"
    HANG_STOPPED = "hang_stopped"
    """SIGSTOP."""
    HANG_SPINNING = "hang_spinning"
    """Runs for ever without progress."""
    EXCEPTION = "exception"
    POISON = "poison"
    """An exception that comes back in the same step for ever."""
    POISON_EVERYWHERE = "poison_everywhere"
    """The same, raised by every rank: a bug of the script."""
    POISON_WANDERS = "poison_wanders"
    """The same, raised by another rank in every generation: a batch that nobody can digest."""
    POISON_REPLAY = "poison_replay"
    """The next replays raise the same error on every rank: a bug of the script again, and no step has passed."""
    NAN_GRADIENT = "nan_gradient"
    """One rank's own gradient holds NaN; it is named, and all ranks went wrong with it."""
    NONFINITE = "nonfinite"
    """Wrong values on all ranks from some step on, noticed some steps later; nobody can be named."""
    DIVERGENCE = "divergence"
    """A flipped parameter bit on one replica."""
    FLIP_SLOT = "flip_slot"
    """Bytes of one rank's newest or older snapshot change."""
    REFUSE_PARK = "refuse_park"
    """The rank does not leave its generation when told to."""
    UNKILLABLE = "unkillable"
    """The kernel holds the process when it is killed."""
    SPARES_LATE = "spares_late"
    """No new spare comes up for a while."""
    NO_SPARES = "no_spares"
    """From now on every new spare dies before it is ready."""
    REPLAY_DIFFERS = "replay_differs"
    """The next replays come out different on all ranks."""
    REPLAY_MINORITY = "replay_minority"
    """The next replays come out different on one rank."""
    GROUP_ERROR = "group_error"
    """A connection breaks: ranks raise and nobody is at fault."""
    SLOW = "slow"
    """A process needs three times as long for its own part of every step from then on."""
    RESTORE_STALLS = "restore_stalls"
    """A rank hangs while it restores."""


_LASTING = frozenset(
    {
        FaultKind.UNKILLABLE,
        FaultKind.REFUSE_PARK,
        FaultKind.FLIP_SLOT,
        FaultKind.SPARES_LATE,
        FaultKind.NO_SPARES,
        FaultKind.KILL_SPARE,
        FaultKind.POISON_REPLAY,
    }
)
"""Faults that show only together with another one."""
_DRAWN = [kind for kind in FaultKind if kind not in (FaultKind.SLOW, FaultKind.POISON_REPLAY)]
"""A slow rank is no fault among others: it is drawn besides, and only after its usual pace is known.
So are errors in the replay, of which most tapes have no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFault:
    """One fault: at a time, or so long after the loop next enters a phase from that time on."""

    kind: FaultKind
    at_us: int
    rank: int
    at_step: int | None = None
    """Instead of a time: once all ranks have published this step."""
    waits: bool = False
    """With `at_step`: only when the loop is running again and a spare is ready."""
    phase: LoopPhase | None = None
    delay_us: int = 0
    count: int = 1
    """How many replays differ or raise, how many states back a snapshot is flipped."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A step in which user code raises."""

    kind: FaultKind


SHARED = {
    faults.FaultKind.SIGKILL: FaultKind.KILL,
    faults.FaultKind.SIGSTOP: FaultKind.HANG_STOPPED,
    faults.FaultKind.EXCEPTION: FaultKind.EXCEPTION,
    faults.FaultKind.NAN_GRADIENT: FaultKind.NAN_GRADIENT,
    faults.FaultKind.FLIP_SNAPSHOT: FaultKind.FLIP_SLOT,
    faults.FaultKind.TRUNCATE_SNAPSHOT: FaultKind.FLIP_SLOT,
    faults.FaultKind.FLIP_PARAMETER: FaultKind.DIVERGENCE,
    faults.FaultKind.SLOW: FaultKind.SLOW,
    faults.FaultKind.SLOW_STEP: FaultKind.SLOW,
}
"""Kinds of the shared tape that this world knows, and what they are here."""


def from_shared_tape(tape: Tape) -> tuple[SimulatedFault, ...]:
    """The faults of an event tape, the format that real injection plays too.

    Faults at a fault domain are left out.
    """
    found: list[SimulatedFault] = []
    for fault in tape.expanded():
        kind = SHARED.get(fault.kind)
        if kind is None or fault.target.rank is None:
            continue
        is_oldest = fault.which is faults.Which.OLDEST
        one = SimulatedFault(
            kind=kind,
            at_us=fault.when.t_us or 0,
            at_step=fault.when.step,
            waits=fault.when.after_recovered,
            rank=fault.target.rank,
            count=3 if kind is FaultKind.FLIP_SLOT and is_oldest else 1,
        )
        found.append(one)
        if fault.then_sigkill:
            found.append(replace(one, kind=FaultKind.KILL, count=1, waits=False))
    return tuple(found)


def draw_tape(rng: random.Random, *, world: int, horizon_us: int) -> tuple[SimulatedFault, ...]:  # noqa: TID251  a type
    """One to six faults. A tape without any visible fault gets a kill, so that every seed tests a recovery."""
    faults = [
        _draw_fault(rng, world=world, horizon_us=horizon_us) for _ in range(rng.randint(1, 6))
    ]
    if all(fault.kind in _LASTING for fault in faults):
        at_us = rng.randrange(horizon_us)
        faults.append(SimulatedFault(kind=FaultKind.KILL, at_us=at_us, rank=rng.randrange(world)))
    if rng.random() < 0.3:  # two at once, or three
        first = faults[0]
        for _ in range(rng.choice([1, 1, 2])):
            other = (first.rank + rng.randint(1, world - 1)) % world if world > 1 else first.rank
            faults.append(
                SimulatedFault(
                    kind=rng.choice([FaultKind.KILL, FaultKind.HANG_STOPPED, FaultKind.FLIP_SLOT]),
                    at_us=first.at_us + rng.randint(0, 50_000),
                    rank=other,
                    phase=first.phase,
                    delay_us=first.delay_us + rng.randint(0, 50_000),
                )
            )
    if rng.random() < 0.15:  # in the start
        at_us = rng.randrange(800_000)
        kind = rng.choice([FaultKind.KILL, FaultKind.HANG_STOPPED, FaultKind.KILL_SPARE])
        faults.append(SimulatedFault(kind=kind, at_us=at_us, rank=rng.randrange(world)))
    if rng.random() < 0.2:
        at_us = rng.randrange(horizon_us // 2, horizon_us)
        faults.append(SimulatedFault(kind=FaultKind.SLOW, at_us=at_us, rank=rng.randrange(world)))
    if rng.random() < 0.1:
        at_us, count = rng.randrange(horizon_us // 2), rng.randint(1, 3)
        faults.append(
            SimulatedFault(kind=FaultKind.POISON_REPLAY, at_us=at_us, rank=0, count=count)
        )
    return tuple(sorted(faults, key=lambda fault: fault.at_us))


def _draw_fault(rng: random.Random, *, world: int, horizon_us: int) -> SimulatedFault:  # noqa: TID251  a type
    phase = None
    if rng.random() < 0.5:
        phase = rng.choice(
            [LoopPhase.SUSPECT, LoopPhase.ISOLATING, LoopPhase.RESTORING, LoopPhase.VERIFYING]
        )
    return SimulatedFault(
        kind=rng.choice(_DRAWN),
        at_us=rng.randrange(horizon_us),
        rank=rng.randrange(world),
        phase=phase,
        delay_us=rng.randint(0, 400_000) if phase is not None else 0,
        count=rng.randint(1, 3),
    )
