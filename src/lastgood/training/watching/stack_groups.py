"""Which processes are doing the same thing: stack dumps grouped by their text, the odd ones named.

In a job of many equal ranks the healthy ones stand at the same place. Stacks of one kind of process (trainers,
loaders) with equal text are one group; the largest group of a kind is the usual one when it is larger than any other,
and every other group is an outlier. With a tie nobody is usual and nobody is odd. Pure: text in, groups out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lastgood.training.watching.job_code import own_frame

TRAINER, LOADER, OTHER = "trainer", "loader", "other"
FRAMES_MAX = 64
THROUGH = "through with its script"
"""Stands for the stack of a rank behind its script: there Lastgood and Python clean up, at a place that says nothing."""
_OWN = "lastgood/training/rank/counting.py"
"""Our own hooks are in every stack and say nothing."""
_LOADER_FRAME = "torch/utils/data/_utils/worker.py"
_NAME = re.compile(r'"([^"]*)"\s*$')
_OUTSIDE = re.compile(r"^    (?P<function>.+) \((?P<file>[^()]+):(?P<line>\d+)\)$")
_INSIDE = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')


class ProcessStack(NamedTuple):
    """One process's dump. `rank` is the rank that it belongs to, itself or as a child."""

    rank: int
    pid: int
    is_child: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Processes of one kind whose main threads stand at the same place."""

    role: str
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    stack: tuple[str, ...]
    """Frames of the main thread, innermost first."""
    is_usual: bool
    """True for the group that is larger than every other one of its kind."""
    is_outlier: bool
    """True when another group of its kind is the usual one."""

    def to_plain(self) -> dict[str, object]:
        """As it stands in the ledger."""
        return {
            "role": self.role,
            "ranks": list(self.ranks),
            "pids": list(self.pids),
            "is_usual": self.is_usual,
            "is_outlier": self.is_outlier,
            "stack": list(self.stack),
        }


def group_stacks(
    dumps: Iterable[ProcessStack], *, through: Collection[int] = ()
) -> list[StackGroup]:
    """The groups, usual ones first, trainers before loaders; ranks `through` had ended their script before the dump."""
    members: dict[tuple[str, tuple[str, ...]], list[ProcessStack]] = {}
    for dump in dumps:
        frames = main_thread(dump.text)
        is_behind = dump.rank in through and not dump.is_child
        if frames and is_behind and own_frame(frames) is None:
            frames = (THROUGH,)
        if frames:
            members.setdefault((_role(dump, frames), frames), []).append(dump)
    groups = [_group(role, frames, found, members) for (role, frames), found in members.items()]
    order = {TRAINER: 0, LOADER: 1, OTHER: 2}
    return sorted(groups, key=lambda g: (order[g.role], -len(g.pids), g.ranks))


def outlier_ranks(groups: Sequence[StackGroup]) -> tuple[int, ...]:
    """The ranks whose trainers stand elsewhere than the usual ones; empty when nobody is usual."""
    return tuple(sorted({r for g in groups if g.is_outlier and g.role == TRAINER for r in g.ranks}))


def _group(
    role: str,
    frames: tuple[str, ...],
    found: Sequence[ProcessStack],
    members: Mapping[tuple[str, tuple[str, ...]], Sequence[ProcessStack]],
) -> StackGroup:
    others = [len(m) for (kind, stack), m in members.items() if kind == role and stack != frames]
    largest = max(others, default=0)
    first, second = sorted([0, 0, *others, len(found)], reverse=True)[:2]
    return StackGroup(
        role=role,
        ranks=tuple(sorted({dump.rank for dump in found})),
        pids=tuple(sorted(dump.pid for dump in found)),
        stack=frames,
        is_usual=len(found) > largest,
        is_outlier=first > second and len(found) < first,
    )


def _role(dump: ProcessStack, frames: Sequence[str]) -> str:
    if not dump.is_child:
        return TRAINER
    return LOADER if any(_LOADER_FRAME in frame for frame in frames) else OTHER


def main_thread(text: str) -> tuple[str, ...]:
    """The frames of the main thread, innermost first, as `function (file:line)`; empty when none can be read.

    Both forms are read: py-spy's, and that of Python's own faulthandler, whose last thread is the main one.
    """
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        frame = _OUTSIDE.match(line) or _INSIDE.match(line)
        if frame and threads:
            file = _short(frame["file"])
            if not file.endswith(_OWN):
                threads[-1][1].append(f"{frame['function']} ({file}:{frame['line']})")
        elif line.startswith(("Thread", "Current thread")):
            found = _NAME.search(line)
            threads.append((found[1] if found else "", []))
    if not threads:
        return ()
    named = [frames for name, frames in threads if name == "MainThread"]
    frames = named[0] if named else threads[-1][1]
    return tuple(frames[:FRAMES_MAX])


def _short(file: str) -> str:
    """A path from its package on: where a host installs it is no difference."""
    for mark in ("site-packages/", "dist-packages/", "/lib/python3"):
        _, found, tail = file.rpartition(mark)
        if found:
            return tail.partition("/")[2] if mark.startswith("/lib/") else tail
    return file
