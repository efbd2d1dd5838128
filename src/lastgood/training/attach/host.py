"""The process that watches the ranks of one host: started by local rank 0, outlives it, and writes the host's spool.

It is a process of its own because a thread of a rank does not run while the rank holds the interpreter's lock, and
dies with it. It imports no torch, sends no signal, and ends when the ranks of its host have ended.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import SystemClock
from lastgood.fleet.topology import topology_digest
from lastgood.signals.limits import Limits
from lastgood.training.attach.live import Joined, LiveDir
from lastgood.training.attach.spool import SpoolEvents
from lastgood.training.machine import machine_versions, run_topology
from lastgood.training.observe.ending import EndingNote, read_ending
from lastgood.training.observe.first_note import FirstNote, read_first_note
from lastgood.training.observe.watcher import Watcher
from lastgood.training.recorder import Recorder
from lastgood.training.slot import StatusSlot

if TYPE_CHECKING:
    from collections.abc import Sequence

TURN_US = 10_000
JOIN_US_MAX = 600_000_000
"""Longest wait for the other ranks of the host; then those that are there are watched."""
LINGER_US = 500_000
"""After the last rank has ended: its note may still be on its way."""
ENDED_WITHOUT_WORD = 1 << 20
"""Stands for the exit code of a process that left no note: no parent, no code."""
_WORDLESS = ("exit code 1048576", "without a word: killed, or crashed below Python")


class AttachedRank:
    """A rank that somebody else started."""

    def __init__(self, live: LiveDir, local_rank: int, joined: Joined) -> None:
        """Raises OSError when its page is not there."""
        self._live, self._local_rank = live, local_rank
        self.rank, self.pid = joined.rank, joined.pid
        self.name = f"r{joined.rank}"
        self.slot = StatusSlot(live.path("status", local_rank))
        self._pidfd: int | None = None
        with suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(joined.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; else what its note says, since its code goes to whoever started it."""
        if self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]:
            return None
        note = self.ending
        return ENDED_WITHOUT_WORD if note is None else note.code

    @property
    def ending(self) -> EndingNote | None:
        """What it said about its end."""
        return read_ending(self._live.path("endings", self._local_rank))

    @property
    def first_step(self) -> FirstNote | None:
        """What it says about its first step."""
        return read_first_note(self._live.path("first", self._local_rank))


class HostRecorder(Recorder):
    """Records for one host. Only the host of rank 0 speaks of the steps of the job: a second voice would redo them."""

    def __init__(self, spool: SpoolEvents, *, is_first_host: bool, **given: Any) -> None:
        super().__init__(spool, **given)  # type: ignore[arg-type]
        self._is_first_host = is_first_host

    def record(self, kind: str, **fields: Any) -> None:
        """Append one event to the spool."""
        if kind == "step" and not self._is_first_host:
            self.close_chunk()
            kind, fields["body"] = "observation", {"steps": fields["body"]}
        if isinstance(fields.get("body"), dict):
            fields["body"] = {key: _worded(value) for key, value in fields["body"].items()}
        super().record(kind, **fields)


def _worded(value: Any) -> Any:
    """Texts without the number that stands for a code that nobody knows."""
    if isinstance(value, str):
        return value.replace(*_WORDLESS)
    if isinstance(value, list):
        return [_worded(item) for item in value] if value and isinstance(value[0], str) else value
    return value


def main() -> None:
    """Watch until every rank of the host has ended."""
    given = json.loads(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the ranks; this process ends behind them
    live = LiveDir(Path(given["live"]))
    spool = SpoolEvents(Path(given["spool"]), name=given["name"])
    try:
        _watch(live, spool, given)
    finally:
        spool.close()
        shutil.rmtree(live.root, ignore_errors=True)


def _watch(live: LiveDir, spool: SpoolEvents, given: dict[str, Any]) -> None:
    clock = SystemClock()
    ranks = _wait_for_ranks(live, given["local_world"], clock)
    if not ranks:
        return
    topology = run_topology(given["world"])
    recorder = HostRecorder(
        spool,
        is_first_host=given["is_first_host"],
        clock=clock,
        run_id=given["run"],
        versions={**machine_versions(), **given["versions"]},
        topology=topology_digest(topology),
    )
    recorder.attempt = given["attempt"]
    _record_start(recorder, ranks, given)
    limits = Limits(
        step_floor_us=given["hang_after_us"],
        warmup_floor_us=max(600_000_000, given["hang_after_us"]),
    )
    watcher = Watcher(
        recorder,
        run=f"{given['run']}/{given['host']}",
        host=given["host"],
        world=given["world"],
        limits=limits,
        stacks=live.root / "stacks",
        is_all=given["local_world"] == given["world"],
        group_advice=given["group_advice"],
    )
    watcher.begin_attempt(ranks, given["attempt"])
    stop, is_stop_said = live.stop_page, False
    while any(rank.exit_code is None for rank in ranks):
        clock.sleep_us(TURN_US)
        watcher.look(clock.monotonic_us())
        stop.is_broken = watcher.open_case is not None
        recorder.watch_clock()
        if stop.step and not is_stop_said and given["is_first_host"]:
            is_stop_said = True
            recorder.record(
                "planned.begin", body={"reason": "asked to stop", "last_step": stop.step}
            )
    clock.sleep_us(LINGER_US)
    watcher.finish(clock.monotonic_us())
    watcher.close_case(clock.monotonic_us(), "ended")
    _record_end(recorder, ranks, given, lost=spool.lost_count)


def _wait_for_ranks(live: LiveDir, count: int, clock: SystemClock) -> list[AttachedRank]:
    until_us = clock.monotonic_us() + JOIN_US_MAX
    while True:
        joined = live.joined()
        is_over = clock.monotonic_us() > until_us
        # A rank that ended before its peers attached will never be joined by them.
        has_ended = joined and not any(Path(f"/proc/{j.pid}").exists() for j in joined.values())
        if len(joined) >= count or is_over or has_ended:
            return [AttachedRank(live, local, joined[local]) for local in sorted(joined)]
        clock.sleep_us(10 * TURN_US)


def _record_start(recorder: Recorder, ranks: Sequence[AttachedRank], given: dict[str, Any]) -> None:
    if given["is_first_host"]:
        if given["is_new_run"]:
            body = {"command": given["command"], "world": given["world"], "spares": 0, "mode": "attach"}  # fmt: skip
            recorder.record("run.start", body={**body, "host": given["host"], "launcher": given["launcher"], "hang_floor_us": given["hang_after_us"]})  # fmt: skip
        recorder.record("attempt.start", body={"world": given["world"]})
    pids = {str(rank.rank): rank.pid for rank in ranks}
    recorder.record(
        "annotation",
        domain=[{"kind": "host", "id": given["host"]}],
        body={"text": "the ranks of a host attached", "host": given["host"], "pids": pids, "launcher": given["launcher"]},
    )  # fmt: skip
    for warning in given["warnings"]:
        recorder.record("annotation", body={"text": "warning", "warning": warning})
    for rank in ranks:
        recorder.record(
            "exposure.join", devices=1, ranks=(rank.rank,), body={"rank": rank.rank, "host": given["host"]}
        )  # fmt: skip


def _record_end(
    recorder: Recorder, ranks: Sequence[AttachedRank], given: dict[str, Any], *, lost: int
) -> None:
    recorder.close_chunk()
    codes = {rank.rank: rank.exit_code for rank in ranks}
    for rank in ranks:
        recorder.record(
            "exposure.leave", devices=1, ranks=(rank.rank,), body={"rank": rank.rank, "host": given["host"]}
        )  # fmt: skip
    plain = {str(rank): None if code == ENDED_WITHOUT_WORD else code for rank, code in codes.items()}  # fmt: skip
    body: dict[str, Any] = {"reason": "the ranks of this host ended", "exit_codes": plain}
    if lost:
        body["events_lost"] = lost
    if not given["is_first_host"]:
        recorder.record("annotation", body={"text": "the ranks of a host ended", **body})
        return
    recorder.record("attempt.end", body=body)
    code = next((c for c in codes.values() if c), 0)
    recorder.record("run.end", body={"exit_code": None if code == ENDED_WITHOUT_WORD else code})


if __name__ == "__main__":
    main()
