"""SIGKILL of a writer at any point loses no acknowledged event, doubles none, and leaves a ledger that verifies.

Two campaigns: kills at random moments, seen from outside, one ledger through all rounds; and a writer that kills
itself at its 1st, 2nd, 3rd, ... write, sync or truncation, whole or torn, until it gets to its end.
A process death only: the loss of power is not shown here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lastgood.base.rng import stream
from lastgood.ledger.store import open_store
from lastgood.ledger.verify import verify_ledger

pytestmark = pytest.mark.fault

SEED = 20260901
ROUND_COUNT = 60
ENDLESS_COUNT = 1_000_000
"""More events than a writer gets to send before it is killed."""
CHILD = Path(__file__).parent / "ledger_child.py"


class Zygote:
    """The process that forks the writers."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def start(self, **order) -> int:
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def wait(self) -> int:
        """Wait status of the writer: 9 when it was killed, 0 when it came to its end."""
        word, status = self._process.stdout.readline().split()
        assert word == "gone"
        return int(status)


@contextmanager
def zygote() -> Iterator[Zygote]:
    process = subprocess.Popen(
        [sys.executable, str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Zygote(process)
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def acknowledged(path: Path) -> set[int]:
    """Whole lines only: a kill may have cut nothing, because each is one system call."""
    return {int(line) for line in path.read_text().splitlines()} if path.exists() else set()


def check(ledger: Path, promised: set[int], sent: int) -> int:
    """The ledger verifies and holds every promised event once and nothing that was not sent; how many it holds."""
    result = verify_ledger(ledger)
    assert result.ok, result.reason
    with open_store(ledger, create=False) as store:
        ids = store.connection.execute("SELECT id FROM event").fetchall()
    numbers = [int(name.removeprefix("n-")) for (name,) in ids]
    assert len(numbers) == len(set(numbers)) == result.size, "an event is there twice"
    assert promised <= set(numbers), f"lost: {sorted(promised - set(numbers))[:5]}"
    assert all(0 <= number < sent for number in numbers), "an event is there that nobody sent"
    return len(numbers)


def campaign(folder: Path, *, seed: int, round_count: int) -> tuple[int, int]:
    """Rounds on one ledger; how many kills struck, and in how many an unacknowledged event had become durable."""
    ledger, promised, sent = folder / "ledger.db", set(), 0
    killed = ahead = 0
    with zygote() as writers:
        for number in range(round_count):
            draw = stream(seed, "ledger-kill9", number)
            # Sending the newest events again is what a supervisor does after a restart.
            first = max(0, len(promised) - 5)
            sent = max(sent, first + ENDLESS_COUNT)
            answers = folder / f"acknowledged-{number}"
            mode = draw.choice(("single", "batch", "writer"))
            pid = writers.start(
                path=str(ledger),
                acknowledged=str(answers),
                mode=mode,
                first=first,
                count=ENDLESS_COUNT,
            )
            # From before the file exists to many commits in; a commit lasts about a millisecond here.
            time.sleep(draw.choice((draw.uniform(0, 0.004), draw.uniform(0, 0.06))))
            os.kill(pid, signal.SIGKILL)
            killed += writers.wait() == signal.SIGKILL
            promised |= acknowledged(answers)
            if not promised:
                # Killed while the file was being made: whoever comes next finishes that.
                open_store(ledger).close()
            held = check(ledger, promised, sent)
            ahead += held > len(promised)
            promised |= set(range(held))
    return killed, ahead


def test_no_acknowledged_event_is_lost_to_kills_at_random_moments(tmp_path):
    killed, ahead = campaign(tmp_path, seed=SEED, round_count=ROUND_COUNT)
    assert killed == ROUND_COUNT
    assert ahead > 0, (
        "no kill struck between commit and acknowledgement: the campaign is too gentle"
    )


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_no_acknowledged_event_is_lost_in_a_thousand_kills(tmp_path):
    killed = 0
    for block in range(10):  # fresh ledgers, so that the making of the file is hit often
        folder = tmp_path / str(block)
        folder.mkdir()
        killed += campaign(folder, seed=SEED + 1 + block, round_count=105)[0]
    assert killed >= 1000


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: a killed process does not care, and hundreds of ledgers need not wait for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@pytest.mark.parametrize("is_torn", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("mode", ["single", "batch"])
def test_dying_at_every_single_write_and_sync_loses_nothing_acknowledged(memory, mode, is_torn):
    sent = 6 if mode == "single" else 45
    with zygote() as writers:
        for die_at in range(1, 400):
            ledger, answers = memory / f"{die_at}.db", memory / f"{die_at}.acknowledged"
            writers.start(
                path=str(ledger), acknowledged=str(answers), mode=mode, first=0, count=sent, die_at=die_at,
                is_torn=is_torn,
            )  # fmt: skip
            status = writers.wait()
            promised = acknowledged(answers)
            # A writer of today goes on where the dead one stopped.
            with open_store(ledger) as store:
                assert store.size >= len(promised)
            check(ledger, promised, sent)
            if status == 0:
                break
            assert status == signal.SIGKILL
    assert status == 0
    assert promised == set(range(sent))
    assert die_at > 25, "the writer came to its end too soon: the campaign hit nothing"
