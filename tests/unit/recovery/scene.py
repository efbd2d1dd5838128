"""A loop with four ranks and one spare, driven by hand: each call is one observation."""

from __future__ import annotations

from typing import Any, TypeVar

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase, RecoveryPolicy, simple_policy
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict

S = 1_000_000
WORKERS = ("w0", "w1", "w2", "w3")
A = TypeVar("A", bound=m.Action)


def failed(
    symptom: Symptom = Symptom.HANG,
    *culprits: int,
    verdict: Verdict = Verdict.FAILED,
    question: Question = Question.LIVENESS,
    **fields: Any,
) -> m.Assessed:
    """A verdict as a detector gives it."""
    return m.Assessed(
        Assessment(
            question=question,
            verdict=verdict,
            symptom=symptom,
            culprits=culprits,
            evidence=("seen",),
            **fields,
        )
    )


def slot(step: int, **fields: Any) -> m.Candidate:
    """A snapshot of which all replicas published one digest."""
    known = {"tier": m.Tier.SLOT, "digest": f"d{step}", "has_predecessor": True, "generation": 1}
    return m.Candidate(**{"step": step, **known, **fields})


def checkpoint(step: int, **fields: Any) -> m.Candidate:
    """A durable state."""
    known = {"tier": m.Tier.CHECKPOINT, "has_predecessor": False, "locator": f"step-{step}"}
    return slot(step, **{**known, **fields})


def usual_states(newest: int = 10, generation: int = 1) -> tuple[m.Candidate, ...]:
    """Three slots and an old checkpoint, as a healthy run has them."""
    return (
        slot(newest, generation=generation),
        slot(newest - 1, generation=generation),
        slot(newest - 2, has_predecessor=False, generation=generation),
        checkpoint(newest - 6, generation=generation),
    )


class Scene:
    """The loop, the time, and every action so far."""

    def __init__(
        self, *, policy: RecoveryPolicy | None = None, spares: int = 1, published: int = 10
    ) -> None:
        self.now_us = 100 * S
        self.actions: list[m.Action] = []
        self.last: tuple[m.Action, ...] = ()
        self.state = loop.initial_state(
            4, None, WORKERS, spares, run="r", host="h", now_us=self.now_us,
            policy=policy or simple_policy(timeout_us=10 * S, soft_deadline_us=2 * S),
        )  # fmt: skip
        for number in range(spares):
            self.tell(m.SpareReady(f"w{4 + number}"))
        self.tell(m.Progress(published, 1))

    @property
    def phase(self) -> LoopPhase:
        return self.state.phase

    def tell(self, *observations: m.Observation, after_us: int = 1000) -> Scene:
        """Each observation a little later than the one before; `last` holds the answer to all of them."""
        said: list[m.Action] = []
        for observation in observations:
            self.now_us += after_us
            self.state, actions = loop.step(self.state, observation, self.now_us)
            said += actions
            self.wait_in_vain()
        self.last = tuple(said)
        self.actions += said
        return self

    def wait_in_vain(self) -> None:
        """Time alone moves nothing before the deadline, so whoever drives the loop need not tell it."""
        until_us = self.state.deadline_us
        before_us = self.now_us + 1 if until_us is None else until_us - 1
        if before_us >= self.now_us:
            assert loop.step(self.state, m.Tick(), before_us) == (self.state, ())

    def said(self, kind: type[A]) -> list[A]:
        """Actions of one kind in the answer to the last `tell`."""
        return [action for action in self.last if isinstance(action, kind)]

    def records(self, kind: str | None = None, *, ever: bool = False) -> list[dict[str, Any]]:
        """Fields of the events in the last answer, or since the beginning."""
        pool = self.actions if ever else self.last
        return [a.fields for a in pool if isinstance(a, m.Record) and kind in (None, a.kind)]

    def kinds(self) -> list[str]:
        """Names of all events so far."""
        return [a.kind for a in self.actions if isinstance(a, m.Record)]

    # --- the usual answers of a healthy world -----------------------------------------------------

    def park(self, *workers: str) -> Scene:
        """These workers leave the present generation."""
        return self.tell(*[m.WorkerParked(w, self.state.generation) for w in workers])

    def isolate(self, rank: int = 2) -> Scene:
        """A rank dies and everybody else parks: the loop is in RESTORING."""
        self.tell(m.WorkerGone(self.state.crew.serving[rank]))
        return self.park(*[w for r, w in enumerate(self.state.crew.serving) if r != rank])

    def catalogue(self, *candidates: m.Candidate) -> Scene:
        """The answer to `ReadCatalogue`."""
        return self.tell(m.CatalogueRead(candidates=candidates or usual_states()))

    def restored(self, *ranks: int, is_intact: bool = True, bad_step: int | None = None) -> Scene:
        """These ranks re-read their bytes."""
        return self.tell(
            *[
                m.Restored(
                    rank=r, generation=self.state.generation, is_intact=is_intact, bad_step=bad_step
                )
                for r in ranks
            ]
        )

    def replayed(self, *ranks: int, outcome: m.ReplayOutcome = m.ReplayOutcome.EQUAL) -> Scene:
        """These ranks finished their replay."""
        return self.tell(
            *[
                m.Replayed(rank=r, generation=self.state.generation, step=10, outcome=outcome)
                for r in ranks
            ]
        )

    def recover(self, rank: int = 2, *states: m.Candidate) -> Scene:
        """One whole recovery from the death of a rank."""
        self.isolate(rank).catalogue(*states)
        return self.restored(0, 1, 2, 3).replayed(0, 1, 2, 3)
