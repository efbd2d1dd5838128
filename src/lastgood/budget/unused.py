"""Inputs that change nothing, because what they belong to is not there: said, never passed over.

`copies` without `machines` is such an input, and a Weibull shape without a job to simulate. Typed on a command line it
is a mistake and refused; in a scenario file, which may serve several commands, the plan says that it was not used.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.budget.scenario import Scenario

_SNAPSHOT, _PEERS = ("snapshot_copy", "snapshot_persist"), ("machines", "peer_copy_cost")
_SPARES = ("node_mtti", "refill")
BESIDE: Mapping[str, tuple[str, ...]] = {
    "weibull_shape": ("work",),
    "burst_chance": ("work",),
    "burst_gap": ("work", "burst_chance"),
    "checkpoint_failure": ("work",),
    "verification_cost": ("silent_mtti",),
    "retained_checkpoints": ("detection_latency",),
    "retention_risk": ("detection_latency",),
    **dict.fromkeys((*_SNAPSHOT, "snapshot_slowdown"), _SNAPSHOT),
    **dict.fromkeys(
        (*_PEERS, "copies", "simultaneous_losses", "evicted_together", "peer_recovery"), _PEERS
    ),
    **dict.fromkeys((*_SPARES, "spare_chance", "window"), _SPARES),
    "ettr_wanted": ("queue",),
}
"""Input of a plan -> what else must be given for it to change anything; an input that is not here needs nothing."""


def lacking(scenario: Scenario, name: str) -> tuple[str, ...]:
    """What this input needs beside it and the scenario does not give."""
    return tuple(one for one in BESIDE.get(name, ()) if one not in scenario.given)


def unused_sentence(scenario: Scenario) -> str:
    """The given inputs that this plan did not use, in words; empty when it used all of them."""
    idle = {name: lacking(scenario, name) for name in scenario.given}
    told = [f"{name} (needs {' and '.join(needs)})" for name, needs in idle.items() if needs]
    return f"Given and not used: {', '.join(told)}." if told else ""
