"""Ranks that end badly behind the last step: nothing is left to recover, so they are named and their code is the run's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lastgood.contract.taxonomy import class_of
from lastgood.signals.reading import Symptom
from lastgood.training.processes import describe_exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lastgood.training.supervising.supervisor import Supervisor

SIGNAL_BASE = 128
"""A shell's code for a process that a signal ended: 137 for SIGKILL."""


class LateDeaths:
    """Hears of every end behind the last step, and remembers which bad one came first."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Nobody has ended."""
        self._supervisor = supervisor
        self._seen: set[int] = set()
        self._incident_count = 0
        self.code = 0
        """Of the first rank that ended badly, as a shell says it; of several at once, of one that was killed."""

    def take(self, codes: Mapping[int, int]) -> bool:
        """Take the exit codes of the ranks that have ended by now; True when an incident was recorded."""
        fresh = {rank: code for rank, code in codes.items() if rank not in self._seen}
        self._seen.update(fresh)
        killed = {rank: code for rank, code in fresh.items() if code < 0}
        # What a rank makes of the end of a peer, such as an error of its barrier, comes behind that end.
        worst = next(iter(killed.values()), 0) or next((c for c in fresh.values() if c), 0)
        self.code = self.code or (worst if worst >= 0 else SIGNAL_BASE - worst)
        if killed:
            self._record(killed)
        return bool(killed)

    def _record(self, killed: Mapping[int, int]) -> None:
        """One incident, open and closed: the scripts of these ranks did not come to their end."""
        supervisor = self._supervisor
        assert supervisor.state is not None
        self._incident_count += 1
        number = supervisor.state.case_count + self._incident_count
        ranks = tuple(sorted(killed))
        step = supervisor.watch.next_step - 1
        host = {"kind": "host", "id": os.uname().nodename}
        words = {
            "incident": f"{supervisor.options.run_id}/incident-{number}",
            "class_": str(class_of(Symptom.PROCESS_EXIT)),
            "symptom": str(Symptom.PROCESS_EXIT),
            "ranks": ranks,
        }
        opening = {
            **words,
            "cause": "unknown",
            "cause_status": "unknown",
            "role": "initiating",
            "domain": [*({"kind": "rank", "id": str(rank)} for rank in ranks), host],
        }
        evidence = [
            f"rank {rank} ({supervisor.serving[rank]}) {describe_exit(killed[rank])} behind the last step"
            for rank in ranks
        ]
        body = {"evidence": evidence, "signature": f"process_exit/behind step {step}"}
        supervisor.recorder.record("incident.open", **opening, body=body)
        supervisor.recorder.record("detect", **opening, body={"question": "liveness"})
        closing = {
            "outcome": "ended",
            "resumed_step": step,
            "lost_steps": 0,
            "blast_radius": len(ranks),
            "reason": "every step was done: nothing is left to recover",
        }
        supervisor.recorder.record("incident.close", **words, body=closing)
