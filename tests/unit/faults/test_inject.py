"""The snapshot that is broken is one that a recovery would read: of the newest step that every rank has published."""

import json

from lastgood.faults.inject import SHARED_WAIT_US_MAX, newest_shared
from lastgood.faults.live_run import HEADER_BYTES, LiveRun


class Clock:
    """Time passes only in `sleep_us`; then the peers publish what is due."""

    def __init__(self, due=()) -> None:
        self.now_us = 0
        self._due = list(due)

    def monotonic_us(self) -> int:
        return self.now_us

    def wall_us(self) -> int:
        return self.now_us

    def sleep_us(self, duration_us: int) -> None:
        self.now_us += duration_us
        while self._due and self._due[0][0] <= self.now_us:
            self._due.pop(0)[1]()


def publish(folder, rank: int, *steps: int) -> None:
    for step in steps:
        path = folder / "slots" / str(rank) / f"state.{step % 3}"
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"step": step, "bytes": 8, "data_offset": HEADER_BYTES}
        path.write_bytes((json.dumps(header) + "\n").encode().ljust(HEADER_BYTES) + b"x" * 8)


def run_of(folder, ranks: int) -> LiveRun:
    members = {str(rank): {"worker": f"w{rank}", "pid": 10 + rank} for rank in range(ranks)}
    state = {"generation": 1, "phase": "running", "spares_parked": 0, "slots_dir": "slots"}
    (folder / "state.json").write_text(json.dumps(state | {"ranks": members}))
    return LiveRun(folder)


def test_the_newest_step_is_taken_at_once_when_every_rank_has_published_it(tmp_path):
    for rank in range(3):
        publish(tmp_path, rank, 6, 7, 8)
    run, clock = run_of(tmp_path, 3), Clock()
    assert newest_shared(run.snapshots(0), run=run, rank=0, clock=clock).step == 8
    assert clock.now_us == 0


def test_a_peer_that_is_a_step_behind_gets_a_moment_to_publish_the_newest_one(tmp_path):
    publish(tmp_path, 0, 6, 7, 8)
    publish(tmp_path, 1, 5, 6, 7)
    run = run_of(tmp_path, 2)
    clock = Clock([(30_000, lambda: publish(tmp_path, 1, 8))])
    assert newest_shared(run.snapshots(0), run=run, rank=0, clock=clock).step == 8
    assert 30_000 <= clock.now_us < SHARED_WAIT_US_MAX


def test_a_step_that_a_peer_never_publishes_is_left_for_the_newest_that_all_hold(tmp_path):
    publish(tmp_path, 0, 6, 7, 8)
    publish(tmp_path, 1, 5, 6, 7)
    publish(tmp_path, 2, 6, 7, 8)
    run, clock = run_of(tmp_path, 3), Clock()
    assert newest_shared(run.snapshots(0), run=run, rank=0, clock=clock).step == 7
    assert clock.now_us == SHARED_WAIT_US_MAX


def test_without_a_shared_step_the_newest_of_the_rank_is_taken(tmp_path):
    publish(tmp_path, 0, 8)
    run, clock = run_of(tmp_path, 2), Clock()
    assert newest_shared(run.snapshots(0), run=run, rank=0, clock=clock).step == 8
