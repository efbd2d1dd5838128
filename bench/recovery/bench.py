"""Recovery side by side: one job, one fault, every system, interleaved; raw JSON lines, resumable.

    python bench/recovery/bench.py --peers PYTHON -o raw.jsonl [--runs 10] [--systems lastgood,torchrun] [--faults sigkill]
    python bench/recovery/bench.py --peers PYTHON -o raw.jsonl --runs 3 --faults others

`--peers` is the Python of a virtual environment that holds torch, nvidia-resiliency-ext and torchft; `--setup DIR`
makes one. `others` are the faults of others.py, played against lastgood alone; each may be named. Rows that the file
already holds are not measured again. The table is printed at the end and with --table.
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
from collections.abc import Callable
from pathlib import Path

import others
import records
import summary
from systems import SYSTEMS, WORLD, Job, start_lastgood
from watching import START_LIMIT_S, beginning, has_settled, read_rows, tail, wait_for

SIGNALS = {"sigkill": signal.SIGKILL, "sigstop": signal.SIGSTOP}
STEPS_AFTER = 20
RECOVERY_LIMIT_S = 120
FULL_LIMIT_S = {"torchft": 60, "nvrx in-process + 1 reserve": 30}
"""How long the full world is waited for behind a first step in a smaller one; the others come back whole or not."""
REFERENCE_STEPS = 450
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
    parser.add_argument("--versions", action="store_true", help="only print what is installed")
    options = parser.parse_args()
    if options.setup:
        subprocess.run([sys.executable, "-m", "venv", str(options.setup)], check=True)
        pip = str(options.setup / "bin" / "pip")
        subprocess.run([pip, "install", "-q", *PEER_PACKAGES], check=True)
        print(options.setup / "bin" / "python")
        return
    if options.versions:
        print(json.dumps(versions(options.peers)))
        return
    if not options.table:
        signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(143)
        )  # unwinds, so that the job in progress is ended
        measure_all(options)
    beside = options.output.with_name("recovery_versions.json")
    known = json.loads(beside.read_text()) if beside.exists() else None
    print(summary.table(read_rows(options.output), known))


def versions(peers: str) -> dict[str, str]:
    """What the rows were measured with."""
    code = (
        "import importlib.metadata as m, json, platform, sys\n"
        "print(json.dumps({'python': platform.python_version(), **{n: m.version(n) for n in sys.argv[1:]}}))"
    )
    ask = lambda python, *names: json.loads(  # noqa: E731
        subprocess.run([python, "-c", code, *names], check=True, capture_output=True).stdout
    )
    found = ask(peers, "torch", "nvidia-resiliency-ext", "torchft")
    return found | {"lastgood": ask(sys.executable, "lastgood")["lastgood"]}


def measure_all(options: argparse.Namespace) -> None:
    """Run by run over faults and systems, so that a noisy hour hits all alike."""
    have = {(row["system"], row["fault"], row["run"]) for row in read_rows(options.output)}
    reference = reference_losses(options.peers)
    named = options.faults.replace("others", ",".join(others.OTHERS))
    for run in range(options.runs):
        for fault in named.split(","):
            for system in options.systems.split(",") if fault in SIGNALS else ["lastgood"]:
                if (system, fault, run) in have:
                    continue
                row = {"system": system, "fault": fault, "run": run} | (
                    one(system, fault, run, options.peers, reference)
                    if fault in SIGNALS
                    else one_of_others(fault, run, reference)
                )
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def reference_losses(python: str) -> dict[tuple[int, int], str]:
    """Losses of the undisturbed job in plain torch."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        try:
            SYSTEMS["torchrun"](job, python)
            done = lambda events: records.completed(records.steps_of(events), WORLD)  # noqa: E731
            wait_for(job, lambda events: done(events) >= REFERENCE_STEPS, START_LIMIT_S)
        finally:
            job.end()
        return {
            (e["rank"], e["step"]): e["loss"]
            for e in records.steps_of(records.read_events(job.folder))
        }


def one(system: str, fault: str, run: int, python: str, reference: dict) -> dict:
    """One job, one signal."""
    victim = 1 + run % (WORLD - 1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        facts = beginning(victim)
        began = time.monotonic()
        try:
            SYSTEMS[system](job, python)
            if not has_settled(job):
                return facts | {"error": "never came to step 25", "tail": tail(job)}
            facts["started_s"] = round(time.monotonic() - began, 2)
            pid = records.pid_of(records.read_events(job.folder), victim)
            assert pid is not None
            injected_us = time.monotonic_ns() // 1000
            os.kill(pid, SIGNALS[fault])
            judged = lambda events: records.judge(  # noqa: E731
                events,
                records.of_others(events, since_us=injected_us, gone_pid=pid),
                injected_us=injected_us,
                world=WORLD,
                reference=reference,
            )
            facts |= watched(job, judged, FULL_LIMIT_S.get(system, STEPS_AFTER * 0.1))
            if system == "lastgood":
                facts |= ledger_facts(job, (victim,), 1)
            return facts
        finally:
            job.end()


def one_of_others(fault: str, run: int, reference: dict) -> dict:
    """One job under lastgood, the faults of one drill. The clock runs from the first of them; the recovery is that
    from the last one.
    """
    drill = others.placed(fault, run, WORLD)
    is_recovery = drill.expect.outcome is others.Outcome.RECOVERED
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        job = Job(Path(name))
        facts = beginning([f.target.rank for f in drill.faults])
        began = time.monotonic()
        try:
            start_lastgood(job, sys.executable, drill)
            if not has_settled(job):
                return facts | {"error": "never came to step 25", "tail": tail(job)}
            facts["started_s"] = round(time.monotonic() - began, 2)
            done = lambda: others.injections(drill, job.folder, job.run_folder)  # noqa: E731
            if not wait_for(job, lambda _: len(done()) == len(drill.faults), START_LIMIT_S):
                return facts | {"error": "not injected in time", "tail": tail(job)}
            first_us, last_us = min(done().values()), max(done().values())
            behind = records.of_new_lives if is_recovery else records.of_any
            judged = lambda events: records.judge(  # noqa: E731
                events,
                behind(events, since_us=last_us),
                injected_us=first_us,
                world=WORLD,
                reference=reference,
            )
            lasts_s = max(f.duration_us or 0 for f in drill.faults) / 1e6
            if not is_recovery:
                wait_for(job, lambda _: False, lasts_s + 1)
            facts["injected_over_s"] = round((last_us - first_us) / 1e6, 4)
            facts |= watched(job, judged, STEPS_AFTER * 0.1)
            if not is_recovery:
                events = records.read_events(job.folder)
                facts["pause_s"] = records.longest_pause_s(events, since_us=first_us, world=WORLD)
            return facts | ledger_facts(job, drill.expect.ranks or (), drill.expect.incidents)
        except RuntimeError as error:
            return facts | {"error": str(error), "tail": tail(job)}
        finally:
            job.end()


def watched(
    job: Job, judged: Callable[[list[records.Event]], records.Recovery], full_limit_s: float
) -> dict:
    """Wait for the recovery, for the full world, and for some steps more; then judge."""
    wait_for(job, lambda events: judged(events).recovered_s is not None, RECOVERY_LIMIT_S)
    wait_for(job, lambda events: judged(events).full_s is not None, full_limit_s)
    time.sleep(STEPS_AFTER * 0.1)
    facts = judged(records.read_events(job.folder)).to_plain()
    return facts if facts["recovered_s"] is not None else facts | {"tail": tail(job)}


def ledger_facts(job: Job, expected: tuple[int, ...], count: int | None) -> dict:
    """Whom the ledger names, and how the restored state was verified; right are these ranks in so many incidents."""
    from lastgood.ledger.incident import fold_incidents
    from lastgood.ledger.store import read_store

    with read_store(job.folder / "ledger.db") as store:
        incidents = fold_incidents(store.events())
    named = sorted({rank for incident in incidents for rank in incident.ranks})
    return {
        "incidents": len(incidents),
        "culprit_right": named == sorted(expected) and count in {None, len(incidents)},
        "verification": [i.verification.result if i.verification else None for i in incidents],
    }


if __name__ == "__main__":
    main()
