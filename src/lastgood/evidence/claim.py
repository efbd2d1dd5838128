"""An improvement as a claim that can fail: what it says, how sure that is, and what would be needed to tell.

Four answers. *Shown*: the effect is there, at the asked size, and chance is not enough to explain it. *Not shown*:
it may be there and these records do not show it. *Worse*: the opposite is there. *Cannot tell*: the sides differ in
more than what was changed on purpose, or have too few incidents for any answer. None of them has a cause in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastgood.budget.multiplicity import holm
from lastgood.evidence.claim_conditions import differences
from lastgood.evidence.claim_measure import measure
from lastgood.evidence.claim_records import (
    MAY_DIFFER,
    TOO_FEW,
    Answer,
    Asked,
    ClaimName,
    ClaimResult,
    Found,
)
from lastgood.evidence.claim_sides import Side


def judge_claims(
    claims: Sequence[ClaimName], before: Side, after: Side, asked: Asked
) -> tuple[ClaimResult, ...]:
    """The answer to each claim; several claims share the chance of a false one (Holm)."""
    differing = tuple(differences(before.conditions, after.conditions, asked.changed).values())
    found = [measure(claim, before, after, asked) for claim in claims]
    better = holm([f.p_better for f in found]).tolist()
    other = holm([f.p_any for f in found]).tolist()
    return tuple(
        _answered(f, p, q, asked, differing, count=len(claims))
        for f, p, q in zip(found, better, other, strict=True)
    )


def _answered(
    found: Found, p: float, p_any: float, asked: Asked, differing: tuple[str, ...], *, count: int
) -> ClaimResult:
    alpha = 1 - asked.level
    if found.obstacles:
        answer = Answer.CANNOT_TELL
    elif found.is_better and p <= alpha:
        answer = Answer.SHOWN
    elif found.is_worse and p_any <= alpha:
        answer = Answer.WORSE
    else:
        answer = Answer.NOT_SHOWN
    return msgspec.structs.replace(
        found.result,
        answer=str(answer),
        reasons=found.obstacles,
        differing=differing,
        next=_next(found, asked),
        p=found.p,
        p_adjusted=max(p_any if answer is Answer.WORSE else p, found.p or 0.0)
        if count > 1
        else None,
        needed=found.result.needed if _helps_more(found, answer) else "",
    )


def _helps_more(found: Found, answer: Answer) -> bool:
    """More of the same incidents would tell; they are no help against what is unknown or unlike."""
    if answer is Answer.CANNOT_TELL:
        return all(reason.startswith(TOO_FEW) for reason in found.obstacles)
    return answer is Answer.NOT_SHOWN


def _next(found: Found, asked: Asked) -> str:
    """What a person can type where the conditions left nothing to tell."""
    if not found.to_name:
        return ""
    if MAY_DIFFER.union(asked.changed).issuperset(found.to_name):
        return f"take runs with one value of {', '.join(found.to_name)} on each side: LEDGER#RUN"
    names = ",".join(sorted({*found.to_name, *asked.changed}))
    return (
        f"make the sides alike, or say what was changed on purpose or may differ: --changed {names}"
    )
