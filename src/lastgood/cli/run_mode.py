"""Which way `lastgood run` takes with a script: the recovery loop, a look from outside, or restarts of all ranks."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ACT_HANG_AFTER = "10min"
"""Without sections a long evaluation looks like a hang, and acting on it would end a healthy job."""
ONLY_IN_THE_LOOP = ("spares", "checkpoint_dir", "checkpoint_every", "snapshots", "launch_limit")


class Way(enum.StrEnum):
    """How a script is run."""

    LOOP = "loop"
    """It calls lastgood.start: spares, snapshots, verified recovery."""
    OBSERVE = "observe"
    """Watched from outside; nothing is ended."""
    HARD = "hard"
    """It does not call lastgood.start: a fault starts all ranks again."""


def choose_way(script: Path, mode: str | None) -> Way:
    """The way for a script: by `--mode`, else by whether it calls `lastgood.start`."""
    if mode == "observe":
        return Way.OBSERVE
    from lastgood.training.observe.script import calls_start

    has_start = calls_start(script)
    if mode is None:
        return Way.LOOP if has_start else Way.OBSERVE
    return Way.LOOP if has_start else Way.HARD


def hang_after(given: str | None, way: Way) -> str:
    """The floor of the hang limit, as a text."""
    if given is not None:
        return given
    return ACT_HANG_AFTER if way is Way.HARD else "30s"


def describe_way(way: Way, script: Path, *, unused: list[str]) -> list[str]:
    """What a person should know about the way that was taken; nothing for the usual one."""
    if way is Way.LOOP:
        return []
    lines = {
        Way.OBSERVE: f"observing {script.name}: nothing is ended or restarted; --mode act would",
        Way.HARD: f"{script.name} does not call lastgood.start: a fault starts all ranks again from its own checkpoints",
    }
    found = [lines[way]]
    if unused:
        why = "while it is only observed" if way is Way.OBSERVE else "without lastgood.start"
        found.append(f"not used {why}: {', '.join(unused)}")
    return found


def unused_options(way: Way, was_given: Mapping[str, bool]) -> list[str]:
    """Options that were typed and have no effect on this way."""
    if way is Way.LOOP:
        return []
    return [f"--{name.replace('_', '-')}" for name in ONLY_IN_THE_LOOP if was_given.get(name)]
