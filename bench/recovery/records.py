"""From the events of a job to what the bench reports: when everybody trained again, and what was lost."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_events(folder: Path) -> list[Event]:
    """Every whole line of every process, in order of time."""
    events: list[Event] = []
    for path in folder.glob("events-*.jsonl"):
        *lines, _ = path.read_text().split("\n")
        events += [json.loads(line) for line in lines]
    return sorted(events, key=lambda event: event["t_us"])


def steps_of(events: list[Event]) -> list[Event]:
    """Only steps that count."""
    return [event for event in events if event["event"] == "step"]


def pid_of(events: list[Event], rank: int) -> int | None:
    """The process that last trained as this rank."""
    return next((e["pid"] for e in reversed(steps_of(events)) if e["rank"] == rank), None)


def completed(steps: list[Event], world: int) -> int:
    """The newest step that all ranks of the world have done."""
    ranks: dict[int, set[int]] = defaultdict(set)
    for event in steps:
        ranks[event["step"]].add(event["rank"])
    return max((step for step, done in ranks.items() if len(done) == world), default=0)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one fault."""

    recovered_s: float | None
    """From the injection to the first step that every member of the world did; None: not within the limit."""
    members: int | None
    """How many trained that step."""
    full_s: float | None
    """The same for the full world, when it came back."""
    lost_steps: int | None
    """Steps that had been done by all and were done again."""
    caught_up_s: float | None
    """Until a step that had not been done before the fault."""
    losses_equal: bool | None
    """Losses of the steps after the recovery, bit for bit those of an undisturbed run; None: another world."""

    def to_plain(self) -> dict[str, Any]:
        """As data."""
        return asdict(self)


def judge(
    events: list[Event],
    *,
    injected_us: int,
    victim_pid: int,
    world: int,
    reference: dict[tuple[int, int], str],
) -> Recovery:
    """What the events say about a fault that hit one process at one moment."""
    steps = steps_of(events)
    before = completed([e for e in steps if e["t_us"] <= injected_us], world)
    after = [e for e in steps if e["t_us"] > injected_us and e["pid"] != victim_pid]
    full = _first_common(after, world, exactly=True)
    smaller = _first_common(after, world, exactly=False)
    found = [f for f in (full, smaller) if f is not None]
    if not found:
        return Recovery(None, None, None, None, None, None)
    at_us, step, members = min(found)
    new = [e for e in after if e["step"] > before]
    caught = [f for f in (_first_common(new, world, exactly=flag) for flag in (True, False)) if f]
    seconds = lambda t_us: round((t_us - injected_us) / 1e6, 4)  # noqa: E731
    compared = [
        e for e in after if full is not None and e["t_us"] >= full[0] and e["members"] == world
    ]
    return Recovery(
        recovered_s=seconds(at_us),
        members=members,
        full_s=seconds(full[0]) if full else None,
        lost_steps=max(0, before - step + 1),
        caught_up_s=seconds(min(caught)[0]) if caught else None,
        losses_equal=(
            all(reference.get((e["rank"], e["step"])) in {None, e["loss"]} for e in compared)
            if compared
            else None
        ),
    )


def _first_common(steps: list[Event], world: int, *, exactly: bool) -> tuple[int, int, int] | None:
    """(time, step, members) of the first step that all its members did: of the full world, or of a smaller one."""
    done: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for event in steps:
        members = event["members"]
        if (members == world) is not exactly:
            continue
        ranks = done[event["step"], members]
        ranks[event["rank"]] = event["t_us"]
        if len(ranks) == members:
            return max(ranks.values()), event["step"], members
    return None
