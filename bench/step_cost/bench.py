"""What every-step snapshots and digests cost: the same job in plain torch and under lastgood, side by side.

    python bench/step_cost/bench.py [--rounds 5] [--ranks 2,4] [-o step_cost.jsonl] [--table]

A round runs the arms at the same time, started in a turning order, so that the load of others hits all of them alike:
`plain` (DDP, no lastgood), `whole` (every rank copies all of its state each step) and `striped` (every rank copies
1/N; all hash everything). Compared is the CPU time of the rank processes a step, round by round. Rounds that the file
holds are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOB = Path(__file__).with_name("job.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"
ARMS = ("plain", "whole", "striped")
STEPS = 35
STEP_CPU_S = 0.5
JOB_S_MAX = 600
GOAL = {"whole": 0.10, "striped": 0.05}
GOAL_OF_INTERVAL = 0.009


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("-o", "--output", type=Path, default=Path("step_cost.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print the table of the file")
    options = parser.parse_args()
    worlds = [int(text) for text in options.ranks.split(",")]
    if not options.table:
        measure_all(options.output, worlds, options.rounds)
    print(table(read_rows(options.output)))


def read_rows(path: Path) -> list[dict]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure_all(path: Path, worlds: list[int], rounds: int) -> None:
    """Round by round over the numbers of ranks."""
    rows = read_rows(path)
    have = {(row["ranks"], row["round"]) for row in rows}
    batch = rows[0]["batch"] if rows else calibrated_batch()
    for number in range(rounds):
        for world in worlds:
            if (world, number) in have:
                continue
            found = one_round(number, world, batch)
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
            print(table(read_rows(path)), flush=True)


def calibrated_batch() -> int:
    """The batch with which one step of one rank takes about half a second of CPU."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import torch, job\n"
        "torch.set_num_threads(1); model = job.make_model()\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "def cost(size):\n"
        "    batch = torch.randn(size, job.WIDTH)\n"
        "    job.train_step(model, optimizer, batch)\n"
        "    began = time.process_time()\n"
        "    for _ in range(3): job.train_step(model, optimizer, batch)\n"
        "    return (time.process_time() - began) / 3\n"
        "low, high = cost(64), cost(512)\n"
        "print(round(64 + (float(sys.argv[2]) - low) * (512 - 64) / (high - low)))\n"
    )
    argv = [sys.executable, "-c", code, str(JOB.parent), str(STEP_CPU_S)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def one_round(number: int, world: int, batch: int) -> list[dict]:
    """All arms at once."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        jobs = {}
        try:
            for arm in ARMS[number % 3 :] + ARMS[: number % 3]:
                out = Path(name) / arm
                out.mkdir()
                given = ["--batch", str(batch), "--steps", str(STEPS), "--out", str(out)]
                start = start_plain if arm == "plain" else start_supervised
                jobs[arm] = start(arm, world, given, out)
            load = os.getloadavg()[0]
            for arm, processes in jobs.items():
                if any(process.wait(JOB_S_MAX) for process in processes):
                    raise SystemExit((Path(name) / arm / "log.txt").read_text()[-2000:])
            return [
                {"ranks": world, "arm": arm, "round": number, "batch": batch, "load": load}
                | costs(Path(name) / arm, world)
                for arm in ARMS
            ]
        finally:
            for process in [process for processes in jobs.values() for process in processes]:
                process.kill()
                process.wait()


def costs(out: Path, world: int) -> dict:
    """What the ranks of one arm wrote."""
    found = [json.loads((out / f"cost-{rank}.json").read_text()) for rank in range(world)]
    steps = found[0]["steps"]
    return {
        "steps": steps,
        "cpu_s_a_step": [round(rank["cpu_s"] / steps, 5) for rank in found],
        "wall_s_a_step": round(max(rank["wall_s"] for rank in found) / steps, 4),
        "snapshot_cpu_s": [round(rank["snapshot_s"] / steps, 5) for rank in found],
        "supervisor_cpu_s_a_step": round(found[0].get("supervisor_s", 0.0) / steps, 5),
        "load_after": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def environment() -> dict[str, str]:
    """One thread a rank, and this checkout."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}


def start_plain(_arm: str, world: int, arguments: list[str], out: Path) -> list[subprocess.Popen]:
    """The job with torchrun's environment and without torchrun: nothing but the ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    with (out / "log.txt").open("wb") as log:
        return [
            subprocess.Popen(
                [sys.executable, str(JOB), *arguments, "--plain"],
                env=environment() | given | {"RANK": str(rank), "WORLD_SIZE": str(world)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # as lastgood's ranks: the scheduler shares time among sessions
            )
            for rank in range(world)
        ]


def start_supervised(
    arm: str, world: int, arguments: list[str], out: Path
) -> list[subprocess.Popen]:
    """The job under lastgood, with no spare beside it."""
    argv = [
        sys.executable, "-m", "lastgood.cli.main", "run", "--nproc-per-node", str(world),
        "--spares", "0", "--snapshots", arm, "--ledger", str(out / "ledger.db"), "--quiet",
        str(JOB), *arguments,
    ]  # fmt: skip
    with (out / "log.txt").open("wb") as log:
        return [subprocess.Popen(argv, env=environment(), stdout=log, stderr=subprocess.STDOUT)]


# --- the table ------------------------------------------------------------------------------------


def table(rows: list[dict]) -> str:
    """Markdown: what each arm adds to the CPU time of a step, with the paired interval, and the interval of steps."""
    lines = [
        f"CPU seconds of the rank processes a step; 10,010,000 parameters, AdamW, {STEPS} steps a run.",
        "",
        "| ranks | snapshots | pairs | plain step, CPU s | added by lastgood, 95 % paired | goal | of it snapshot and digest | every k steps under 0.9 % (modelled) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for world in sorted({row["ranks"] for row in rows}):
        for arm in ARMS[1:]:
            pairs = paired(rows, world, arm)
            if pairs:
                lines.append(line_of(world, arm, pairs))
    return "\n".join(lines)


def paired(rows: list[dict], world: int, arm: str) -> list[tuple[dict, dict]]:
    """The runs of plain torch and of an arm, round by round."""
    found = {(row["round"], row["arm"]): row for row in rows if row["ranks"] == world}
    numbers = sorted({number for number, _ in found})
    return [
        (found[number, "plain"], found[number, arm])
        for number in numbers
        if (number, "plain") in found and (number, arm) in found
    ]


def line_of(world: int, arm: str, pairs: list[tuple[dict, dict]]) -> str:
    """One line of the table."""
    plain = mean([mean(a["cpu_s_a_step"]) for a, _ in pairs])
    added = [mean(b["cpu_s_a_step"]) / mean(a["cpu_s_a_step"]) - 1 for a, b in pairs]
    snapshot = mean([mean(b["snapshot_cpu_s"]) for _, b in pairs]) / plain
    # The whole measured addition is taken to shrink with the interval only as far as it is snapshot and digest.
    every = math.floor(snapshot / GOAL_OF_INTERVAL) + 1
    low, high = interval(added)
    return (
        f"| {world} | {arm} | {len(pairs)} | {plain:.3f} | {mean(added):.1%} ({low:.1%} to {high:.1%}) | "
        f"{GOAL[arm]:.0%} | {snapshot:.1%} ({1000 * snapshot * plain:.1f} ms) | {every} |"
    )


def mean(values: list[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of a mean by Student's t; the runs of a pair are close in time, so noise of the hour cancels."""
    from scipy.stats import t

    if len(values) < 2:
        return math.nan, math.nan
    centre = mean(values)
    spread = math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1))
    half = float(t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return centre - half, centre + half


if __name__ == "__main__":
    main()
