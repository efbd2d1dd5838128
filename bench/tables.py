"""Write what the raw rows in bench/results say into the pages below and docs/images/recovery.svg.

    python bench/tables.py [--check]

Each table stands between two marks of its page. With --check nothing is written; exit 1 when one is out of date.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "bench" / name) for name in ("recovery", "mechanisms")]
import deaths  # noqa: E402
import meeting  # noqa: E402
import phases  # noqa: E402
import picture  # noqa: E402
import summary  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PAGES = [
    ROOT / "docs" / "benchmarks.md",
    ROOT / "README.md",
    ROOT / "docs" / "recovery.md",
    ROOT / "docs" / "design" / "001-store-in-a-file.md",
    ROOT / "docs" / "design" / "006-an-end-counts-early.md",
]
PICTURE = ROOT / "docs" / "images" / "recovery.svg"


def main() -> int:
    """Fill the pages and draw the picture, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    stale = False
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        stale |= before != after
        if not options.check:
            page.write_text(after, encoding="utf-8")
    rows = recovery_rows()
    if rows and not is_picture_of(rows):
        stale = True
        if not options.check:
            PICTURE.write_text(picture.svg(rows), encoding="utf-8")
    return int(options.check and stale)


def is_picture_of(rows: list[dict]) -> bool:
    """The picture shows these rows."""
    return PICTURE.exists() and picture.mark(rows) in PICTURE.read_text(encoding="utf-8")


def filled(page: str) -> str:
    """Return the page with each of its tables as the rows say."""
    makers: dict[str, Callable[[], str]] = {
        "recovery": recovery_table,
        "recovery headline": recovery_headline,
        "phases": lambda: phases.table(rows_of("recovery_phases.jsonl")),
        "meeting": lambda: meeting.table(rows_of("meeting.jsonl")),
        "deaths": lambda: deaths.table(rows_of("deaths.jsonl")),
        "step_cost": step_cost_table,
        "snapshot": snapshot_table,
        "slot": slot_table,
        "false_restarts": false_restarts_table,
        "ledger": ledger_table,
    }
    for name, make in makers.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if begin in page:
            head, _, rest = page.partition(begin)
            _, _, tail = rest.partition(end)
            made = make()
            page = f"{head}{begin}" + (f"\n{made}\n\n" if made else "") + f"{end}{tail}"
    return page


def recovery_rows() -> list[dict]:
    """The rows of bench/recovery."""
    return rows_of("recovery.jsonl")


def rows_of(name: str) -> list[dict]:
    """The rows of a bench that writes one a line; none before it has run."""
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def recovery_table() -> str:
    """Peers side by side, and the other faults."""
    rows, versions = recovery_rows(), RESULTS / "recovery_versions.json"
    if not rows:
        return "Not measured yet."
    known = read(versions.name) if versions.exists() else None
    return f"{summary.table(rows, known)}\n\n{recovery_picture('images/recovery.svg')}"


def recovery_headline() -> str:
    """The ratio in a sentence, with the picture; nothing before there are rows of peers."""
    said = summary.headline(recovery_rows())
    return f"{said}\n\n{recovery_picture('docs/images/recovery.svg')}" if said else ""


def recovery_picture(place: str) -> str:
    """The picture with its words."""
    words = "Seconds to recover by system after SIGKILL and after SIGSTOP, every run a dot, logarithmic axis"
    return f"![{words}]({place})"


def step_cost_table() -> str:
    """What that bench itself prints from its rows."""
    script, rows = ROOT / "bench" / "step_cost" / "bench.py", RESULTS / "step_cost.jsonl"
    argv = [sys.executable, str(script), "--table", "-o", str(rows)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def read(name: str) -> dict:
    """One file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def snapshot_table() -> str:
    """One snapshot by itself, against a step of half a second."""
    found, step_ms, goal = read("snapshot.json"), 500, 0.009
    lines = [
        "| kept by a rank | CPU ms, median | 95th percentile | of a 0.5 s step | every k steps under 0.9 % (modelled) |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        kind = {"1": "all, hashed", "digest alone": "nothing, hashed"}.get(row["stripes"])
        ratio = row["p50_ms"] / step_ms
        lines.append(
            f"| {kind or 'a stripe of ' + row['stripes'] + ', all hashed'} | {row['p50_ms']:.1f} | "
            f"{row['p95_ms']:.1f} | {ratio:.1%} | {int(ratio / goal) + 1} |"
        )
    return "\n".join(
        [*lines, "", f"{found['repeats']} snapshots of each kind. Load {found['load']:.1f}."]
    )


def slot_table() -> str:
    """Nanoseconds of each call."""
    found = read("slot.json")
    lines = ["| call | median, ns | 99th percentile, ns |", "|---|---|---|"]
    lines += [f"| {r['call']} | {r['ns']['p50']} | {r['ns']['p99']} |" for r in found["rows"]]
    goal = found["goal_ns_a_step"]
    return "\n".join([*lines, "", f"Goal: {goal} ns a step. Load {found['load']:.1f}."])


def false_restarts_table() -> str:
    """One run in words and numbers."""
    found = read("false_restarts.json")
    rows = {
        "minutes watched": found["minutes"],
        "steps, of four ranks": found["steps"],
        "evaluations and checkpoints beyond the limit": found["evaluations"] + found["checkpoints"],
        "limit for a silent rank": f"{found['hang_after_s']} s",
        "load average, mean and largest, on 2 cores": f"{found['load_mean']}, {found['load_max']}",
        "false alarms": len(found["false_alarms"]),
        "at most an hour (exact Poisson, one-sided 95 %)": found["upper_bound_an_hour"],
        "at most in 1,000 steps (the same)": found["upper_bound_a_1000_steps"],
        "the stopped rank at the end": "seen" if found["control_detected"] else "missed",
    }
    return "\n".join(
        ["| what | value |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows.items())]
    )


def ledger_table() -> str:
    """Appending and verifying."""
    append, scale = read("ledger_append.json"), read("ledger_scale.json")
    lines = [
        "| what | events | events a second | events a CPU-second |",
        "|---|---|---|---|",
    ]
    lines += [line(row["path"], row) for row in append["rows"][:-1]]
    lines.append(line("verify, 400-byte step events", append["rows"][-1]))
    (verify,) = [row for row in scale["rows"] if row["path"] == "verify"]
    lines.append(line("verify, 850-byte imported lines", verify))
    load = [append["load"][0], scale["load_before_and_after"][0][0]]
    goals = "Goals: 3,000 durable events a second in groups, 200,000 a CPU-second for verify."
    return "\n".join([*lines, "", f"{goals} Load {load[0]:.1f} and {load[1]:.1f}."])


def line(name: str, row: dict) -> str:
    """One line of the ledger's table."""
    return f"| {name} | {row['events']:,} | {row['events_per_wall_s']:,.0f} | {row['events_per_cpu_s']:,.0f} |"


if __name__ == "__main__":
    sys.exit(main())
