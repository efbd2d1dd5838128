"""Where the time of a recovery goes: ranks are killed in turn, each once a run; raw JSON lines, and a table.

    python bench/recovery/phases.py -o recovery_phases.jsonl [--runs 7] [--seed 1]
    python bench/recovery/phases.py --table -o bench/results/recovery_phases.jsonl

The moments come from what a run leaves behind: its ledger says when the end was noticed, when everybody had left, when
all had read their states and when the incident was closed; the job's own records say the rest. Nothing of lastgood is
traced. The plain job under torchrun runs first, for the length of its step. Takes about three minutes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import records
from systems import SYSTEMS, WORLD, Job, start_lastgood
from watching import beginning, has_settled, read_rows, tail, wait_for

from lastgood.base.rng import stream
from lastgood.ledger.event import Event
from lastgood.ledger.store import read_store
from lastgood.training.slot import ControlPage

PARTS = {
    "noticed": "its threads let go of their memory, and the supervisor looks",
    "left": "a survivor ends what it computes, then its sockets are cut and it parks",
    "read": "two states a rank are re-read and hashed, as far as they were not read ahead",
    "joined": "ranks meet through a file and connect, and set their state",
    "wrapped": "DDP is made anew",
    "replayed": "a pass of the step",
    "agreed": "digests, and word from the supervisor",
    "next step": "a pass of the step, and its snapshot",
}
"""The parts in the order in which they end; one that was over before the part ahead of it takes no time."""
START_LIMIT_S, SPARE_LIMIT_S, RECOVERY_LIMIT_S = 120, 60, 30
REST_S, MOMENT_S = 0.5, 0.2
"""What is left to the run before a kill, and how much of chance comes on top: a few steps."""
PLAIN_STEPS, PLAIN_SKIPPED = 150, 30


class Kill(NamedTuple):
    """One rank was killed at this moment, in monotonic microseconds."""

    pid: int
    at_us: int
    facts: dict[str, Any]


def main() -> None:
    """Measure, unless only the table is wanted; then print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("recovery_phases.jsonl"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    options = parser.parse_args()
    if not options.table:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: the job is ended
        options.output.unlink(missing_ok=True)
        for made in measured(options.runs, options.seed):
            with options.output.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in made)
    print(table(read_rows(options.output)))


def measured(runs: int, seed: int) -> Iterable[list[dict]]:
    """The plain step, then the kills of one run after the other."""
    facts = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "lastgood")},
    }
    yield [plain_step() | facts]
    for run in range(runs):
        yield [{"run": run, **row, **facts} for row in one_run(seed, run)]


def plain_step() -> dict[str, Any]:
    """How long a step of the job takes in plain torch: from one that all ranks have done to the next."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        try:
            SYSTEMS["torchrun"](job, sys.executable)
            done = lambda events: records.completed(records.steps_of(events), WORLD)  # noqa: E731
            wait_for(job, lambda events: done(events) >= PLAIN_STEPS, START_LIMIT_S)
            steps = records.steps_of(records.read_events(job.folder))
        finally:
            job.end()
    ends = [
        max(e["t_us"] for e in steps if e["step"] == step)
        for step in range(PLAIN_SKIPPED, PLAIN_STEPS + 1)
    ]
    took = [round((b - a) / 1000, 1) for a, b in itertools.pairwise(ends)]
    return {"plain_step_ms": took, "load": load}


def one_run(seed: int, run: int) -> list[dict[str, Any]]:
    """The kills of one run, each rank once; fewer when the job did not come back."""
    chance = stream(seed, "bench", "phases", run)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        try:
            start_lastgood(job, sys.executable, script="job_phases.py")
            if not has_settled(job):
                return [{"error": "never came to step 25", "tail": tail(job)}]
            kills: list[Kill] = []
            for place in range(WORLD):
                if not wait_for(job, lambda _: is_ready(job), SPARE_LIMIT_S):
                    break
                time.sleep(REST_S + MOMENT_S * chance.random())
                kills.append(strike(job, (run + place) % WORLD))
                if not wait_for(job, is_over(kills[-1]), RECOVERY_LIMIT_S):
                    break
            time.sleep(REST_S)
            with read_store(job.folder / "ledger.db") as store:
                ledger = list(store.events())
            offset_us = ControlPage(job.run_folder / "control").wall_offset_us
            events = records.read_events(job.folder)
            return [facts_of(kill, events, ledger, offset_us=offset_us) for kill in kills]
        finally:
            job.end()


def is_ready(job: Job) -> bool:
    """The run goes on and has a spare."""
    state = json.loads((job.run_folder / "state.json").read_text())
    return state["phase"] == "running" and state["spares_parked"] > 0


def strike(job: Job, rank: int) -> Kill:
    """Kill the process that trains as this rank."""
    pid = records.pid_of(records.read_events(job.folder), rank)
    assert pid is not None, "every rank has done a step"
    facts = beginning(rank)
    kill = Kill(pid, at_us=time.monotonic_ns() // 1000, facts=facts)
    os.kill(pid, signal.SIGKILL)
    return kill


def is_over(kill: Kill) -> Callable[[list[records.Event]], bool]:
    """Whether all ranks have done a step since."""
    return lambda events: judged(kill, events).full_s is not None


def judged(kill: Kill, events: list[records.Event]) -> records.Recovery:
    """The recovery from one kill, counted as in the comparison with the peers."""
    after = records.of_others(events, since_us=kill.at_us, gone_pid=kill.pid)
    return records.judge(events, after, injected_us=kill.at_us, world=WORLD, reference={})


def facts_of(
    kill: Kill, events: list[records.Event], ledger: Sequence[Event], *, offset_us: int
) -> dict[str, Any]:
    """The row of one kill."""
    found = judged(kill, events)
    if found.full_s is None:
        return kill.facts | {"error": "never came back"}
    try:
        ends_us = {
            **ledger_ends_us(kill, ledger, offset_us=offset_us),
            "next step": kill.at_us + round(found.full_s * 1e6),
        }
        ends_us |= diary_ends_us(kill, events, closed_us=ends_us["agreed"])
    except (LookupError, ValueError) as error:
        return kill.facts | {"error": f"not told: {error}"}
    ends_ms = {part: (ends_us[part] - kill.at_us) / 1000 for part in PARTS}
    return kill.facts | {"lost_steps": found.lost_steps, "ends_ms": ends_ms}


def ledger_ends_us(kill: Kill, ledger: Sequence[Event], *, offset_us: int) -> dict[str, int]:
    """When the parts that the ledger knows ended, in monotonic time: those of the first incident since the kill."""
    since_us = kill.at_us + offset_us
    later = [e for e in ledger if e.t_observed_us is not None and e.t_observed_us > since_us]
    incident = next((e.incident for e in later if e.kind == "incident.open"), None)
    ends_us = {e.kind: e.t_observed_us - offset_us for e in later if e.incident == incident}
    kinds = {
        "noticed": "incident.open",
        "left": "isolate",
        "read": "restore",
        "agreed": "incident.close",
    }
    return {part: ends_us[kind] for part, kind in kinds.items()}


def diary_ends_us(kill: Kill, events: list[records.Event], *, closed_us: int) -> dict[str, int]:
    """When the last rank came to wrap its model, to begin the replay, and to its end."""
    times: dict[str, dict[int, list[int]]] = {}
    for event in events:
        if kill.at_us < event["t_us"] < closed_us and event["pid"] != kill.pid:
            times.setdefault(event["event"], {}).setdefault(event["pid"], []).append(event["t_us"])
    joined = {pid: found[0] for pid, found in times["wraps"].items()}
    if len(joined) != WORLD:
        raise LookupError(f"{len(joined)} ranks came into the new group")
    begun = [min(t for t in times["begins pass"][pid] if t > joined[pid]) for pid in joined]
    ended = [times["has done pass"][pid][-1] for pid in joined]
    return {"joined": max(joined.values()), "wrapped": max(begun), "replayed": max(ended)}


def took_ms(row: dict[str, Any]) -> dict[str, float]:
    """What each part of one recovery added, and all of them."""
    over_ms, found = 0.0, {}
    for part in PARTS:
        found[part] = max(0.0, row["ends_ms"][part] - over_ms)
        over_ms = max(over_ms, row["ends_ms"][part])
    return found | {"in all": over_ms}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The parts with their medians."""
    kills = [row for row in rows if "run" in row]
    kept = [took_ms(row) for row in kills if "ends_ms" in row]
    if not kept:
        return "Not measured yet."
    lines = ["| part | ms | what it is |", "|---|---|---|"]
    for part in kept[0]:
        lines.append(f"| {part} | {spread(r[part] for r in kept)} | {PARTS.get(part, '')} |")
    (plain,) = [row["plain_step_ms"] for row in rows if "plain_step_ms" in row]
    loads, first = [row["load"] for row in rows], rows[0]
    runs = len({row["run"] for row in kills})
    cores, versions = first["cores"], f"Python {first['python']}, torch {first['torch']}"
    notes = (
        f"Medians (smallest to largest) of {len(kept)} of {len(kills)} kills in {runs} runs.",
        f"A step of the job in plain torch takes {spread(plain)} ms there (n={len(plain)}).",
        f"Load average {min(loads):.1f} to {max(loads):.1f} on {cores} cores; {versions}.",
    )
    return "\n".join([*lines, "", *notes])


def spread(values: Iterable[float]) -> str:
    """`12 (9 to 30)`."""
    found = sorted(values)
    return f"{statistics.median(found):.0f} ({found[0]:.0f} to {found[-1]:.0f})"


if __name__ == "__main__":
    main()
