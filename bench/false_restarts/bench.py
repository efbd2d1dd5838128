"""How often a healthy job is taken for a broken one: CPU noise, long evaluations and long checkpoints, no fault.

    python bench/false_restarts/bench.py [--minutes 10] [--noise 4] [-o false_restarts.json]

The limits are those of the SIGSTOP row of the recovery bench. Noise processes compute and rest at random. Every
incident in the ledger is a false alarm. At the end one rank is stopped for real: the same job must see it, or the
silence before it says nothing. Printed is the exact Poisson upper bound (one-sided, 95 %) an hour.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recovery"))

import psutil
from systems import STOP_LIMIT_S, WORLD

JOB = Path(__file__).with_name("job.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"
START_S_MAX = 120
CONTROL_S_MAX = 60
NOISE = (
    "import random, sys, time\n"
    "r = random.Random(int(sys.argv[1])); end = time.monotonic() + float(sys.argv[2])\n"
    "while time.monotonic() < end:\n"
    "    busy = time.monotonic() + r.uniform(0.05, 4)\n"
    "    while time.monotonic() < min(busy, end): sum(range(2000))\n"
    "    time.sleep(r.uniform(0.01, 2))\n"
)


def main() -> int:
    """Run the job in noise, count, then stop a rank."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--noise", type=int, default=4, help="processes that compute and rest")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        found = one_run(Path(name), seconds, options.noise)
    text = json.dumps(found, indent=1) + "\n"
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text + said(found))
    return 0 if not found["false_alarms"] and found["control_detected"] else 1


def one_run(folder: Path, seconds: float, noise_count: int) -> dict:
    """One job, from its first step for so many seconds."""
    job = start_job(folder)
    noise: list[subprocess.Popen] = []
    try:
        wait_for((folder / "progress.json").exists, job, START_S_MAX)
        began = time.monotonic()
        noise = [
            subprocess.Popen([sys.executable, "-c", NOISE, str(seed), str(seconds)])
            for seed in range(noise_count)
        ]
        loads = []
        while time.monotonic() - began < seconds:
            time.sleep(5)
            loads.append(os.getloadavg()[0])
            if job.poll() is not None:
                raise SystemExit((folder / "log.txt").read_text()[-3000:])
        watched_s = time.monotonic() - began
        alarms = incidents(folder)
        progress = json.loads((folder / "progress.json").read_text())
        victim = stop_a_rank(folder)
        is_seen = wait_for(lambda: len(incidents(folder)) > len(alarms), job, CONTROL_S_MAX)
        return {
            "minutes": round(watched_s / 60, 2),
            "world": WORLD,
            "hang_after_s": STOP_LIMIT_S,
            "noise_processes": noise_count,
            **progress,
            "false_alarms": alarms,
            "upper_bound_an_hour": round(upper_bound(len(alarms)) / (watched_s / 3600), 2),
            "upper_bound_a_1000_steps": round(
                1000 * upper_bound(len(alarms)) / progress["steps"], 3
            ),
            "control_detected": is_seen and incidents(folder)[len(alarms)]["ranks"] == [victim],
            "load_mean": round(sum(loads) / len(loads), 1),
            "load_max": round(max(loads), 1),
            "cores": os.cpu_count(),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    finally:
        end([job, *noise])


def start_job(folder: Path) -> subprocess.Popen:
    """Four ranks, one spare, durable checkpoints every 20 s; the limit of the SIGSTOP row."""
    argv = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(WORLD), "--spares", "1",
        "--hang-after", f"{STOP_LIMIT_S}s", "--ledger", str(folder / "ledger.db"),
        "--checkpoint-dir", str(folder / "checkpoints"), "--checkpoint-every", "20s",
        "--run-id", f"noise-{os.getpid()}", str(JOB),
    ]  # fmt: skip
    given = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE), "BENCH_OUT": str(folder)}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(argv, env=os.environ | given, stdout=log, stderr=log)


def wait_for(is_so, job: subprocess.Popen, limit_s: float) -> bool:  # noqa: ANN001
    """Look until it is so, at most so long."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and job.poll() is None:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def incidents(folder: Path) -> list[dict]:
    """What the ledger took for a fault."""
    from lastgood.ledger.incident import fold_incidents
    from lastgood.ledger.store import read_store

    with read_store(folder / "ledger.db") as store:
        found = fold_incidents(store.events())
    return [
        {"symptom": i.symptom, "ranks": list(i.ranks), "notes": list(i.notes)[:4]} for i in found
    ]


def stop_a_rank(folder: Path) -> int:
    """SIGSTOP rank 2, as the recovery bench does."""
    from lastgood.ledger.store import read_store

    with read_store(folder / "ledger.db") as store:
        (*_, last) = (e for e in store.events() if e.kind == "attempt.start")
    os.kill(last.body["pids"]["2"], signal.SIGSTOP)
    return 2


def upper_bound(count: int) -> float:
    """Exact one-sided 95 % upper bound of a Poisson mean. Source: Garwood (1936)."""
    from scipy.stats import chi2

    return float(chi2.ppf(0.95, 2 * (count + 1)) / 2)


def said(found: dict) -> str:
    """The result in words."""
    return (
        f"{len(found['false_alarms'])} false alarms in {found['minutes']} min and {found['steps']} steps of {WORLD} ranks; "
        f"at most {found['upper_bound_an_hour']} an hour (exact Poisson, 95 %).\n"
        f"{found['evaluations']} evaluations and {found['checkpoints']} checkpoints longer than the limit of "
        f"{found['hang_after_s']} s. The stopped rank at the end was {'seen' if found['control_detected'] else 'MISSED'}."
    )


def end(processes: list[subprocess.Popen]) -> None:
    """End what the bench started, and nothing else."""
    for process in processes:
        try:
            family = [process, *psutil.Process(process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for member in family:
            try:
                member.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
