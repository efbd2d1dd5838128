"""The transition table: which move may follow which, with a time limit, an owner and a test for each phase.

The loop does nothing that is not in this table. Time limits, owners and acceptance criteria come from the
failure contract; `policy_from` is the only place that reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.contract.model import FailureContract
    from lastgood.contract.recovery_table import Transition


class LoopPhase(enum.StrEnum):
    """Where the recovery loop is."""

    RUNNING = "running"
    """The ranks take new steps; detectors watch."""
    SUSPECT = "suspect"
    """A verdict is in; evidence that a kill would destroy (stacks) is taken, bounded."""
    ISOLATING = "isolating"
    """Culprits are killed, survivors leave the generation."""
    RESTORING = "restoring"
    """A new generation is formed and loads the last good state."""
    VERIFYING = "verifying"
    """The new generation replays one step; nothing new is computed before all ranks agree."""
    ESCALATED = "escalated"
    """A person is needed; the loop does nothing any more."""


class OnTimeout(enum.StrEnum):
    """What happens when a phase runs out of time."""

    WIDEN = "widen"
    """Take a larger fault domain out: every rank is replaced (the hard path)."""
    FALL_BACK = "fall_back"
    """Give the state up and take the next older one."""
    ESCALATE = "escalate"
    """Stop trying and call the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One row of the transition table."""

    timeout_us: int | None
    """Longest stay in the phase; None only where the loop may rest (running, escalated)."""
    owner: str
    accept: str
    """The test that lets the loop leave the phase forwards, in words."""
    on_timeout: OnTimeout
    onward: frozenset[LoopPhase]
    """Phases that may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPolicy:
    """The table and the bounds that hold for all of it."""

    rows: Mapping[LoopPhase, PhaseRow]
    soft_deadline_us: int = 30_000_000
    """How long survivors may take to leave a generation before all ranks are replaced."""
    recurrence_window_us: int = 1_800_000_000
    """The same signature again within this time after its recovery is a return."""
    recurrence_limit: int = 2
    """Returns that are answered by widening the domain; one more escalates."""
    every_rank_limit: int = 1
    """Recoveries tried when every rank raised the same error in the same step; one more escalates."""
    exception_settle_us: int = 150_000
    """How long an exception waits for the other ranks to raise it too, before anybody is blamed for it."""
    attempts_max: int = 12
    """Generations tried within one incident."""
    target_attempts_max: int = 3
    """Times that one state may be tried when *other* faults interrupt it; after a mismatch it is never tried again."""
    launch_failures_max: int = 5
    """Spares in a row that may die before they are ready; then no more are started."""


ONWARD: Mapping[LoopPhase, frozenset[LoopPhase]] = {
    LoopPhase.RUNNING: frozenset({LoopPhase.SUSPECT}),
    LoopPhase.SUSPECT: frozenset({LoopPhase.ISOLATING, LoopPhase.ESCALATED}),
    LoopPhase.ISOLATING: frozenset({LoopPhase.ISOLATING, LoopPhase.RESTORING, LoopPhase.ESCALATED}),
    LoopPhase.RESTORING: frozenset({LoopPhase.ISOLATING, LoopPhase.VERIFYING, LoopPhase.ESCALATED}),
    LoopPhase.VERIFYING: frozenset({LoopPhase.ISOLATING, LoopPhase.RUNNING, LoopPhase.ESCALATED}),
    LoopPhase.ESCALATED: frozenset(),
}
"""The moves that exist. Only VERIFYING leads back to RUNNING."""

_STACKS_US = 1_000_000
"""A stack dump that takes longer than this is given up: the kill must not wait for it."""

CONTRACT_ROW: Mapping[LoopPhase, Transition] = {
    LoopPhase.RUNNING: "detect",
    LoopPhase.SUSPECT: "detect",
    LoopPhase.ISOLATING: "isolate",
    LoopPhase.RESTORING: "restore",
    LoopPhase.VERIFYING: "verify",
}
"""The row of the contract that speaks about a phase."""


def policy_from(contract: FailureContract | None) -> RecoveryPolicy:
    """The transition table of a contract; without one, the defaults apply (they are assumed values)."""
    if contract is None:
        from lastgood.contract.load import default_contract

        contract = default_contract(kind="training")
    recovery = contract.spec.recovery
    rows: dict[LoopPhase, PhaseRow] = {}
    for phase, name in CONTRACT_ROW.items():
        row = getattr(recovery, name)
        rows[phase] = PhaseRow(
            timeout_us=row.timeout_us,
            owner=row.owner,
            accept=row.accept,
            on_timeout=OnTimeout(str(row.on_timeout)),
            onward=ONWARD[phase],
        )
    # The limit of the detect row bounds the detectors, which are outside of the loop; here it gives the owner.
    rows[LoopPhase.RUNNING] = _with_timeout(rows[LoopPhase.RUNNING], None)
    rows[LoopPhase.SUSPECT] = _with_timeout(rows[LoopPhase.SUSPECT], _STACKS_US)
    rows[LoopPhase.ESCALATED] = PhaseRow(
        timeout_us=None,
        owner=rows[LoopPhase.VERIFYING].owner,
        accept="a person took over",
        on_timeout=OnTimeout.ESCALATE,
        onward=ONWARD[LoopPhase.ESCALATED],
    )
    return RecoveryPolicy(
        rows=rows,
        soft_deadline_us=recovery.soft_deadline_us,
        recurrence_window_us=recovery.recurrence.window_us,
        recurrence_limit=recovery.recurrence.limit,
        every_rank_limit=recovery.recurrence.every_rank_limit,
    )


def simple_policy(*, timeout_us: int, owner: str = "operator", **bounds: int) -> RecoveryPolicy:
    """One time limit for every phase: what simulations and tests use instead of a contract."""
    on_timeout = {LoopPhase.ISOLATING: OnTimeout.WIDEN}
    rows = {
        phase: PhaseRow(
            timeout_us={
                LoopPhase.RUNNING: None,
                LoopPhase.ESCALATED: None,
                LoopPhase.SUSPECT: _STACKS_US,
            }.get(phase, timeout_us),
            owner=owner,
            accept=f"{phase.value} is over",
            on_timeout=on_timeout.get(phase, OnTimeout.FALL_BACK),
            onward=ONWARD[phase],
        )
        for phase in LoopPhase
    }
    return RecoveryPolicy(rows=rows, **bounds)


def _with_timeout(row: PhaseRow, timeout_us: int | None) -> PhaseRow:
    return PhaseRow(
        timeout_us=timeout_us,
        owner=row.owner,
        accept=row.accept,
        on_timeout=row.on_timeout,
        onward=row.onward,
    )
