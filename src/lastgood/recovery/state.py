"""The state of the recovery loop: one frozen value, and the state that a run begins with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lastgood.recovery.case import Case
from lastgood.recovery.crew import Crew, first_crew
from lastgood.recovery.diagnosis import Occurrence
from lastgood.recovery.last_good import TrustBook
from lastgood.recovery.messages import Action
from lastgood.recovery.policy import LoopPhase, RecoveryPolicy, policy_from

if TYPE_CHECKING:
    from lastgood.contract.model import FailureContract


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Everything that the loop knows."""

    run: str
    host: str
    policy: RecoveryPolicy
    crew: Crew
    phase: LoopPhase = LoopPhase.RUNNING
    entered_us: int
    """When the present phase was entered."""
    deadline_us: int | None = None
    """When the present phase runs out of time; None where it may rest."""
    generation: int = 1
    """Newest generation that was assigned. It never goes back and is never used twice."""
    trust: TrustBook = field(default_factory=TrustBook)
    published_step: int = -1
    """Newest state that all ranks have published in the present history."""
    case: Case | None = None
    """The open incident; there is at most one."""
    case_count: int = 0
    """Incidents of this run so far, those of its earlier starts included: their names are never used twice."""
    closed: tuple[Occurrence, ...] = ()
    """Closed incidents within the recurrence window."""
    is_stopping: bool = False
    """A stop was asked for: no new incident is opened."""
    is_launch_given_up: bool = False
    """Too many spares in a row ended before they were ready; a new incident tries again."""
    noted: tuple[object, ...] = ()
    """The last remark that was recorded, so that it is not repeated with every look."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.crew.serving)


class Step(NamedTuple):
    """The loop's answer to one observation."""

    state: LoopState
    actions: tuple[Action, ...]


def initial_state(
    world: int,
    contract: FailureContract | None,
    workers: Iterable[str],
    spares: int,
    *,
    run: str = "run",
    host: str = "localhost",
    now_us: int,
    policy: RecoveryPolicy | None = None,
    case_count: int = 0,
) -> LoopState:
    """A run that begins: generation 1 is assigned and is not an incident.

    The caller starts `workers` (workers[r] serves rank r) and `spares` more processes by itself; each spare
    is announced by `SpareReady`. From then on the loop orders replacements with `RefillSpare`.

    Args:
        contract: Gives time limits, owners and acceptance; None takes the assumed defaults.
        policy: Takes the place of the contract's table (simulations).
        case_count: Number of the last incident of earlier starts of the same run.
    """
    crew = first_crew(workers, spare_count=spares)
    if len(crew.serving) != world:
        raise ValueError(f"loop: found {len(crew.serving)} workers, needs {world}: one per rank")
    return LoopState(
        run=run,
        host=host,
        policy=policy if policy is not None else policy_from(contract),
        crew=crew,
        entered_us=now_us,
        case_count=case_count,
    )
