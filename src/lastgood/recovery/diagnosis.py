"""From a symptom to the smallest credible fault domain.

A symptom is not a cause: the same hang comes from a link, a driver or a deadlock in user code. So the cause
here is a hypothesis at best and mostly unknown, and what the loop acts on is the *domain*: what leaves the
next attempt. The same signature again soon after a recovery says that the domain was too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lastgood.contract.taxonomy import (
    Cause,
    CauseStatus,
    DomainKind,
    FailureClass,
    class_of,
)
from lastgood.signals.reading import Assessment, Symptom


class Occurrence(NamedTuple):
    """A closed incident as the recurrence rule remembers it."""

    signature: str
    closed_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an incident is taken to be, and how much of the job it takes out."""

    failure_class: FailureClass
    symptom: Symptom
    cause: Cause
    cause_status: CauseStatus
    signature: str
    """Equal for failures that count as the same one coming back."""
    culprits: tuple[int, ...]
    """Ranks named by the detector."""
    domain: DomainKind
    """What is taken out: the ranks themselves, or everything on their host."""
    return_count: int
    """How often the same signature was recovered from within the window before."""


def diagnose(
    assessment: Assessment,
    *,
    earlier: Sequence[Occurrence],
    window_us: int,
    now_us: int,
) -> Diagnosis:
    """The smallest credible domain; one size larger when the same signature has come back."""
    symptom = assessment.symptom or Symptom.GROUP_ERROR
    signature = signature_of(assessment)
    returns = count_returns(signature, earlier=earlier, window_us=window_us, now_us=now_us)
    cause, status = _cause(symptom, assessment)
    return Diagnosis(
        failure_class=class_of(symptom),
        symptom=symptom,
        cause=cause,
        cause_status=status,
        signature=signature,
        culprits=assessment.culprits,
        domain=DomainKind.HOST if returns else DomainKind.RANK,
        return_count=returns,
    )


def count_returns(
    signature: str, *, earlier: Sequence[Occurrence], window_us: int, now_us: int
) -> int:
    """How often a failure of this signature was recovered from within the window."""
    return sum(1 for o in earlier if o.signature == signature and now_us - o.closed_us <= window_us)


def signature_of(assessment: Assessment) -> str:
    """Symptom, what distinguishes it, and where.

    An exception of user code is the same failure on whichever rank it appears; a number that is not finite
    is the same failure when it comes back at the same step.
    """
    parts = [str(assessment.symptom)]
    # How a process ended is not always known when the incident opens, so it does not count.
    if assessment.key and assessment.symptom is not Symptom.PROCESS_EXIT:
        parts.append(assessment.key)
    if assessment.symptom is Symptom.NONFINITE and assessment.first_divergent_step is not None:
        parts.append(f"step {assessment.first_divergent_step}")
    elif assessment.symptom is not Symptom.EXCEPTION:
        parts.append(
            "ranks " + ",".join(map(str, assessment.culprits))
            if assessment.culprits
            else "no culprit"
        )
    return "/".join(parts)


class _CauseGuess(NamedTuple):
    cause: Cause
    status: CauseStatus


def _cause(symptom: Symptom, assessment: Assessment) -> _CauseGuess:
    if symptom is Symptom.EXCEPTION:
        return _CauseGuess(Cause.SOFTWARE_USER, CauseStatus.HYPOTHESIS)
    if symptom is Symptom.PROCESS_EXIT and assessment.key.startswith("exit code"):
        return _CauseGuess(Cause.SOFTWARE_USER, CauseStatus.HYPOTHESIS)
    return _CauseGuess(Cause.UNKNOWN, CauseStatus.UNKNOWN)
