"""What goes into the recovery loop and what comes out of it. Data only.

The loop is `(state, observation, now) -> (state, actions)`. The supervisor turns the world into
observations and carries out actions; the simulator does the same for a world that does not exist.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lastgood.signals.reading import Assessment

if TYPE_CHECKING:
    from lastgood.contract.recovery_table import Transition


class VerifyMode(enum.StrEnum):
    """How a restored state is checked before the run goes on."""

    PREDECESSOR = "predecessor"
    """Restore state k-1, replay step k, compare with the digest that was published for state k."""
    REPEAT = "repeat"
    """Restore state k, run step k+1 twice from it, compare the two: for a state without a predecessor."""
    BEGIN = "begin"
    """Begin again from the script's own initial state; state 0 must get one digest on every rank."""


class ReplayOutcome(enum.StrEnum):
    """What one rank found when it compared its replay with the published digest."""

    EQUAL = "equal"
    WITHIN_TOLERANCE = "within_tolerance"
    DIFFERENT = "different"


class Tier(enum.StrEnum):
    """Where a state is kept."""

    SLOT = "slot"
    CHECKPOINT = "checkpoint"
    INITIAL = "initial"
    """Nowhere: the state that the script itself builds. Offered only while no state 0 was published by all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A state that the loop may try, as the supervisor's catalogue lists it (newest first)."""

    step: int
    tier: Tier
    digest: str
    """The digest that all replicas published for it."""
    has_predecessor: bool
    """State step-1 lies in the same tier on every rank, so a predecessor replay is possible."""
    locator: str = ""
    """Path of a checkpoint; empty for slots."""
    generation: int | None = None
    """Generation in which its bytes were computed. A state newer than the step that a later generation
    resumed from belongs to an abandoned history and is never restored."""
    published_us: int | None = None
    """When all ranks had published the state, on the loop's clock: for a checkpoint the time of its step, not
    of its file. Gives the checkpoint age, and stands in for an unknown generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What every rank of a new generation restores and how it is verified."""

    tier: Tier
    mode: VerifyMode
    restore_step: int
    target_step: int
    """The state whose trust is decided; equals restore_step in REPEAT mode."""
    digest: str
    """Digest published for target_step."""
    locator: str = ""


# --- observations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assessed:
    """A detector gave a verdict other than ok."""

    assessment: Assessment


@dataclass(frozen=True, slots=True)
class StacksDumped:
    """The answer to `DumpStacks` for one worker."""

    worker: str
    locator: str
    """Where the dump lies; empty when none could be taken in time."""


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The process has ended (its exit was collected)."""

    worker: str
    is_cascade: bool = False
    """It ended of another rank's end, such as in a collective of the user's own: nothing to blame it for."""
    exit_code: int | None = None
    """Negative = ended by that signal."""


@dataclass(frozen=True, slots=True)
class WorkerUnkillable:
    """SIGKILL was sent and the process is in uninterruptible sleep: mark the host, do not wait."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerParked:
    """The process has left its generation and waits for an assignment."""

    worker: str
    generation: int | None = None
    """The generation that it left; a word about an older one is stale and changes nothing."""


@dataclass(frozen=True, slots=True)
class SpareReady:
    """A parked spare passed its golden-output check."""

    worker: str


@dataclass(frozen=True, slots=True)
class SpareLost:
    """A spare ended, or did not pass its check; also one that was never announced as ready."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRead:
    """The answer to `ReadCatalogue`: the states that could be tried, newest first."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One rank re-read and loaded the state of its plan, or found its bytes wrong."""

    rank: int
    generation: int
    is_intact: bool
    bad_step: int | None = None
    """State whose re-read bytes did not hash to their published digest."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One rank finished the replay of its plan and compared."""

    rank: int
    generation: int
    step: int
    outcome: ReplayOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Every rank has published state `step` in this generation, and its signals were not bad.

    Wanted for every such state, at the latest before the next `Assessed`: lost steps are counted from it.
    """

    step: int
    generation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; nothing else happened. Before the deadline of the present phase it changes nothing."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A preemption notice or an operator's request: finish cleanly."""

    reason: str


Observation = (
    Assessed
    | StacksDumped
    | WorkerGone
    | WorkerUnkillable
    | WorkerParked
    | SpareReady
    | SpareLost
    | CatalogueRead
    | Restored
    | Replayed
    | Progress
    | Tick
    | StopRequested
)


# --- actions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpStacks:
    """Ask for stack dumps, bounded; each is answered by `StacksDumped`."""

    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the survivors of a generation to shut its sockets, leave it and park."""

    generation: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL, at once; each is answered by `WorkerGone` or `WorkerUnkillable`."""

    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadCatalogue:
    """List the states that could be restored; answered by `CatalogueRead`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Form a new generation: rank -> worker, and what to restore."""

    generation: int
    workers: tuple[str, ...]
    """workers[r] serves rank r."""
    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Resume:
    """The replay was accepted: the ranks of this generation may take new steps after `step`."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class RefillSpare:
    """Start a new spare; answered by `SpareReady` when it has parked and passed its check."""

    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Append one event to the ledger. Field names are those that `ledger.event.new_event` takes.

    `t_occurred_us` and `t_observed_us` are on the loop's (monotonic) clock: whoever carries the action out
    moves them to UTC. Everything else that ends in `_us` is a duration. There are no floats.
    """

    kind: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalate:
    """Stop trying: notify the owner and end the run."""

    reason: str
    incident: str
    owner: str
    transition: Transition = "detect"
    """The contract's row in which it failed: a row may name its own way to be told."""
    culprits: tuple[int, ...] = ()
    last_good_step: int | None = None
    """Newest state that could still be restored; the newest verified one where they were not listed; else None."""


Action = (
    DumpStacks | Revoke | Kill | ReadCatalogue | Assign | Resume | RefillSpare | Record | Escalate
)
