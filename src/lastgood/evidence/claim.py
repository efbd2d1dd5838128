"""An improvement as a claim that can fail: what it says, how sure that is, and what would be needed to tell.

Four answers. *Shown*: the effect is there, at the asked size, and chance is not enough to explain it. *Not shown*:
it may be there and these records do not show it. *Worse*: the opposite is there. *Cannot tell*: the sides differ in
more than what was changed on purpose, or have too few incidents for any answer. None of them has a cause in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastgood.budget.multiplicity import holm
from lastgood.evidence.claim_measure import measure
from lastgood.evidence.claim_records import MAY_DIFFER, Answer, Asked, ClaimName, ClaimResult, Found
from lastgood.evidence.claim_sides import Side


def judge_claims(
    claims: Sequence[ClaimName], before: Side, after: Side, asked: Asked
) -> tuple[ClaimResult, ...]:
    """The answer to each claim; several claims share the chance of a false one (Holm)."""
    differing, obstacles = _differences(before, after, asked.changed)
    found = [measure(claim, before, after, asked) for claim in claims]
    better = holm([f.p_better for f in found]).tolist()
    other = holm([f.p_any for f in found]).tolist()
    return tuple(
        _answered(f, p, q, asked, differing, obstacles, count=len(claims))
        for f, p, q in zip(found, better, other, strict=True)
    )


def _differences(
    before: Side, after: Side, changed: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All conditions that differ, and those of them that nobody said were changed."""
    differing, obstacles = [], []
    for name in sorted({*before.conditions, *after.conditions}):
        a, b = before.conditions.get(name, ()), after.conditions.get(name, ())
        if a == b:
            continue
        text = f"{name}: {', '.join(a) or 'not recorded'} before, {', '.join(b) or 'not recorded'} after"
        differing.append(text)
        if name not in changed and name not in MAY_DIFFER:
            obstacles.append(text)
    return tuple(differing), tuple(obstacles)


def _answered(
    found: Found, p: float, p_any: float, asked: Asked, differing: tuple[str, ...], obstacles: tuple[str, ...],
    *, count: int,
) -> ClaimResult:  # fmt: skip
    alpha = 1 - asked.level
    reasons = (*obstacles, *found.obstacles)
    if reasons:
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
        reasons=reasons,
        differing=differing,
        p_adjusted=p if count > 1 else None,
        needed="" if answer in {Answer.SHOWN, Answer.WORSE} else found.result.needed,
    )
