"""How long each phase of a rank may last before silence counts as a hang.

A limit is `max(floor, factor x robust quantile)` of the durations of *that same phase*: a data loader that
needs 40 s says nothing about how long a gradient may take. The quantile is taken from the last accepted
steps only, so a hang never teaches the detector to be patient. Warm-up phases (start of the process,
joining, restoring, the first step with its compilation) have their own, larger floor.

A false kill costs more than a late one: the floors are generous by default and are lowered only by the
demo and bench profiles, which pass theirs in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lastgood.signals.reading import Phase, RankReading

FIRST_STEP = "first_step"
"""Key of the first step of a generation: lazy initialisation and compilation happen there."""

_WARMUP_KEYS = frozenset({"launching", "joining", "restoring", FIRST_STEP})
_SECTION_PREFIX = "section:"
_IDLE_PHASES = frozenset({Phase.PARKED, Phase.HELD, Phase.FINISHED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Floors, the learning rule, and what was learned so far (a value: `learn` returns a new one)."""

    step_floor_us: int = 30_000_000
    """No phase of an ordinary step is called a hang before this."""
    warmup_floor_us: int = 600_000_000
    """Floor for starting, joining, restoring and the first step of a generation."""
    section_floor_us: int = 600_000_000
    """Floor for a declared section that declared no limit, before any of that name was seen to end."""
    section_learned_floor_us: int = 60_000_000
    """The least that a section's learned limit may be: sections differ more from each other than steps do."""
    section_count_min: int = 2
    """Ended sections of one name, on whatever ranks, that teach a limit: there are far fewer of them than steps."""
    step_ceiling_us: int | None = None
    """The longest that a phase of a step may last, whatever was learned: the contract's time to detect."""
    group_error_us: int = 5_000_000
    """How long a process-group error may stay without a culprit before the answer is unknown."""
    factor: float = 5.0
    """Multiple of the quantile; below 1 the detector would kill ordinary steps."""
    quantile: float = 0.9
    """Robust against the slowest tenth of the samples."""
    sample_count_min: int = 5
    """Fewer samples than this teach nothing."""
    sample_count_max: int = 64
    """Samples kept per phase; older ones are forgotten."""
    key_count_max: int = 64
    """Phases and section names remembered; a run that invents names cannot grow the memory."""
    starved_factor: int = 4
    """A starved rank is called hung only after this many limits."""
    unawaited_us: int = 0
    """For scripts that declare no sections: in its own code a rank is late by the time that a peer has waited for it,
    and by its own silence only after this. 0 where sections are declared: then each phase has its limit."""
    is_stop_enough: bool = True
    """A process that the kernel says is stopped is late by its own silence, whoever waits for it."""
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings under which silence would never, or always, count as a hang."""
        if not (self.factor >= 1.0) or math.isinf(self.factor):
            raise ValueError(
                f"limits: factor: found {self.factor}, needs a finite number of at least 1"
            )
        if not (0.0 < self.quantile <= 1.0):
            raise ValueError(
                f"limits: quantile: found {self.quantile}, needs a ratio above 0 and at most 1"
            )
        floors_us = (
            self.step_floor_us,
            self.warmup_floor_us,
            self.section_floor_us,
            self.group_error_us,
        )
        if min(floors_us) <= 0:
            raise ValueError(f"limits: floors: found {floors_us}, needs positive microseconds")


def phase_key(reading: RankReading) -> str | None:
    """The name under which the duration of the rank's present phase is learned; None when idle."""
    if reading.phase in _IDLE_PHASES:
        return None
    if reading.phase is Phase.SECTION:
        return section_key(reading.section or "")
    if reading.phase in (Phase.COMPUTE, Phase.COLLECTIVE) and reading.completions == 0:
        return FIRST_STEP
    return reading.phase.name.lower()


def learn(limits: Limits, key: str, *durations_us: int) -> Limits:
    """The limits after more durations of *accepted* steps; negative durations teach nothing."""
    taught = [duration_us for duration_us in durations_us if duration_us >= 0]
    known = limits.samples.get(key, ())
    if not taught or (not known and len(limits.samples) >= limits.key_count_max):
        return limits
    kept = (*known, *taught)[-limits.sample_count_max :]
    return replace(limits, samples={**limits.samples, key: kept})


def section_key(name: str) -> str:
    """The name under which the durations of a section are learned."""
    return _SECTION_PREFIX + name


def has_learned(limits: Limits, key: str) -> bool:
    """Whether enough durations of this phase were seen."""
    is_section = key.startswith(_SECTION_PREFIX)
    wanted = limits.section_count_min if is_section else limits.sample_count_min
    return len(limits.samples.get(key, ())) >= wanted


def limit_of_key_us(limits: Limits, key: str) -> int:
    """`max(floor, factor x quantile)` for one phase name."""
    floor_us = limits.step_floor_us
    if key in _WARMUP_KEYS:
        floor_us = limits.warmup_floor_us
    elif key.startswith(_SECTION_PREFIX):
        floor_us = limits.section_floor_us
    samples = limits.samples.get(key, ())
    found_us = floor_us
    if key.startswith(_SECTION_PREFIX) and has_learned(limits, key):
        # A section has no floor of steps to fall back on: what is learned may also be less than the ten minutes.
        floor_us = min(floor_us, limits.section_learned_floor_us)
    if has_learned(limits, key):
        found_us = max(floor_us, math.ceil(limits.factor * quantile_of(samples, limits.quantile)))
    is_step = key not in _WARMUP_KEYS and not key.startswith(_SECTION_PREFIX)
    if is_step and limits.step_ceiling_us is not None:
        return min(found_us, limits.step_ceiling_us)
    return found_us


def limit_us(limits: Limits, reading: RankReading) -> int | None:
    """How long the rank's present phase may last; None when the phase can not hang."""
    key = phase_key(reading)
    if key is None:
        return None
    if reading.phase is Phase.SECTION and reading.section_limit_us is not None:
        return reading.section_limit_us
    return limit_of_key_us(limits, key)


def quantile_of(samples: tuple[int, ...], ratio: float) -> int:
    """Nearest-rank quantile: a value that was really observed, with no interpolation."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(ratio * len(ordered)) - 1)]
