"""Workers and states of the simulated job: the truth, of which the loop sees only what is reported."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from lastgood.signals.reading import Phase, ProcessState, Raised, RankReading

SLOT_COUNT = 3
"""Snapshots that each rank keeps."""


class Being(enum.StrEnum):
    """What a simulated process really is."""

    SPARE = "spare"
    SERVING = "serving"
    PARKED = "parked"
    DEAD = "dead"
    HELD_BY_KERNEL = "held_by_kernel"
    """Killed but in uninterruptible sleep: it can touch nothing."""


@dataclass(slots=True, kw_only=True)
class SimulatedWorker:
    """One process."""

    name: str
    being: Being
    rank: int | None = None
    generation: int = 0
    phase: Phase = Phase.PARKED
    launches: int = 0
    completions: int = 0
    progress_us: int = 0
    taint: int = 0
    """0: the state in memory is right; anything else names a wrong history."""
    process: ProcessState = ProcessState.SLEEPING
    raised: Raised | None = None
    exit_code: int | None = None
    refuses_to_park: bool = False
    is_unkillable: bool = False
    slowness: int = 1
    """How many times as long its own part of a step takes."""

    @property
    def is_able(self) -> bool:
        """Whether the process can make progress by itself."""
        return (
            self.being is Being.SERVING
            and self.process is ProcessState.SLEEPING
            and self.raised is None
        )

    @property
    def is_alive(self) -> bool:
        """Whether the process can still touch anything."""
        return self.being not in (Being.DEAD, Being.HELD_BY_KERNEL)

    def moved(self, phase: Phase, now_us: int) -> None:
        """The process writes its slot header: a new phase, now."""
        self.phase = phase
        self.progress_us = now_us

    def reading(self, rank: int, *, step: int) -> RankReading:
        """What slot, kernel and process table show of it."""
        return RankReading(
            rank=rank,
            worker=self.name,
            pid=0,
            generation=self.generation,
            exit_code=self.exit_code,
            phase=self.phase,
            step=step,
            published_step=step,
            launches=self.launches,
            completions=self.completions,
            progress_us=self.progress_us,
            process=self.process,
            cpu_us=0,
            runqueue_wait_us=0,
            raised=self.raised,
        )


@dataclass(slots=True)
class StoredState:
    """One copy of one state."""

    step: int
    generation: int
    taint: int
    published_us: int
    is_flipped: bool = False
    """Its bytes changed after they were published."""

    @property
    def digest(self) -> str:
        """The digest that was published with it."""
        return f"{self.step}:{self.taint}"


@dataclass(slots=True)
class Shelf:
    """Where states are kept: a ring of slots per rank, and a few checkpoints."""

    slots: list[dict[int, StoredState]]
    checkpoints: list[StoredState] = field(default_factory=list)

    def publish(self, rank: int, state: StoredState) -> None:
        """Overwrites the oldest slot of the ring."""
        self.slots[rank][state.step % SLOT_COUNT] = state

    def slot(self, rank: int, step: int) -> StoredState | None:
        """The rank's copy of a state."""
        state = self.slots[rank].get(step % SLOT_COUNT)
        return state if state is not None and state.step == step else None

    def common_steps(self) -> list[int]:
        """States of which every rank has a copy, newest first, whether the copies agree or not."""
        held = [{state.step for state in ring.values()} for ring in self.slots]
        return sorted(set.intersection(*held), reverse=True)
