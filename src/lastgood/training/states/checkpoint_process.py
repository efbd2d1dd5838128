"""The process that writes checkpoints, as the supervisor sees it: started, asked, heard, and ended when it is stuck.

Nothing that happens to it may touch training. A snapshot is pinned only while it is copied, and a helper that is
stopped, dead or too slow then is killed, so the ranks never wait for it for long. Each way in which it fails gives one
answer of kind `failed` with the reason; the next request starts another one.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import SystemClock
from lastgood.base.units import format_duration
from lastgood.signals.reading import ProcessState
from lastgood.training.processes import describe_exit
from lastgood.training.resuming.leftovers import note_session
from lastgood.training.starter import starter_note
from lastgood.training.watching.kernel import sample_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lastgood.training.rundir import RunDir

START_US_MAX = 300_000_000
"""Longest time for its imports."""
COPY_US_MIN, COPY_US_MAX = 5_000_000, 60_000_000
"""Bounds of the time in which a snapshot is pinned: the ranks wait once they have come round to its slot."""
COPY_BYTES_PER_S = 100_000_000
"""A copy slower than this is no copy."""
WRITE_US_MAX = 3_600_000_000
"""Longest time for a checkpoint in all."""
STOPPED_US_MAX = 500_000
"""A helper that somebody stopped is given this long to go on."""
SILENT_US_MAX = 120_000_000
"""A helper that neither used the processor nor wrote a byte for this long is stuck."""
_LOOK_EVERY_US = 100_000
RESTART_US_MIN = 2_000_000
"""One that dies before it is ready is not started again at once."""
CLOSE_S_MAX = 5.0


class CheckpointProcess:
    """At most one process, and at most one request."""

    def __init__(self, run: RunDir, command: list[str]) -> None:
        """Nothing is started yet."""
        self.command = command
        self._run = run
        self._clock = SystemClock()
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._is_ready = False
        self._started_us = 0
        self._step: int | None = None
        self._partial: Path | None = None
        self._is_copying = False
        self._requested_us = 0
        self._copy_limit_us = COPY_US_MAX
        self._next_look_us = 0
        self._stopped_since_us: int | None = None
        self._signs: tuple[int, int] = (0, 0)
        self._signs_us = 0
        self._failed_start: str | None = None
        self._verdict: str | None = None
        """Why it was killed from here; None when it ended by itself."""

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        return None if self._process is None else self._process.pid

    def start(self, *, at_once: bool = False) -> None:
        """Start it unless it runs; one that could not even start is tried again only a little later."""
        now_us = self._clock.monotonic_us()
        if self._process is not None:
            if self._process.poll() is None:
                return
            is_early = now_us - self._started_us < RESTART_US_MIN
            if not self._is_ready:
                how = _how_it_ended(self._process.returncode)
                self._failed_start = self._verdict or f"{how} at its start"
            if is_early and not self._is_ready and not at_once:
                return
        self.close()  # a dead one leaves its pipes behind
        self._heard, self._is_ready, self._verdict = b"", False, None
        self._started_us, self._stopped_since_us = now_us, None
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "LASTGOOD_RUN_DIR": str(self._run.root), **starter_note()},
            start_new_session=True,
        )
        note_session(self._run, self._process.pid)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def is_ready(self) -> bool:
        """True once it has imported what it needs: no snapshot is pinned for one that still does."""
        self.start()
        if not self._is_ready and self._is_running():
            self._is_ready = any(answer["kind"] == "ready" for answer in self._answers())
            if self._is_ready:
                self._failed_start = None
            else:
                self._look_at_start()
        return self._is_ready and self._is_running()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def why_not_ready(self) -> str | None:
        """Why the last one ended before it was ready; None once one is, or while the first may still get there."""
        return None if self._is_ready else self._failed_start

    def ask(self, request: dict[str, Any], *, partial: Path, size_bytes: int) -> None:
        """Ask for one checkpoint.

        Args:
            partial: where it writes; what grows there shows that it works.
            size_bytes: how much it copies first.
        """
        self.start(at_once=True)
        assert self._process is not None
        assert self._process.stdin is not None
        self._step, self._partial, self._is_copying = request["step"], partial, True
        self._requested_us = self._signs_us = self._clock.monotonic_us()
        copy_us = COPY_US_MIN + size_bytes * 1_000_000 // COPY_BYTES_PER_S
        self._copy_limit_us = min(COPY_US_MAX, copy_us)
        self._stopped_since_us = None
        with suppress(OSError):  # it died: `answers` reports it
            self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield what it said about the open request; one that died, or had to be killed, has failed."""
        if self._process is None or self._step is None:
            return
        # Looked at first: what a helper said before it died is heard, then its death.
        has_ended = self._process.poll() is not None
        for answer in self._answers():
            if answer["step"] != self._step:
                continue
            if answer["kind"] == "copied":
                self._is_copying = False
            elif answer["kind"] in {"written", "failed"}:
                self._step = None
            yield answer
            if self._step is None:
                return
        if has_ended:
            step, self._step = self._step, None
            # Half a line of the dead must not be the start of its successor's first.
            self._heard = b""
            reason = self._verdict or _how_it_ended(self._process.returncode)
            yield {"kind": "failed", "step": step, "reason": reason}
        else:
            self._look()

    def _answers(self) -> list[dict[str, Any]]:
        """What it has said since the last time, half lines kept for the next."""
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            self._heard += os.read(self._process.stdout.fileno(), 65536)
        *lines, self._heard = self._heard.split(b"\n")
        return [answer for line in lines if (answer := _answer_of(line)) is not None]

    # --- is it stuck? ---------------------------------------------------------------------------

    def _look_at_start(self) -> None:
        now_us = self._clock.monotonic_us()
        if now_us - self._started_us > START_US_MAX:
            self._kill(f"the helper was not ready after {format_duration(START_US_MAX)}")
        else:
            self._look_whether_stopped(now_us)

    def _look(self) -> None:
        """Kill it when it is stopped, too slow, or shows no sign of work."""
        now_us = self._clock.monotonic_us()
        spent_us = now_us - self._requested_us
        if self._is_copying and spent_us > self._copy_limit_us:
            self._kill(
                f"the helper had not copied the snapshot after {format_duration(self._copy_limit_us)}"
            )
        elif spent_us > WRITE_US_MAX:
            self._kill(f"the helper had not finished after {format_duration(WRITE_US_MAX)}")
        else:
            self._look_whether_stopped(now_us)

    def _look_whether_stopped(self, now_us: int) -> None:
        if now_us < self._next_look_us or self._process is None:
            return
        self._next_look_us = now_us + _LOOK_EVERY_US
        sample = sample_process(self._process.pid)
        if sample.state is not ProcessState.STOPPED:
            self._stopped_since_us = None
        elif self._stopped_since_us is None:
            self._stopped_since_us = now_us
        elif now_us - self._stopped_since_us >= STOPPED_US_MAX:
            self._kill(f"the helper was stopped for {format_duration(STOPPED_US_MAX)}")
            return
        signs = (sample.cpu_us, _bytes_in(self._partial))
        if signs != self._signs:
            self._signs, self._signs_us = signs, now_us
        elif self._step is not None and now_us - self._signs_us > SILENT_US_MAX:
            self._kill(
                f"the helper neither computed nor wrote for {format_duration(SILENT_US_MAX)}"
            )

    def _kill(self, verdict: str) -> None:
        """End it; a later look finds it dead and says why."""
        if self._process is not None and self._verdict is None:
            self._verdict = f"{verdict}, and was killed"
            self._process.kill()

    def close(self) -> None:
        """End it and release its pipes; one that the kernel holds is not waited for."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_S_MAX)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _how_it_ended(code: int) -> str:
    return f"the helper {'was ' if code < 0 else ''}{describe_exit(code)}"


def _bytes_in(folder: Path | None) -> int:
    """How much lies in a folder that somebody writes to, or takes away, right now."""
    total = 0
    if folder is not None:
        with suppress(OSError):
            for path in folder.rglob("*"):
                with suppress(OSError):
                    total += path.stat().st_size
    return total


def _answer_of(line: bytes) -> dict[str, Any] | None:
    """An answer of the helper; None for anything else that a library wrote to its standard output."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and {"kind", "step"} <= answer.keys() else None
