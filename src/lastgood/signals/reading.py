"""What a detector sees: one reading per rank, one report per finished step, one assessment out.

A reading is assembled by the supervisor from three independent places: the slot that the rank writes
itself (phase, step, collective counters), the kernel (`/proc`: state, CPU, run-queue wait) and the
process table (exit code). No detector trusts one of them alone.

Steps count from 1: step k turns state k-1 into state k; state 0 is the initial state. Ranks are 0-based.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Phase(enum.IntEnum):
    """Where a rank's main thread is, as it says itself in its slot."""

    LAUNCHING = 0
    """The process runs, the user's script has not reached `lastgood.start` yet."""
    PARKED = 1
    """Inside `start` or a left generation, waiting for an assignment."""
    JOINING = 2
    """Forming the process group of a new generation."""
    RESTORING = 3
    """Re-reading a snapshot and loading it."""
    BETWEEN = 4
    """Between two steps: the data loader or the user's own code."""
    COMPUTE = 5
    """Inside a step, with collectives of this step still to be launched."""
    COLLECTIVE = 6
    """Inside a step, every collective launched, waiting for the peers."""
    SNAPSHOT = 7
    """Copying state into its slot after a step."""
    SECTION = 8
    """Inside a declared section (evaluation, checkpoint, first compile)."""
    HELD = 9
    """Waiting for the supervisor's verdict: a replay was reported, or the slot gate is closed."""
    FINISHED = 10
    """The last step is done and acknowledged."""


class ProcessState(enum.StrEnum):
    """What the kernel says the process is doing (`/proc/PID/stat`, third field)."""

    RUNNING = "running"
    SLEEPING = "sleeping"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    GONE = "gone"


class Verdict(enum.StrEnum):
    """The answer of a check. Unknown is never ok."""

    OK = "ok"
    SUSPECT = "suspect"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Question(enum.StrEnum):
    """Which of the three questions an assessment answers (quarantine is the fourth, in `recovery`)."""

    LIVENESS = "liveness"
    PERFORMANCE = "performance"
    CORRECTNESS = "correctness"


class Symptom(enum.StrEnum):
    """What was seen, which is never the cause. The names are those of taxonomy v1."""

    PROCESS_EXIT = "process_exit"
    EXCEPTION = "exception"
    HANG = "hang"
    GROUP_ERROR = "group_error"
    SLOW = "slow"
    NONFINITE = "nonfinite"
    NUMERIC_JUMP = "numeric_jump"
    REPLICA_DIVERGENCE = "replica_divergence"
    SNAPSHOT_MISMATCH = "snapshot_mismatch"
    REPLAY_MISMATCH = "replay_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that left the body of a step on one rank, or came out of its loader."""

    type_name: str
    message: str
    is_group_error: bool
    """True when it came out of the process group (a peer died), false when the user's code raised it."""
    step: int
    t_us: int
    place: str = ""
    """Innermost line of the user's own code, such as `train.py:31 in fetch`; empty when it is not known."""
    loader: str = ""
    """Where in the data loader, such as `in its loader, for step 7`; empty when something else raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """All that is known about one rank at one instant. Times are monotonic microseconds."""

    rank: int
    worker: str
    """Name of the process that serves the rank in this generation, such as `w3`."""
    pid: int
    generation: int
    exit_code: int | None
    """None while alive; negative = ended by that signal."""
    phase: Phase
    step: int
    """Step in progress, or the last finished one between steps; 0 before the first."""
    published_step: int
    """Newest state completely published to a slot; -1 before state 0 is."""
    launches: int
    """Collectives entered in this generation."""
    completions: int
    """Collectives left in this generation."""
    progress_us: int
    """When the rank last wrote its slot."""
    process: ProcessState
    cpu_us: int
    """CPU time of the process so far."""
    runqueue_wait_us: int
    """Time that the process was runnable but not running, so far: a starved process is not a hung one."""
    waits_in: str = ""
    """Function of the kernel in which the main thread sleeps; empty when it runs or the kernel does not say."""
    section: str | None = None
    section_limit_us: int | None = None
    raised: Raised | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one rank published about one finished step."""

    rank: int
    step: int
    digest: str
    """Hex digest of the replicated state (parameters and optimizer) after the step."""
    loss: float | None
    grad_norm: float | None
    """Norm of the reduced gradient; None when nothing reported it."""
    local_nonfinite: bool
    """True when this rank's own gradient held NaN or infinity before the reduction."""
    self_us: int
    """Time of the step outside collectives."""
    step_us: int
    """Whole time of the step."""
    between_us: int = 0
    """Time since the step before, outside declared sections: the data loader and the user's own code."""
    work: float | None = None
    """Work units of the step (tokens, samples) as the user reports them; None when nothing was reported."""
    starved_us: int | None = None
    """Part of `self_us + between_us` in which it was ready to run without a processor; None where nobody counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """One verdict with its evidence in words."""

    question: Question
    verdict: Verdict
    symptom: Symptom | None = None
    culprits: tuple[int, ...] = ()
    """Ranks named; empty when the verdict is ok or nobody can be named."""
    onset_us: int | None = None
    """When it began, as far as the records tell (last progress of the culprit)."""
    first_divergent_step: int | None = None
    evidence: tuple[str, ...] = field(default=())
    lost_device_us: int | None = None
    """Device time lost between the onset and now, where the ranks went on (slow); None where they stood still."""
    key: str = ""
    """What tells this failure from others with the same symptom, such as the type of an exception."""
