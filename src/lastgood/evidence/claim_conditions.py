"""What an incident happened under, and what of it has to be alike on both sides of a claim.

A run is started with ranks, a contract, limits, a machine and versions. Each incident and each piece of time has those
of the start that it belongs to: two sides may hold the same conditions in different shares, and then a difference
between the conditions looks like one between the sides (Simpson's paradox).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lastgood.base.units import format_duration
from lastgood.evidence.claim_records import MAY_DIFFER
from lastgood.evidence.drilled_runs import DRILL_MODES
from lastgood.ledger.event import Event, time_of

Conditions = Mapping[str, str]
Key = tuple[tuple[str, str], ...]

NAMES = (
    "contract", "injected", "job", "kernel", "lastgood", "limits", "machine", "mode", "snapshots", "spares", "torch",
    "world",
)  # fmt: skip
NEEDED = ("job", "limits", "machine", "world")
"""Without these on record nothing says that two incidents are alike."""
_SUPERVISED = frozenset({"run", *DRILL_MODES})
OUTSIDE_DRILL = "yes, outside a drill"


class Starts:
    """Every start of every run, with what it was started with."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._of_run: dict[str, list[tuple[int, Conditions]]] = {}
        for event in events:
            if event.kind == "run.start" and event.run:
                self._of_run.setdefault(event.run, []).append((time_of(event), _started(event)))
        for starts in self._of_run.values():
            starts.sort(key=lambda start: start[0])

    @property
    def all(self) -> list[Conditions]:
        """Those of every start."""
        return [conditions for starts in self._of_run.values() for _, conditions in starts]

    def at(self, run: str | None, at_us: int | None) -> Conditions:
        """Those of the last start of the run before that instant; nothing where no start is on record."""
        starts = self._of_run.get(run or "", [])
        before = [
            conditions for start_us, conditions in starts if at_us is None or start_us <= at_us
        ]
        return (before or [conditions for _, conditions in starts[:1]] or [{}])[-1]


def pooled(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], changed: frozenset[str]
) -> frozenset[str]:
    """Of what was changed on purpose or may differ: that of which the two sides share no value, or have only one.

    A condition with several values of which both sides have one keeps incidents apart whatever was said of it: pooled,
    another mix of its values would look like a difference between the sides.
    """
    return frozenset(
        name
        for name in {*changed, *MAY_DIFFER}
        if not _is_mixed(before.get(name, ()), after.get(name, ()))
    )


def _is_mixed(before: Sequence[str], after: Sequence[str]) -> bool:
    return not set(before).isdisjoint(after) and len({*before, *after}) > 1


def key_of(conditions: Conditions, pooled: frozenset[str]) -> Key:
    """What has to be alike: everything on record but what is pooled."""
    return tuple(
        (name, conditions[name]) for name in NAMES if name in conditions and name not in pooled
    )


def missing(conditions: Conditions, changed: frozenset[str]) -> tuple[str, ...]:
    """What nobody recorded and nobody said may differ. Unknown is not alike, also not to unknown."""
    return tuple(name for name in NEEDED if name not in conditions and name not in changed)


def every_value(all_conditions: Iterable[Conditions]) -> dict[str, tuple[str, ...]]:
    """Name -> all values that occur."""
    found: dict[str, set[str]] = {}
    for conditions in all_conditions:
        for name, value in conditions.items():
            found.setdefault(name, set()).add(value)
    return {name: tuple(sorted(values)) for name, values in sorted(found.items())}


def differences(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], changed: frozenset[str]
) -> dict[str, str]:
    """Name -> in words, of every condition that differs, and of one that was said to differ and is on both sides."""
    found = {}
    for name in sorted({*before, *after}):
        a, b = before.get(name, ()), after.get(name, ())
        by_value = _is_mixed(a, b) and (name in changed or name in MAY_DIFFER)
        if a != b:
            found[name] = (
                f"{name}: {', '.join(a) or 'not recorded'} before, {', '.join(b) or 'not recorded'} after"
            )
        elif by_value:
            found[name] = f"{name}: {', '.join(a)} on both sides"
        if by_value:
            found[name] += ", compared value by value"
    return found


def unexcused(differing: Mapping[str, str], pooled: frozenset[str]) -> dict[str, str]:
    """Those that keep incidents apart."""
    return {name: text for name, text in differing.items() if name not in pooled}


def _started(event: Event) -> Conditions:
    body, versions = event.body, event.versions or {}
    mode, floor_us, digest = (
        body.get("mode"),
        body.get("hang_floor_us"),
        body.get("contract_digest"),
    )
    told = {
        "world": body.get("world"),
        "spares": body.get("spares"),
        "contract": None if digest is None else str(digest)[:12],
        "limits": None if floor_us is None else f"hang after {format_duration(floor_us)}",
        "machine": body.get("host"),
        "job": _job(body.get("command") or []),
        "mode": "run" if mode in _SUPERVISED else mode,
        "snapshots": body.get("snapshots"),
        "injected": "yes" if mode in DRILL_MODES else "no",
        **{name: versions.get(name) for name in ("lastgood", "torch", "kernel")},
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _job(command: Sequence[object]) -> str | None:
    """The script and its arguments; what names a place differs from run to run and is no condition."""
    if not command:
        return None
    return " ".join(
        [Path(str(command[0])).name, *(str(c) for c in command[1:] if "/" not in str(c))]
    )
