"""Workers and spares: who serves which rank, and which moves are legal.

`LEGAL_MOVES` is the whole rule; a move that is not in it raises and changes nothing. A rank has at most one
owner at any moment: a rank is free only when its owner has parked, has been quarantined or is gone. Every
move gives a new inventory, so an old one still says how things were.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lastgood.base.errors import RecoveryError


class WorkerState(enum.StrEnum):
    """Where a worker stands."""

    LAUNCHING = "launching"
    """The process runs and has not passed its check."""
    PARKED = "parked"
    """Checked, serves no rank, ready to serve one."""
    ACTIVE = "active"
    """Serves a rank."""
    SUSPECT = "suspect"
    """Serves a rank and is doubted: it keeps the rank until it is cleared, or out."""
    QUARANTINED = "quarantined"
    """Out, has left its generation, and returns only with evidence."""
    GONE = "gone"
    """The process has ended; the name is never used again."""


LEGAL_MOVES: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.LAUNCHING: frozenset({WorkerState.PARKED, WorkerState.GONE}),
    WorkerState.PARKED: frozenset({WorkerState.ACTIVE, WorkerState.QUARANTINED, WorkerState.GONE}),
    WorkerState.ACTIVE: frozenset({WorkerState.PARKED, WorkerState.SUSPECT, WorkerState.GONE}),
    WorkerState.SUSPECT: frozenset(
        {WorkerState.ACTIVE, WorkerState.PARKED, WorkerState.QUARANTINED, WorkerState.GONE}
    ),
    WorkerState.QUARANTINED: frozenset({WorkerState.PARKED, WorkerState.GONE}),
    WorkerState.GONE: frozenset(),
}
"""From where to where. Not here: active to quarantined (nobody goes out without having been suspected)."""
OWNING = frozenset({WorkerState.ACTIVE, WorkerState.SUSPECT})
"""States in which a worker holds its rank."""


class IllegalMove(RecoveryError):
    """A move that the table does not have, or a second owner for a rank."""

    code = "LG-R02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process of the pool."""

    name: str
    host: str
    state: WorkerState = WorkerState.LAUNCHING
    rank: int | None = None
    """0-based; set exactly while the worker holds a rank."""
    evidence: str = ""
    """Why it was quarantined, or with what it came back."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All workers that a run has ever had."""

    workers: Mapping[str, Worker] = field(default_factory=dict)

    def launch(self, name: str, *, host: str) -> Inventory:
        """Add a worker; a name is used once in a run."""
        if name in self.workers:
            raise IllegalMove(
                "launch", where=name, found="the name again", needs="a name of its own"
            )
        return self._with(Worker(name=name, host=host))

    def park(self, name: str, *, evidence: str = "") -> Inventory:
        """Ready to serve: it passed its check, left its generation, or came back from quarantine.

        From quarantine only with evidence, such as a clean replay test: nobody returns by waiting.
        """
        if self._worker(name).state is WorkerState.QUARANTINED and not evidence:
            raise IllegalMove(
                "park", where=name, found="no evidence", needs="the test that cleared it"
            )
        return self._move(name, WorkerState.PARKED, rank=None, evidence=evidence)

    def activate(self, name: str, *, rank: int) -> Inventory:
        """Give a parked worker a rank that nobody holds."""
        if self._worker(name).state is WorkerState.SUSPECT:
            raise IllegalMove("activate", where=name, found="suspect", needs="clear, or park first")
        owner = self.owner_of(rank)
        if owner is not None:
            raise IllegalMove(
                "activate", where=name, found=f"rank {rank} held by {owner}", needs="a free rank"
            )
        if rank < 0:
            raise IllegalMove(
                "activate", where=name, found=f"rank {rank}", needs="a rank from 0 on"
            )
        return self._move(name, WorkerState.ACTIVE, rank=rank)

    def suspect(self, name: str) -> Inventory:
        """Doubt an active worker; it keeps its rank."""
        return self._move(name, WorkerState.SUSPECT, rank=self._worker(name).rank)

    def clear(self, name: str) -> Inventory:
        """The doubt was wrong: the suspect goes on serving its rank."""
        worker = self._worker(name)
        if worker.state is not WorkerState.SUSPECT:
            raise IllegalMove("clear", where=name, found=worker.state, needs="suspect")
        return self._move(name, WorkerState.ACTIVE, rank=worker.rank)

    def quarantine(self, name: str, *, evidence: str) -> Inventory:
        """Take a worker out. The caller has made sure that it left its generation and writes no more."""
        if not evidence:
            raise IllegalMove(
                "quarantine", where=name, found="no evidence", needs="what speaks against it"
            )
        return self._move(name, WorkerState.QUARANTINED, rank=None, evidence=evidence)

    def end(self, name: str) -> Inventory:
        """The process has ended (its exit was collected)."""
        return self._move(name, WorkerState.GONE, rank=None)

    def owner_of(self, rank: int) -> str | None:
        """The worker that holds a rank; None when it is free."""
        return next((worker.name for worker in self.workers.values() if worker.rank == rank), None)

    def in_state(self, state: WorkerState) -> tuple[str, ...]:
        """Names of the workers in a state, the oldest first."""
        return tuple(worker.name for worker in self.workers.values() if worker.state is state)

    def vacant(self, world: int) -> tuple[int, ...]:
        """The ranks of a world of that size that nobody holds."""
        held = {worker.rank for worker in self.workers.values()}
        return tuple(rank for rank in range(world) if rank not in held)

    def on_host(self, host: str) -> tuple[str, ...]:
        """Workers on a host that are not gone."""
        return tuple(
            worker.name
            for worker in self.workers.values()
            if worker.host == host and worker.state is not WorkerState.GONE
        )

    def _worker(self, name: str) -> Worker:
        worker = self.workers.get(name)
        if worker is None:
            raise IllegalMove("move", where=name, found="an unknown worker", needs="a launched one")
        return worker

    def _move(
        self, name: str, state: WorkerState, *, rank: int | None, evidence: str = ""
    ) -> Inventory:
        worker = self._worker(name)
        if state not in LEGAL_MOVES[worker.state]:
            legal = ", ".join(sorted(LEGAL_MOVES[worker.state])) or "no move at all"
            raise IllegalMove(
                "move", where=name, found=f"{worker.state} to {state}", needs=f"from there: {legal}"
            )
        return self._with(replace(worker, state=state, rank=rank, evidence=evidence))

    def _with(self, worker: Worker) -> Inventory:
        assert (worker.rank is not None) == (worker.state in OWNING), (
            "a rank is held exactly while serving"
        )
        return Inventory({**self.workers, worker.name: worker})
