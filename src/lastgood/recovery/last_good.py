"""Which state may be built on: the trust book, and the choice of what to restore.

A state is *written*, then *complete* (all replicas published one digest), then *verified* (re-read, hashed
and reproduced by a replay). It is *suspect* after any mismatch and *tainted* when it is not strictly older
than a divergent step. A state is also out of the question when the run went back behind it: it belongs to
an abandoned history, and only the states that the run published again since then count.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lastgood.recovery.messages import Candidate, RestorePlan, Tier, VerifyMode


class Trust(enum.StrEnum):
    """How far a state can be relied on."""

    WRITTEN = "written"
    COMPLETE = "complete"
    VERIFIED = "verified"
    SUSPECT = "suspect"
    TAINTED = "tainted"


_NEVER = frozenset({Trust.WRITTEN, Trust.SUSPECT, Trust.TAINTED})


class StateKey(NamedTuple):
    """One copy of one state: the same step published again in another generation is another state."""

    step: int
    tier: Tier
    locator: str
    generation: int | None


class Resumption(NamedTuple):
    """The run went on from `step` in `generation`: older generations' newer states are abandoned."""

    generation: int
    step: int
    at_us: int


class Choice(NamedTuple):
    """The plan, and the candidate that it was made from."""

    plan: RestorePlan
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustBook:
    """What is known about states beyond what the catalogue says."""

    marks: Mapping[StateKey, Trust] = field(default_factory=dict)
    resumptions: tuple[Resumption, ...] = ()
    """Increasing in generation and in step: a lower step makes older entries pointless."""

    def marked(self, key: StateKey, trust: Trust) -> TrustBook:
        """The book after one more judgement; a bad one is never taken back."""
        if self.marks.get(key) in _NEVER and trust not in _NEVER:
            return self
        return replace(self, marks={**self.marks, key: trust})

    def resumed(self, *, generation: int, step: int, at_us: int) -> TrustBook:
        """The book after the run went on from `step`; marks of abandoned states are dropped with them."""
        kept = tuple(r for r in self.resumptions if r.step < step)
        book = replace(self, resumptions=(*kept, Resumption(generation, step, at_us)))
        marks = {
            key: trust
            for key, trust in self.marks.items()
            if key.step <= step or key.generation is None
        }
        return replace(book, marks=marks)

    def republished(self, step: int) -> TrustBook:
        """The book after all ranks published the state anew: a slot copy of unknown generation was replaced."""
        stale = StateKey(step, Tier.SLOT, "", None)
        if stale not in self.marks:
            return self
        return replace(
            self, marks={key: trust for key, trust in self.marks.items() if key != stale}
        )

    def trust_of(self, candidate: Candidate) -> Trust:
        """What the book says of a candidate: complete unless something else is known."""
        if not candidate.digest:
            return Trust.WRITTEN
        return self.marks.get(key_of(candidate), Trust.COMPLETE)

    def newest_verified(self, *, below_step: int | None = None) -> int | None:
        """Newest step whose state was verified, in the history that the run is on, and of which no copy was ill."""
        ill = {key.step for key, trust in self.marks.items() if trust in _NEVER}
        steps = {key.step for key, trust in self.marks.items() if trust is Trust.VERIFIED} - ill
        return max((s for s in steps if below_step is None or s < below_step), default=None)

    def is_current(self, candidate: Candidate, *, published_step: int) -> bool:
        """Whether the state belongs to the history that the run is on.

        Known by its generation, else by its time; a state of which neither is known is taken for older than
        every resumption, except a slot that `Progress` vouches for (publishing a step overwrites its slot).
        """
        if candidate.generation is not None:
            since = [r for r in self.resumptions if r.generation > candidate.generation]
        elif candidate.published_us is not None:
            since = [r for r in self.resumptions if r.at_us > candidate.published_us]
        elif candidate.tier is Tier.SLOT and candidate.step <= published_step:
            since = []
        else:
            since = list(self.resumptions)
        return all(candidate.step <= r.step for r in since)


def key_of(candidate: Candidate) -> StateKey:
    """The identity of a candidate in the trust book."""
    return StateKey(candidate.step, candidate.tier, candidate.locator, candidate.generation)


def choose(
    book: TrustBook,
    candidates: Sequence[Candidate],
    *,
    published_step: int,
    below_step: int | None = None,
    failed: Collection[tuple[int, Tier]] = (),
) -> Choice | None:
    """The newest state that may be tried, slots before checkpoints; None when there is none.

    Args:
        published_step: Newest state that all ranks published in the current history.
        below_step: First divergent step: only states strictly older are considered.
        failed: States that were tried in this incident and did not hold.
    """
    allowed = {}
    for candidate in candidates:
        is_allowed = (
            (below_step is None or candidate.step < below_step)
            and (candidate.step, candidate.tier) not in failed
            and book.trust_of(candidate) not in _NEVER
            and book.is_current(candidate, published_step=published_step)
        )
        allowed[candidate] = is_allowed
    usable = [candidate for candidate, is_allowed in allowed.items() if is_allowed]
    if not usable:
        return None
    best = max(usable, key=lambda c: (c.step, c.tier is Tier.SLOT))
    before = [c for c in candidates if c.step == best.step - 1 and c.tier is best.tier]
    has_predecessor = best.has_predecessor and all(allowed[c] for c in before)
    return Choice(_plan(best, has_predecessor=has_predecessor), best)


def _plan(candidate: Candidate, *, has_predecessor: bool) -> RestorePlan:
    if candidate.tier is Tier.INITIAL:
        return RestorePlan(
            tier=candidate.tier,
            mode=VerifyMode.BEGIN,
            restore_step=candidate.step,
            target_step=candidate.step,
            digest=candidate.digest,
        )
    return RestorePlan(
        tier=candidate.tier,
        mode=VerifyMode.PREDECESSOR if has_predecessor else VerifyMode.REPEAT,
        restore_step=candidate.step - 1 if has_predecessor else candidate.step,
        target_step=candidate.step,
        digest=candidate.digest,
        locator=candidate.locator,
    )
