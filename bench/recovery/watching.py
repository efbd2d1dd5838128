"""A job under way, as whoever measures it sees it: until it is warm, until something shows, and what it said last."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import records
from others import STEPS_BEFORE
from systems import WORLD, Job

START_LIMIT_S = 120


def beginning(victim: int | list[int | None]) -> dict:
    """What is known before a job starts."""
    wall = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"victim": victim, "load": os.getloadavg()[0], "wall": wall}


def has_settled(job: Job) -> bool:
    """The job came to the step behind which it is broken."""

    def enough(events: list[records.Event]) -> bool:
        return records.completed(records.steps_of(events), WORLD) >= STEPS_BEFORE

    return wait_for(job, enough, START_LIMIT_S)


def wait_for(job: Job, is_done, limit_s: float) -> bool:  # noqa: ANN001
    """Poll the events of a job, at most so long."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        job.on_turn()
        if is_done(records.read_events(job.folder)):
            return True
        time.sleep(0.2)
    return False


def tail(job: Job) -> str:
    """The last words of the job."""
    text = "".join(
        path.read_text(errors="replace")[-1500:] for path in sorted(job.folder.glob("log-*.txt"))
    )
    return text[-3000:]


def read_rows(path: Path) -> list[dict]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
