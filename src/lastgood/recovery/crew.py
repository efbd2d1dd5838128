"""Which process serves which rank, and what else there is: the loop's own view of the workers.

A value with one rule: a rank has one worker, a worker has one rank. Every change gives a new crew.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


class Standing(enum.StrEnum):
    """What a worker is to the loop."""

    ACTIVE = "active"
    """Serves a rank of the newest generation."""
    PARKED = "parked"
    """Served, left its generation, waits: it can serve again."""
    SPARE = "spare"
    """Passed its check and waits; has not served."""
    DOOMED = "doomed"
    """SIGKILL was ordered, the end was not seen yet."""
    GONE = "gone"
    UNKILLABLE = "unkillable"
    """Killed, but the kernel holds it: its host is marked and it never serves again."""


_OVER = frozenset({Standing.GONE, Standing.UNKILLABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Ranks, workers and spares."""

    serving: tuple[str, ...]
    """serving[r] is the worker of rank r in the newest generation, also after it ended."""
    standing: Mapping[str, Standing]
    spare_target_count: int
    """Ready spares wanted while nothing is wrong."""
    launching_count: int = 0
    """Spares ordered and not yet heard of."""
    launch_failure_count: int = 0
    """Spares in a row that ended before they were ready."""
    unusable: frozenset[str] = field(default=frozenset())
    """Names that ended or were given up: a late word about them changes nothing."""

    def of(self, worker: str) -> Standing | None:
        """The standing of a worker; None when it was never heard of."""
        return self.standing.get(worker)

    def rank_of(self, worker: str) -> int | None:
        """The rank that the worker serves in the newest generation."""
        return self.serving.index(worker) if worker in self.serving else None

    def serving_with(self, *standings: Standing) -> tuple[str, ...]:
        """Workers of the newest generation that have one of these standings, by rank."""
        return tuple(w for w in self.serving if self.standing[w] in standings)

    @property
    def spares(self) -> tuple[str, ...]:
        """Ready spares, oldest first."""
        return tuple(w for w, standing in self.standing.items() if standing is Standing.SPARE)

    @property
    def vacant_ranks(self) -> tuple[int, ...]:
        """Ranks whose worker is lost, or about to be."""
        return tuple(
            r
            for r, w in enumerate(self.serving)
            if self.standing[w] in _OVER or self.standing[w] is Standing.DOOMED
        )

    @property
    def spare_deficit(self) -> int:
        """Spares to order now so that every vacant rank and the pool are covered."""
        wanted = self.spare_target_count + len(self.vacant_ranks)
        return max(0, wanted - len(self.spares) - self.launching_count)

    def moved(self, workers: Iterable[str], standing: Standing) -> Crew:
        """These workers now have this standing; ended workers never come back."""
        known = dict(self.standing)
        unusable = set(self.unusable)
        for worker in workers:
            if known.get(worker) in _OVER:
                continue
            known[worker] = standing
            if standing in _OVER:
                unusable.add(worker)
                if worker not in self.serving:
                    del known[worker]
        return replace(self, standing=known, unusable=frozenset(unusable))

    def spare_ready(self, worker: str) -> Crew:
        """A new spare passed its check; a known or ended name changes nothing."""
        if worker in self.standing or worker in self.unusable:
            return self
        return replace(
            self,
            standing={**self.standing, worker: Standing.SPARE},
            launching_count=max(0, self.launching_count - 1),
            launch_failure_count=0,
        )

    def spare_lost(self, worker: str) -> Crew:
        """A spare ended: a ready one, or one that was never ready (counted as a failed launch)."""
        if worker in self.unusable:
            return self
        if self.of(worker) is Standing.SPARE:
            return self.moved([worker], Standing.GONE)
        return replace(
            self,
            unusable=self.unusable | {worker},
            launching_count=max(0, self.launching_count - 1),
            launch_failure_count=self.launch_failure_count + 1,
        )

    def ordered(self, count: int) -> Crew:
        """`count` more spares are being started."""
        return replace(self, launching_count=self.launching_count + count)

    def reassigned(self) -> Crew:
        """The crew of a new generation: parked workers keep their ranks, ready spares fill the vacant ones.

        Raises:
            ValueError: A rank would have no worker, or a worker of the old generation has not left it.
        """
        spares = list(self.spares)
        serving: list[str] = []
        for worker in self.serving:
            if self.standing[worker] is Standing.PARKED:
                serving.append(worker)
            elif self.standing[worker] in _OVER and spares:
                serving.append(spares.pop(0))
            else:
                raise ValueError(
                    f"no new generation: {worker} is {self.standing[worker]}, {len(spares)} spares ready"
                )
        standing = {
            w: s for w, s in self.standing.items() if s is Standing.SPARE and w not in serving
        }
        standing.update(dict.fromkeys(serving, Standing.ACTIVE))
        return replace(self, serving=tuple(serving), standing=standing)


def first_crew(workers: Iterable[str], *, spare_count: int) -> Crew:
    """Generation 1: every worker active, the spares being started by whoever starts the run."""
    serving = tuple(workers)
    if len(set(serving)) != len(serving):
        raise ValueError(f"crew: found {serving}, needs one worker per rank")
    return Crew(
        serving=serving,
        standing=dict.fromkeys(serving, Standing.ACTIVE),
        spare_target_count=spare_count,
        launching_count=spare_count,
    )
