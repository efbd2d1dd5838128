"""One turn of the loop while it is being worked out: the state so far and the actions so far.

Lives only inside `loop.step`; what goes in and what comes out are frozen values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lastgood.recovery.case import Case
from lastgood.recovery.crew import Crew
from lastgood.recovery.messages import Action, Record
from lastgood.recovery.policy import LoopPhase, PhaseRow
from lastgood.recovery.state import LoopState, Step


class Turn:
    """A state under change. Only `enter` changes the phase, and only along the table."""

    __slots__ = ("actions", "now_us", "state")

    def __init__(self, state: LoopState, now_us: int) -> None:
        """Begin with the state before the observation."""
        self.state = state
        self.now_us = max(now_us, state.entered_us)
        self.actions: list[Action] = []

    @property
    def phase(self) -> LoopPhase:
        """The present phase."""
        return self.state.phase

    @property
    def crew(self) -> Crew:
        """The present crew."""
        return self.state.crew

    @property
    def case(self) -> Case | None:
        """The open incident."""
        return self.state.case

    @property
    def open_case(self) -> Case:
        """The open incident, which must be there."""
        assert self.state.case is not None, f"no incident is open in {self.state.phase}"
        return self.state.case

    @property
    def row(self) -> PhaseRow:
        """The table's row of the present phase."""
        return self.state.policy.rows[self.state.phase]

    @property
    def is_late(self) -> bool:
        """Whether the present phase has run out of time."""
        return self.state.deadline_us is not None and self.now_us >= self.state.deadline_us

    def change(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def change_case(self, **changes: Any) -> None:
        """Replace fields of the open incident."""
        self.state = replace(self.state, case=replace(self.open_case, **changes))

    def set_crew(self, crew: Crew) -> None:
        """Replace the crew."""
        if crew is not self.state.crew:
            self.state = replace(self.state, crew=crew)

    def say(self, *actions: Action) -> None:
        """Add actions in order."""
        self.actions.extend(actions)

    def note(self, text: str, body: dict[str, object], **fields: Any) -> None:
        """Record an annotation: something worth keeping that changes nothing."""
        known = {name: value for name, value in fields.items() if value is not None}
        known.setdefault("t_occurred_us", self.now_us)
        known["t_observed_us"] = self.now_us
        if self.state.case is not None:
            known["incident"] = self.state.case.id
        known["attempt"] = self.state.generation
        self.say(Record(kind="annotation", fields={**known, "body": {"text": text, **body}}))

    def enter(self, phase: LoopPhase, *, timeout_us: int | None = None) -> None:
        """Go to a phase that the table allows, charge the time spent so far, and set the new deadline."""
        state = self.state
        assert phase in self.row.onward, f"the table has no move from {state.phase} to {phase}"
        case = state.case
        if case is not None and state.phase is not LoopPhase.RUNNING:
            case = case.with_spent(state.phase, self.now_us - state.entered_us)
        limit_us = timeout_us if timeout_us is not None else state.policy.rows[phase].timeout_us
        self.state = replace(
            state,
            phase=phase,
            case=case,
            entered_us=self.now_us,
            deadline_us=None if limit_us is None else self.now_us + limit_us,
        )

    def extend(self, timeout_us: int | None) -> None:
        """Give the present phase a new deadline without leaving it."""
        self.change(deadline_us=None if timeout_us is None else self.now_us + timeout_us)

    def done(self) -> Step:
        """The state and the actions of this turn."""
        return Step(self.state, tuple(self.actions))
