"""Rules that look at two places of a contract at once.

They work on the plain values of a document, so that they speak even when single fields are wrong too, and
a person sees every problem in one round. Whatever has the wrong shape is skipped: the model reports that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lastgood.contract.objectives import INDICATORS_BY_WORKLOAD, RATIO_INDICATORS
from lastgood.contract.values import nearest
from lastgood.contract.yaml_reader import KeyPath


class Conflict(NamedTuple):
    """Two places that do not fit, named at the one to change."""

    path: KeyPath
    found: str
    needs: str
    write: str = ""


def find_conflicts(value: object) -> Iterator[Conflict]:
    """Every conflict between parts of a contract."""
    spec = _mapping(_mapping(value).get("spec"))
    yield from _window(_mapping(spec.get("window")))
    yield from _failure(_mapping(spec.get("failure")))
    yield from _names_once(spec, "objectives")
    yield from _names_once(spec, "budgets")
    yield from _indicators(spec)
    yield from _budgets(spec)
    yield from _notify(_mapping(spec.get("recovery")))


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _entries(value: object) -> Iterator[tuple[int, dict[str, object]]]:
    return (
        (index, item)
        for index, item in enumerate(value if isinstance(value, list) else [])
        if isinstance(item, dict)
    )


def _window(window: dict[str, object]) -> Iterator[Conflict]:
    if not window:
        return
    is_rolling, calendar = window.get("isRolling"), window.get("calendar")
    path: KeyPath = ("spec", "window")
    if is_rolling is True and calendar is not None:
        yield Conflict(
            (*path, "calendar"),
            "a calendar in a rolling window",
            "one of the two",
            "isRolling: false",
        )
    if is_rolling is not True and calendar is None:
        yield Conflict(
            (*path, "isRolling"),
            "neither a rolling window nor a calendar",
            "isRolling: true, or a calendar with its startTime",
            "isRolling: true",
        )


def _failure(failure: dict[str, object]) -> Iterator[Conflict]:
    counts, excludes = failure.get("counts"), failure.get("excludes")
    counted = [word for word in counts if isinstance(word, str)] if isinstance(counts, list) else []
    for index, word in enumerate(counted):
        if word in counted[:index]:
            yield Conflict(("spec", "failure", "counts", index), f"{word} twice", "each class once")
    for index, word in enumerate(excludes if isinstance(excludes, list) else []):
        if word in counted:
            yield Conflict(
                ("spec", "failure", "excludes", index),
                f"{word}, which counts too",
                "one of the two",
            )


def _names_once(spec: dict[str, object], key: str) -> Iterator[Conflict]:
    seen: set[str] = set()
    for index, entry in _entries(spec.get(key)):
        name = entry.get("name")
        if isinstance(name, str) and name in seen:
            yield Conflict(
                ("spec", key, index, "name"),
                f"{name} again",
                "a name of its own",
                f"{name}-{index + 1}",
            )
        elif isinstance(name, str):
            seen.add(name)


def _indicators(spec: dict[str, object]) -> Iterator[Conflict]:
    kind = _mapping(spec.get("workload")).get("kind")
    allowed = INDICATORS_BY_WORKLOAD.get(kind) if isinstance(kind, str) else None
    known = frozenset().union(*INDICATORS_BY_WORKLOAD.values())
    for index, entry in _entries(spec.get("objectives")):
        indicator = entry.get("indicator")
        if allowed is not None and isinstance(indicator, str) and indicator in known - allowed:
            yield Conflict(
                ("spec", "objectives", index, "indicator"),
                f"{indicator} for a {kind} workload",
                "one of " + ", ".join(sorted(allowed)),
            )


def _budgets(spec: dict[str, object]) -> Iterator[Conflict]:
    objectives = {
        entry.get("name"): entry.get("indicator") for _, entry in _entries(spec.get("objectives"))
    }
    ratios = sorted(
        str(name) for name, indicator in objectives.items() if indicator in RATIO_INDICATORS
    )
    for index, entry in _entries(spec.get("budgets")):
        name = entry.get("objective")
        if entry.get("kind") == "ratio" and isinstance(name, str) and name not in ratios:
            found = (
                f"{name}, which has no ratio"
                if name in objectives
                else f"{name}, which is no objective here"
            )
            needs = (
                "one of " + ", ".join(ratios)
                if ratios
                else "an objective with a ratio, such as ettr"
            )
            yield Conflict(
                ("spec", "budgets", index, "objective"), found, needs, nearest(name, ratios)
            )
        for number, burn in _entries(entry.get("burn")):
            if burn.get("consumed") in (0, 0.0, "0%"):
                yield Conflict(
                    ("spec", "budgets", index, "burn", number, "consumed"),
                    "0",
                    "more than nothing",
                    "2%",
                )


def _notify(recovery: dict[str, object]) -> Iterator[Conflict]:
    places: list[tuple[KeyPath, object]] = [
        (("spec", "recovery", "notify"), recovery.get("notify"))
    ]
    places += [
        (("spec", "recovery", row, "notify"), _mapping(recovery.get(row)).get("notify"))
        for row in ("detect", "isolate", "restore", "verify")
    ]
    for path, notify in places:
        if isinstance(notify, dict) and (notify.get("command") is None) == (
            notify.get("alertmanager") is None
        ):
            both = notify.get("command") is not None
            yield Conflict(
                path,
                "command and alertmanager" if both else "neither command nor alertmanager",
                "one of the two",
                "" if both else "command: [/usr/local/bin/page]",
            )
