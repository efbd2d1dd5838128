"""From the events of a job to what the bench reports: when everybody trained again, and what was lost."""

from __future__ import annotations

import itertools
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
    """Until a step that had not been done before the recovery."""
    losses_equal: bool | None
    """Losses of the steps after the recovery, bit for bit those of an undisturbed run; None: another world, or steps
    that the undisturbed run did not do."""

    def to_plain(self) -> dict[str, Any]:
        """As data."""
        return asdict(self)


def of_others(events: list[Event], *, since_us: int, gone_pid: int) -> list[Event]:
    """The steps behind a signal that ended or stopped one process: all but those of that process."""
    return [e for e in steps_of(events) if e["t_us"] > since_us and e["pid"] != gone_pid]


def of_new_lives(events: list[Event], *, since_us: int) -> list[Event]:
    """The steps of processes and generations that had done no step when the fault struck."""
    steps = steps_of(events)
    lives = {_life(e) for e in steps if e["t_us"] <= since_us}
    return [e for e in steps if e["t_us"] > since_us and _life(e) not in lives]


def of_any(events: list[Event], *, since_us: int) -> list[Event]:
    """All steps behind a fault that nobody has to recover from."""
    return [e for e in steps_of(events) if e["t_us"] > since_us]


def _life(event: Event) -> tuple[int, int]:
    return event["pid"], event.get("generation", 0)


def judge(
    events: list[Event],
    after: list[Event],
    *,
    injected_us: int,
    world: int,
    reference: dict[tuple[int, int], str],
) -> Recovery:
    """What the events say about a fault; `after` are those steps that only a recovered job can have done."""
    is_after = {id(e) for e in after}
    before = completed([e for e in steps_of(events) if id(e) not in is_after], world)
    full = _first_common(after, world, exactly=True)
    smaller = _first_common(after, world, exactly=False)
    found = [f for f in (full, smaller) if f is not None]
    if not found:
        return Recovery(None, None, None, None, None, None)
    at_us, step, members = min(found)
    new = [e for e in after if e["step"] > before]
    caught = [f for f in (_first_common(new, world, exactly=flag) for flag in (True, False)) if f]
    seconds = lambda t_us: round((t_us - injected_us) / 1e6, 4)  # noqa: E731
    known = [
        reference[e["rank"], e["step"]] == e["loss"]
        for e in after
        if full is not None
        and e["t_us"] >= full[0]
        and e["members"] == world
        and (e["rank"], e["step"]) in reference
    ]
    return Recovery(
        recovered_s=seconds(at_us),
        members=members,
        full_s=seconds(full[0]) if full else None,
        lost_steps=max(0, before - step + 1),
        caught_up_s=seconds(min(caught)[0]) if caught else None,
        losses_equal=all(known) if known else None,
    )


def longest_pause_s(events: list[Event], *, since_us: int, world: int) -> float | None:
    """The longest time between two steps of the full world that ended after a moment; None with fewer than two."""
    ends: dict[int, dict[int, int]] = defaultdict(dict)
    for event in steps_of(events):
        ends[event["step"]][event["rank"]] = event["t_us"]
    times = sorted(max(done.values()) for done in ends.values() if len(done) == world)
    gaps = [b - a for a, b in itertools.pairwise(times) if b > since_us]
    return round(max(gaps) / 1e6, 4) if gaps else None


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
