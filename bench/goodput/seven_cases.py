"""Seven logs of a run with one fault each: what ml-goodput-measurement makes of them, what Lastgood does, and the truth.

    python bench/goodput/seven_cases.py [--logs DIR] [--json]

Each log is of one hundred steps of 10 s, written by nobody's cluster but by the functions below, in the form in which
the library's own recorder writes it and the cloud exports it. The same entries go through the library's official
calculator (with a log reader that hands them over instead of asking the cloud) and through `lastgood import` and the
wall-time partition. The truth is arithmetic: 1,000 s of work over the time that passed. `--logs` keeps the logs.

The table is printed in docs/goodput.md, and a test holds both sides to it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.base.clock import ManualClock
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.store import open_store
from lastgood.ledger.walltime import WallTime, partition

BEGAN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
JOB = "pretrain"
STEP_S = 10
DELAY_S = 0.4
"""How long an entry is on its way to the receiver, whose clock is the same for all hosts."""
ASKED_AFTER_S = 30 * 86_400
"""When both are asked: a month after the run began, as a report of old runs does."""


class Entry(NamedTuple):
    """What the library's recorder wrote, by which clock, and when the receiver had it."""

    payload: dict[str, Any]
    host_s: float
    true_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One log and the truth about it."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    work_s: float
    """Seconds of steps that were executed and kept, as far as anybody can know."""
    wall_s: float | None
    """Seconds from the start to the end of the run; None when no record tells its end."""

    @property
    def truth(self) -> str:
        """The ratio, or what is known when there is none."""
        if self.wall_s is None:
            return f"{self.work_s:.0f} s of work known"
        return f"{100 * self.work_s / self.wall_s:.1f} %"

    def lines(self) -> Iterator[str]:
        """The log as Cloud Logging exports it: one envelope a line, in the order in which it was received."""
        for number, entry in enumerate(self.entries):
            yield json.dumps(
                {
                    "insertId": f"{self.name.lower()}{number:04d}",
                    "jsonPayload": entry.payload,
                    "logName": "projects/example/logs/goodput",
                    "receiveTimestamp": _iso(entry.true_s + DELAY_S),
                    "severity": "INFO",
                    "timestamp": _iso(entry.host_s),
                }
            )


def _iso(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


class Writer:
    """The recorder of one start: a clock that may be behind, and the calls that a training script makes."""

    def __init__(self, behind_s: float = 0) -> None:
        """`behind_s`: by how much the clock of its host is late."""
        self.behind_s = behind_s

    def tell(self, at_s: float, **fields: Any) -> Entry:
        """One entry; a field of value None is given the host's time."""
        host_s = at_s - self.behind_s
        stamp = (BEGAN + timedelta(seconds=host_s)).timestamp()
        payload = {"job_name": JOB} | {k: stamp if v is None else v for k, v in fields.items()}
        return Entry(payload, host_s, at_s)

    def start(self, at_s: float) -> Entry:
        """The script was started."""
        return self.tell(at_s, job_start_time=None)

    def end(self, at_s: float) -> Entry:
        """The script ended by itself."""
        return self.tell(at_s, job_end_time=None)

    def steps(self, first: int, last: int, at_s: float, lost: Sequence[int] = ()) -> list[Entry]:
        """The starts of steps of 10 s, without the records that were lost."""
        return [
            self.tell(at_s + STEP_S * (n - first), step_count=n, step_start_time=None)
            for n in range(first, last + 1)
            if n not in lost
        ]

    def section(self, name: str, begin_s: float, end_s: float) -> list[Entry]:
        """Begin and end of a preparation."""
        return [
            self.tell(begin_s, **{f"{name}_start_time": None}),
            self.tell(end_s, **{f"{name}_end_time": None}),
        ]


LOST = (4, 13, 22, 31, 40, 53, 54, 67, 76, 88)
"""Ten of a hundred step records, two of them neighbours."""


def _cases() -> tuple[Case, ...]:
    one, late = Writer(), Writer(behind_s=600)
    before = [one.start(0), *one.steps(0, 49, 0)]
    return (
        Case(
            name="A", title="no failure", work_s=1000, wall_s=1000,
            entries=(one.start(0), *one.steps(0, 99, 0), one.end(1000)),
        ),
        Case(
            name="B", title="2,400 s outage, goes on at the very next step", work_s=1000, wall_s=3400,
            entries=(*before, one.start(2900), *one.steps(50, 99, 2900), one.end(3400)),
        ),
        Case(
            name="B2", title="as B, the preparations of the restart logged (418 s)", work_s=1000, wall_s=3400,
            entries=(
                *before, one.start(2482), *one.section("tpu_init", 2482, 2782),
                *one.section("training_prep", 2782, 2882), *one.section("data_loading", 2882, 2900),
                *one.steps(50, 99, 2900), one.end(3400),
            ),
        ),
        Case(
            name="C", title="same outage, goes on 10 steps back", work_s=1000, wall_s=3500,
            entries=(*before, one.start(2900), *one.steps(40, 99, 2900), one.end(3500)),
        ),
        Case(
            name="D", title="no failure, 10 % of the step records lost", work_s=1000, wall_s=1000,
            entries=(one.start(0), *one.steps(0, 99, 0, LOST), one.end(1000)),
        ),
        Case(
            name="E", title="200 s outage, the clock of the new host 600 s behind", work_s=1000, wall_s=1200,
            entries=(*before, late.start(700), *late.steps(50, 99, 700), late.end(1200)),
        ),
        Case(
            name="F", title="one step hangs for 3,600 s", work_s=1000, wall_s=4600,
            entries=(*before, one.tell(500, step_count=50, step_start_time=None), *one.steps(51, 99, 4110), one.end(4600)),
        ),
        Case(
            name="G", title="killed during step 50, no end on record", work_s=490, wall_s=None,
            entries=tuple(before),
        ),
    )  # fmt: skip


CASES = _cases()


# --- the two sides ------------------------------------------------------------------------------------


class Reader:
    """Stands for the library's cloud reader: hands over the entries that it would have read."""

    def __init__(self, case: Case) -> None:
        """The entries of one case."""
        self.job_name = JOB
        self._payloads = [entry.payload for entry in case.entries]

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], Any]:
        """All entries, and where the reader stands."""
        return list(self._payloads), (BEGAN, "last")


def by_library(case: Case, asked: datetime | None = None) -> str:
    """The goodput that the library's official calculator gives, with what it says beside it."""
    from ml_goodput_measurement.src import goodput

    class Day(datetime):
        """Asks a month after the run began, whenever this is called."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return asked or (BEGAN + timedelta(seconds=ASKED_AFTER_S)).astimezone(tz)

    class Times:
        """The module `datetime` with that clock."""

        datetime, timedelta, timezone = Day, timedelta, goodput.datetime.timezone

    real = goodput.datetime
    goodput.datetime = Times  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as cache:
            calculator = goodput.GoodputCalculator(
                JOB, "log", cloud_logger=Reader(case), cache_dir=cache
            )
            try:
                share, badput, _ = calculator.get_job_goodput(include_badput_breakdown=True)
            except ValueError:
                return "ValueError, no number"
    finally:
        goodput.datetime = real
    lost = {kind.name: part for kind, part in badput.items() if isinstance(part, float) and part}
    other = lost.pop("OTHER", 0.0)
    said = f"{share:.1f} %"
    if lost:
        said += f", badput {sum(lost.values()):.1f} %"
    return said + (f", OTHER {other:.1f} %" if other else "")


def by_lastgood(case: Case, folder: Path) -> WallTime:
    """The partition of the same log, imported into a ledger of its own."""
    path = folder / f"{case.name}.jsonl"
    path.write_text("\n".join(case.lines()) + "\n", encoding="utf-8")
    asked_us = round((BEGAN.timestamp() + ASKED_AFTER_S) * 1_000_000)
    ledger = folder / f"{case.name}.ledger"
    import_files([path], ledger=ledger, format="goodput", clock=ManualClock(asked_us))
    with open_store(ledger, create=False) as store:
        return partition(store.events(run=JOB), run=JOB, as_of_us=asked_us)


def said_by_lastgood(wall: WallTime) -> tuple[str, str]:
    """The ETTR, and where the other time is."""
    rest = ", ".join(
        f"{state} {total / 1e6:,.0f} s"
        for state, total in wall.totals_us.items()
        if total and state != "productive"
    )
    if wall.skew.event_count:
        rest += f"; skew corrected: {wall.skew.event_count} events, {wall.skew.shift_us_max / 1e6:.0f} s"
    if wall.inferred_us:
        rest += f"; {wall.inferred_us / 1e6:,.0f} s by rule"
    work = wall.productive_us / 1e6
    if wall.is_end_inferred:
        return f"{work:.0f} s of work, no end on record", rest.removeprefix("; ")
    return f"{100 * wall.productive_us / wall.window_us:.1f} %", rest.removeprefix("; ")


def table(*, has_library: bool = True) -> list[tuple[str, ...]]:
    """The rows: case, what happened, truth, the library, Lastgood, where the rest is."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            library = by_library(case) if has_library else "not installed"
            ours = said_by_lastgood(by_lastgood(case, Path(folder)))
            rows.append((case.name, case.title, case.truth, library, *ours))
    return rows


HEADERS = ("case", "what happened", "truth", "ml-goodput-measurement 0.2.3", "Lastgood", "where the rest is")  # fmt: skip


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table as it stands in docs/goodput.md."""
    lines = [HEADERS, ("---",) * len(HEADERS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Prints the table, or writes the logs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--logs", type=Path, help="write the seven logs into this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.logs:
        given.logs.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            text = "\n".join(case.lines()) + "\n"
            (given.logs / f"{case.name}.jsonl").write_text(text, encoding="utf-8")
    try:
        import ml_goodput_measurement  # noqa: F401
    except ImportError:
        print("ml-goodput-measurement is not installed: pip install ml-goodput-measurement==0.2.3", file=sys.stderr)  # fmt: skip
        rows = table(has_library=False)
    else:
        rows = table()
    print(json.dumps([dict(zip(HEADERS, row, strict=True)) for row in rows], indent=1) if given.json else markdown(rows))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
