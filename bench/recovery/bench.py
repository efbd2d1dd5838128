"""Recovery side by side: one job, one fault, every system, interleaved; raw JSON lines, resumable.

    python bench/recovery/bench.py --peers PYTHON -o raw.jsonl [--runs 10] [--systems lastgood,torchrun] [--faults sigkill]

`--peers` is the Python of a virtual environment that holds torch, nvidia-resiliency-ext and torchft; `--setup DIR`
makes one. Rows that the file already holds are not measured again. The table is printed at the end and with --table.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import records
from systems import STOP_LIMIT_S, SYSTEMS, WORLD, Job

SIGNALS = {"sigkill": signal.SIGKILL, "sigstop": signal.SIGSTOP}
STEPS_BEFORE = 25
STEPS_AFTER = 20
START_LIMIT_S = 120
RECOVERY_LIMIT_S = 120
PEER_PACKAGES = ("torch==2.13.0", "numpy", "psutil", "nvidia-resiliency-ext", "torchft")


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", default=sys.executable, help="Python of the peers' environment")
    parser.add_argument("--setup", type=Path, metavar="DIR", help="make that environment and stop")
    parser.add_argument("-o", "--output", type=Path, default=Path("recovery.jsonl"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--faults", default=",".join(SIGNALS))
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    options = parser.parse_args()
    if options.setup:
        subprocess.run([sys.executable, "-m", "venv", str(options.setup)], check=True)
        pip = str(options.setup / "bin" / "pip")
        subprocess.run([pip, "install", "-q", *PEER_PACKAGES], check=True)
        print(options.setup / "bin" / "python")
        return
    if not options.table:
        signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(143)
        )  # unwinds, so that the job in progress is ended
        measure_all(options)
    print(table(read_rows(options.output)))


def read_rows(path: Path) -> list[dict]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure_all(options: argparse.Namespace) -> None:
    """Run by run over faults and systems, so that a noisy hour hits all alike."""
    have = {(row["system"], row["fault"], row["run"]) for row in read_rows(options.output)}
    reference = reference_losses(options.peers)
    for run in range(options.runs):
        for fault in options.faults.split(","):
            for system in options.systems.split(","):
                if (system, fault, run) in have:
                    continue
                row = {
                    "system": system,
                    "fault": fault,
                    "run": run,
                    **one(system, fault, run, options.peers, reference),
                }
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def reference_losses(python: str) -> dict[tuple[int, int], str]:
    """Losses of the undisturbed job in plain torch."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        try:
            SYSTEMS["torchrun"](job, python)
            wait_for(
                job, lambda events: records.completed(records.steps_of(events), WORLD) >= 400, 120
            )
        finally:
            job.end()
        return {
            (e["rank"], e["step"]): e["loss"]
            for e in records.steps_of(records.read_events(job.folder))
        }


def wait_for(job: Job, is_done, limit_s: float) -> bool:  # noqa: ANN001
    """Poll the events of a job, at most so long."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        job.on_turn()
        if is_done(records.read_events(job.folder)):
            return True
        time.sleep(0.2)
    return False


def one(system: str, fault: str, run: int, python: str, reference: dict) -> dict:
    """One job, one fault."""
    victim = 1 + run % (WORLD - 1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        facts: dict = {
            "victim": victim,
            "load": os.getloadavg()[0],
            "wall": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        began = time.monotonic()
        try:
            SYSTEMS[system](job, python)

            def enough(events: list[records.Event]) -> bool:
                return records.completed(records.steps_of(events), WORLD) >= STEPS_BEFORE

            if not wait_for(job, enough, START_LIMIT_S):
                return facts | {"error": "never came to step 25", "tail": tail(job)}
            facts["started_s"] = round(time.monotonic() - began, 2)
            pid = records.pid_of(records.read_events(job.folder), victim)
            assert pid is not None
            injected_us = time.monotonic_ns() // 1000
            os.kill(pid, SIGNALS[fault])
            judged = lambda events: records.judge(  # noqa: E731
                events, injected_us=injected_us, victim_pid=pid, world=WORLD, reference=reference
            )
            wait_for(job, lambda events: judged(events).recovered_s is not None, RECOVERY_LIMIT_S)
            limit_s = RECOVERY_LIMIT_S / 2 if system == "torchft" else STEPS_AFTER * 0.1
            wait_for(job, lambda events: judged(events).full_s is not None, limit_s)
            time.sleep(STEPS_AFTER * 0.1)
            facts |= judged(records.read_events(job.folder)).to_plain()
            if system == "lastgood":
                facts |= ledger_facts(job, victim)
            if facts["recovered_s"] is None:
                facts["tail"] = tail(job)
            return facts
        finally:
            job.end()


def tail(job: Job) -> str:
    """The last words of the job."""
    text = "".join(
        path.read_text(errors="replace")[-1500:] for path in sorted(job.folder.glob("log-*.txt"))
    )
    return text[-3000:]


def ledger_facts(job: Job, victim: int) -> dict:
    """Whom the ledger names, and how the restored state was verified."""
    from lastgood.ledger.incident import fold_incidents
    from lastgood.ledger.store import read_store

    with read_store(job.folder / "ledger.db") as store:
        incidents = fold_incidents(store.events())
    return {
        "incidents": len(incidents),
        "culprit_right": [i.ranks for i in incidents] == [(victim,)],
        "verification": [i.verification.result if i.verification else None for i in incidents],
    }


def table(rows: list[dict]) -> str:
    """Markdown: median and largest of each system and fault."""
    lines = [
        f"World {WORLD}, 50 ms steps; limit for a silent rank under lastgood {STOP_LIMIT_S} s; seconds from the signal.",
        "",
        "| fault | system | n | first step of all members, median (max) | full world again, median (max) | members | lost steps | losses bit-equal | failed runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in dict.fromkeys(row["fault"] for row in rows):
        for system in SYSTEMS:
            mine = [r for r in rows if r["system"] == system and r["fault"] == fault]
            if mine:
                lines.append(f"| {fault} | {system} | {len(mine)} | {_cells(mine)} |")
    return "\n".join(lines)


def _cells(rows: list[dict]) -> str:
    good = [r for r in rows if r.get("recovered_s") is not None]
    full = [r["full_s"] for r in good if r.get("full_s") is not None]
    equal = [r["losses_equal"] for r in good if r.get("losses_equal") is not None]
    return " | ".join(
        [
            _median([r["recovered_s"] for r in good]),
            _median(full) + (f" ({len(full)} of {len(rows)})" if len(full) < len(rows) else ""),
            "/".join(sorted({str(r["members"]) for r in good})) or "-",
            "-".join(
                str(v)
                for v in sorted(
                    {min(r["lost_steps"] for r in good), max(r["lost_steps"] for r in good)}
                )
            )
            if good
            else "-",
            f"{sum(equal)} of {len(equal)}" if equal else "-",
            str(len(rows) - len(good)),
        ]
    )


def _median(values: list[float]) -> str:
    if not values:
        return "never"
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return f"{middle:.2f} ({ordered[-1]:.2f})"


if __name__ == "__main__":
    main()
