"""Many seeds, one after the other: counts what happened, stops at nothing, keeps what failed."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lastgood.recovery.simulated.world import World


@dataclass(slots=True)
class Finding:
    """A seed whose run broke a rule."""

    seed: int
    words: str

    def __str__(self) -> str:
        """The failure and the command that replays it."""
        return f"seed {self.seed}: {self.words}\nreplay: python -m lastgood.recovery.simulated --seed {self.seed}"


@dataclass(slots=True)
class SweepResult:
    """What a sweep saw."""

    run_count: int = 0
    incident_count: int = 0
    recovered_count: int = 0
    escalated_count: int = 0
    fault_counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def sweep(seeds: Iterable[int], *, finding_count_max: int = 5) -> SweepResult:
    """Runs every seed; ends early only after `finding_count_max` failures."""
    result = SweepResult()
    for seed in seeds:
        world = World(seed)
        result.run_count += 1
        try:
            world.run()
        except Exception as error:  # noqa: BLE001  a crash of the loop is a finding like any other
            words = str(error) or "".join(traceback.format_exception_only(error)).strip()
            result.findings.append(Finding(seed, f"{type(error).__name__}: {words}"))
            if len(result.findings) >= finding_count_max:
                break
        result.incident_count += world.invariants.incident_count
        result.recovered_count += world.invariants.recovered_count
        result.escalated_count += world.state.phase.value == "escalated"
        result.fault_counts.update(str(fault.kind) for fault in world.tape)
    return result
