"""What must hold of failures that come back, and of ranks that have no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.reading import Question, Symptom

if TYPE_CHECKING:
    from lastgood.recovery.simulated.invariants import Invariants


class Returning:
    """Counts recoveries by signature, and the ranks that were seen to raise one error together."""

    def __init__(self, invariants: Invariants) -> None:
        """Nothing has come back."""
        self._all = invariants
        self._recovered: list[tuple[str, int]] = []
        self._raised: set[int] = set()
        self._keys: set[str] = set()
        self._blamed: set[int] = set()
        """Ranks that something else was found wrong with."""
        self._is_of_errors = False
        self._is_everywhere = False
        self._is_waiting_said = False
        self._again: set[int] = set()
        """Ranks that raised in the present attempt."""
        self._again_keys: set[str] = set()
        self._is_everywhere_again = False
        self._again_count = 0

    def hear(self, observation: m.Observation) -> None:
        """Remembers who raised what before anybody was isolated for it."""
        world = self._all.world
        if not isinstance(observation, m.Assessed):
            return
        found = observation.assessment
        if found.symptom is not Symptom.EXCEPTION:
            self._blamed |= set(found.culprits)
        if found.question is not Question.LIVENESS or found.symptom is not Symptom.EXCEPTION:
            return
        if world.state.phase in (LoopPhase.RUNNING, LoopPhase.SUSPECT):
            self._raised |= set(found.culprits)
            self._keys.add(found.key)
        elif world.state.phase is LoopPhase.VERIFYING:
            self._again |= set(found.culprits)
            self._again_keys.add(found.key)

    def on_open(self, symptom: str) -> None:
        """A new incident. Where it is not an error that opened it, the errors behind it are another fault's company."""
        self._is_of_errors = symptom == Symptom.EXCEPTION.value
        self._blamed = set()
        self._is_everywhere = self._is_waiting_said = False
        self._again_count = 0
        self.on_assign()

    def on_assign(self) -> None:
        """A new attempt: whoever raised in the one before has another try."""
        self._again, self._again_keys = set(), set()
        self._is_everywhere_again = False

    def on_record(self, action: m.Record) -> None:
        """An annotation may say that a spare is waited for; a diagnosis ends the time in which errors are gathered."""
        body = action.fields.get("body")
        if action.kind == "annotation" and isinstance(body, dict):
            self._is_waiting_said |= body.get("text") == "waiting for a spare"
        if action.kind == "diagnose":
            world = self._all.world
            is_one_error = len(self._keys) == 1 and "," not in next(iter(self._keys))
            is_of_all = self._raised == set(range(world.size)) and world.size > 1
            if is_of_all and is_one_error and self._is_of_errors:
                self._is_everywhere = True
            self._raised, self._keys = set(), set()
            if len(self._again) == world.size > 1 and len(self._again_keys) == 1:
                self._is_everywhere_again = True
                self._again_count += 1
                limit = world.state.policy.every_rank_limit
                is_within = self._again_count + self._is_everywhere <= limit
                self._all.check(is_within, "an error of every replay is tried once too often")
            self._again, self._again_keys = set(), set()

    def on_kill(self, workers: tuple[str, ...]) -> None:
        """Nobody is to blame for an error that every rank raised, in the isolation that follows it."""
        world = self._all.world
        is_first = world.state.case is not None and not world.state.case.attempt_count
        is_soft = world.state.case is not None and not world.state.case.is_widened
        is_nobodys = (self._is_everywhere and is_first) or self._is_everywhere_again
        is_blamed = {world.serving.index(name) for name in workers} <= self._blamed
        self._all.check(
            is_blamed or not (is_nobodys and is_soft),
            f"{workers} are killed for an error that every rank raised",
        )

    def on_recovered(self, signature: str) -> None:
        """The same failure is recovered from only so often within the window."""
        world = self._all.world
        policy = world.state.policy
        since_us = self._all.opened_us - policy.recurrence_window_us
        returns = sum(
            1 for name, at_us in self._recovered if name == signature and at_us >= since_us
        )
        limit = policy.recurrence_limit
        if self._is_everywhere:
            limit = min(limit, policy.every_rank_limit - 1)
        self._all.check(
            returns <= limit, f"{signature} came back {returns} times and was recovered again"
        )
        self._recovered.append((signature, world.kernel.now_us))

    def after_event(self) -> None:
        """A rank without a worker is waited for in the open."""
        world = self._all.world
        state = world.state
        case = state.case
        if case is None or state.phase is not LoopPhase.RESTORING or case.plan is None:
            return
        is_short = len(state.crew.vacant_ranks) > len(state.crew.spares)
        is_silent = is_short and not case.is_assigned and not self._is_waiting_said
        self._all.check(not is_silent, "a spare is waited for, and nobody was told")
