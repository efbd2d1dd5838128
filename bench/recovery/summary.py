"""From the rows of the bench to its tables and sentences: nothing here is measured, everything is counted again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from others import LIMITS, OTHERS
from systems import DETECTION, STOP_LIMIT_S, SYSTEMS, WORLD

from lastgood.budget.order_statistics import quantile_ranks

Row = dict[str, Any]
OURS = "lastgood"
SIGNALS = ("sigkill", "sigstop")
LEVEL = 0.95
METHOD = (
    "medians of the ratios within each run; intervals between two of these ratios, chosen by the exact binomial of the "
    "sign test, at least 95 %; a run that never came back counts as infinitely long"
)


class Ratio(NamedTuple):
    """How many times as long a peer takes."""

    peer: str
    n: int
    value: float
    lo: float | None
    hi: float | None

    def __str__(self) -> str:
        if self.lo is None or self.hi is None:
            return f"{_factor(self.value)} times as long (n = {self.n}, too few for an interval)"
        return f"{_factor(self.value)} times as long ({_factor(self.lo)} to {_factor(self.hi)}, n = {self.n})"


def table(rows: Sequence[Row], versions: dict[str, str] | None = None) -> str:
    """Peers side by side, how they compare, then the other faults under lastgood."""
    parts = [_side_by_side(rows), *_comparisons(rows), _others(rows)]
    if versions:
        parts.append("Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".")
    return "\n\n".join(part for part in parts if part)


def compare(rows: Sequence[Row], fault: str, *, key: str = "full_s") -> Ratio | None:
    """The fastest peer beside lastgood; `full_s` asks for the full world, `recovered_s` for those members it has."""
    times = {system: _times(rows, system, fault, key) for system in SYSTEMS}
    ours = times.pop(OURS)
    medians = {peer: _median(list(found.values())) for peer, found in times.items() if found}
    peer = min(medians, key=medians.__getitem__, default=None)
    if peer is None or math.isinf(medians[peer]):
        return None
    ratios = sorted(_over(times[peer][run], ours[run]) for run in times[peer] if run in ours)
    if not ratios:
        return None
    _, lo, hi = quantile_ranks(len(ratios), 0.5, level=LEVEL)
    return Ratio(
        peer=peer,
        n=len(ratios),
        value=_median(ratios),
        lo=None if lo is None else ratios[lo],
        hi=None if hi is None else ratios[hi],
    )


def headline(rows: Sequence[Row]) -> str:
    """The sentences of the README."""
    said = []
    for fault, words in (("sigkill", "is killed"), ("sigstop", "is stopped")):
        ratio = compare(rows, fault)
        ours = list(_times(rows, OURS, fault, "full_s").values())
        if ratio is not None and ours:
            limit = (
                f", {STOP_LIMIT_S:g} s of it the limit for silence" if fault == "sigstop" else ""
            )
            said.append(
                f"When one of {WORLD} ranks {words}, all of them take their next accepted step after "
                f"{_median(ours):.2f} s (median of {len(ours)}{limit}); the fastest peer that brings the full world "
                f"back, {ratio.peer}, takes {ratio}."
            )
    return "\n".join(said)


def _side_by_side(rows: Sequence[Row]) -> str:
    lines = [
        (
            "| fault | system | n | detection waits for | first step of those members it has, s | full world again, s | "
            "right culprit | lost steps | losses bit-equal | load average |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in SIGNALS:
        for system in SYSTEMS:
            mine = [r for r in rows if r["system"] == system and r["fault"] == fault]
            if mine:
                members = "/".join(sorted({str(r["members"]) for r in mine if r.get("members")}))
                first = _spread(r.get("recovered_s") for r in mine)
                cells = [
                    fault.upper(), system, str(len(mine)), DETECTION[system][SIGNALS.index(fault)],
                    f"{first}, {members} members" if members else first,
                    _spread(r.get("full_s") for r in mine), *_common_cells(mine),
                ]  # fmt: skip
                lines.append(f"| {' | '.join(cells)} |")
    if len(lines) == 2:
        return ""
    note = "Seconds from the signal: median (smallest to largest)."
    return "\n".join([f"World {WORLD}, 50 ms steps. {note}", "", *lines])


def _comparisons(rows: Sequence[Row]) -> list[str]:
    lines = []
    for fault in SIGNALS:
        full, first = compare(rows, fault), compare(rows, fault, key="recovered_s")
        if full is not None:
            lines.append(
                f"- {fault.upper()}, full world: {full.peer}, the fastest peer, takes {full}."
            )
        if first is not None:
            lines.append(
                f"- {fault.upper()}, first step with whoever is left: {first.peer}, the fastest peer, takes {first}; "
                f"under lastgood that step has the full world."
            )
    return ["\n".join(lines), f"How: {METHOD}."] if lines else []


def _others(rows: Sequence[Row]) -> str:
    lines = [
        (
            "| other faults, under lastgood | n | detection waits for | next accepted step of all ranks, s | "
            "right culprit | lost steps | losses bit-equal | replay equal | load average |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, drill in OTHERS.items():
        mine = [r for r in rows if r["system"] == OURS and r["fault"] == name]
        if not mine:
            continue
        pauses = [r["pause_s"] for r in mine if r.get("pause_s") is not None]
        took = _spread(r.get("full_s") for r in mine)
        if pauses:
            took = f"goes on, longest pause {_spread(pauses)}"
        right, lost, equal, load = _common_cells(mine)
        verified = [r.get("verification") or [] for r in mine]
        held = sum(bool(v) and set(v) == {"equal"} for v in verified)
        replay = "no recovery" if pauses else f"{held} of {len(mine)}"
        limit = LIMITS.get(drill.expect.symptom or "process_exit", "-") if not pauses else "-"
        cells = [drill.title, str(len(mine)), limit, took, right, lost, equal, replay, load]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _common_cells(rows: Sequence[Row]) -> list[str]:
    """Culprit, lost steps, losses and load: whatever is not known of a run does not count for it."""
    n = len(rows)
    names = any("culprit_right" in r for r in rows)
    right = sum(r.get("culprit_right") is True for r in rows)
    lost = sorted({r["lost_steps"] for r in rows if r.get("lost_steps") is not None})
    equal = sum(r.get("losses_equal") is True for r in rows)
    loads = [r["load"] for r in rows]
    return [
        f"{right} of {n}" if names else "names none",
        "-" if not lost else str(lost[0]) if len(lost) == 1 else f"{lost[0]} to {lost[-1]}",
        f"{equal} of {n}",
        f"{min(loads):.1f} to {max(loads):.1f}",
    ]


def _times(rows: Iterable[Row], system: str, fault: str, key: str) -> dict[int, float]:
    """Run -> seconds; infinite where it never came."""
    return {
        r["run"]: math.inf if r.get(key) is None else r[key]
        for r in rows
        if r["system"] == system and r["fault"] == fault
    }


def _over(theirs: float, ours: float) -> float:
    """Their time over ours; a run in which ours never came back counts fully against us."""
    return 0.0 if math.isinf(ours) else theirs / ours


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else (low + high) / 2


def _spread(values: Iterable[float | None]) -> str:
    """`0.35 (0.33 to 0.38)`, with those that never came counted as infinitely long."""
    found = [math.inf if value is None else value for value in values]
    never = sum(map(math.isinf, found))
    if never == len(found):
        return "never"
    ends = [
        _seconds(v) for v in (_median(found), min(found), max(v for v in found if v < math.inf))
    ]
    words = f"{ends[0]} ({ends[1]} to {ends[2]})"
    return f"{words}, {never} of {len(found)} never" if never else words


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _factor(value: float) -> str:
    return "infinitely many" if math.isinf(value) else f"{value:.1f}"
