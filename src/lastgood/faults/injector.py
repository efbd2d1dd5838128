"""The injector: a process of its own that plays a tape against a live run.

    python -m lastgood.faults.injector --run-dir DIR --tape FILE --log FILE

It shares nothing with the supervisor but the run directory, and its log is its own file that the supervisor
never reads: the one who breaks and the one who has to notice do not talk. Faults fire in the order of the
tape. Each is one line of the log, with wall and monotonic time taken immediately before the effect, so that
detection time can be computed later by somebody who reads both records.

Exit codes: 0 every fault fired, 1 some did not, 2 bad tape or arguments, 3 the run ended or time was up first.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from lastgood.base.clock import Clock, SystemClock, clock_id
from lastgood.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_HELD,
    EXIT_NOT_HELD,
    EXIT_REFUSED,
    LastgoodError,
)
from lastgood.base.units import parse_duration_us
from lastgood.faults.inject import inject
from lastgood.faults.live_run import LiveRun, RunState
from lastgood.faults.process import Identities, Injected, NotInjected
from lastgood.faults.spec import IN_STEP, Fault
from lastgood.faults.tape import Tape, read_tape, tape_digest

LOG_FORMAT = "lastgood-injector-log/1"
ARMED_WAIT_US_MAX = 120_000_000
"""How long the injector stays for the recovery from a fault inside a rank that was the last of its tape."""
POLL_US = 3_000
"""Short against a step, long enough to leave the processor to the ranks."""
PHASE_POLL_US = 300
"""A phase of a recovery may be over in a few milliseconds."""


@dataclass(slots=True)
class _Before:
    """The fault that fired last: what `after_recovered` waits to have been left behind."""

    generation: int = 0
    resumed_step: int | None = None
    is_armed: bool = False
    """It happens inside a rank, some time after the injector gave the word."""


class Player:
    """Plays one tape; `play` returns when the tape or the run or the time is at its end."""

    def __init__(
        self, tape: Tape, *, run: LiveRun, log: IO[bytes], clock: Clock, limit_us: int
    ) -> None:
        """Take everything from outside, the clock included."""
        self._tape, self._run, self._log, self._clock = tape, run, log, clock
        self._identities = Identities()
        self._before = _Before()
        self._start_us = clock.monotonic_us()
        self._deadline_us = self._start_us + limit_us
        self._is_told_to_stop = False

    def stop(self) -> None:
        """End at the next look around."""
        self._is_told_to_stop = True

    def play(self) -> int:
        """Fire every fault of the tape in order; the exit code."""
        self._write({
            "format": LOG_FORMAT, "tape": tape_digest(self._tape), "seed": self._tape.seed, "clock": clock_id(),
            "wall_us": self._clock.wall_us(), "monotonic_us": self._start_us,
        })  # fmt: skip
        code = EXIT_HELD
        for fault in self._tape.expanded():
            if fault.kind in IN_STEP and not fault.when.after_recovered:
                self._note(fault, "left_to_step", state=None)
                continue
            reason = self._wait_until_due(fault)
            if reason:
                code = EXIT_REFUSED
                self._note(fault, "not_fired", state=self._run.state(), detail={"reason": reason})
            elif fault.kind in IN_STEP:
                self._arm(fault)
            elif not self._fire(fault) and code == EXIT_HELD:
                code = EXIT_NOT_HELD
        self._wait_for_armed()
        return code

    def _wait_for_armed(self) -> None:
        """Stay while a rank may still have the fault that was armed last: who waits for the injector waits for it.

        A slow rank takes a while to be worth a recovery. A fault that nothing is done about ends the wait by its limit.
        """
        if not self._before.is_armed:
            return
        until_us = min(self._deadline_us, self._clock.monotonic_us() + ARMED_WAIT_US_MAX)
        while self._clock.monotonic_us() < until_us and not self._is_told_to_stop:
            state = self._run.state()
            if state is not None and (state.is_over or state.generation > self._before.generation):
                return
            self._clock.sleep_us(POLL_US)

    def _wait_until_due(self, fault: Fault) -> str:
        """Wait for the fault's moment; empty, or the reason why it never came."""
        while True:
            if self._is_told_to_stop:
                return "the injector was told to stop"
            if self._clock.monotonic_us() >= self._deadline_us:
                return "time was up"
            state = self._run.state()
            if state is not None:
                if state.is_over:
                    return f"the run is over ({state.phase})"
                self._identities.note(state.ranks)
                if self._is_due(fault, state):
                    return ""
            self._clock.sleep_us(POLL_US if fault.when.phase is None else PHASE_POLL_US)

    def _is_due(self, fault: Fault, state: RunState) -> bool:
        when, rank = fault.when, fault.target.rank or 0
        published = self._run.published_step(rank)
        if when.phase is not None and state.phase != when.phase:
            return False
        if when.after_recovered and not self._is_recovered(state, published, when.settle_steps):
            return False
        if when.t_us is not None:
            return self._clock.monotonic_us() >= self._start_us + when.t_us
        return published is not None and published >= (when.step or 0)

    def _is_recovered(self, state: RunState, published: int | None, settle_steps: int) -> bool:
        """The run goes on in a later generation than the fault before hit, with a spare at hand."""
        is_running = state.phase == "running" and state.spares_parked >= 1
        if not is_running or state.generation <= self._before.generation:
            return False
        if self._before.resumed_step is None:
            self._before.resumed_step = published
        return (
            published is not None and published >= (self._before.resumed_step or 0) + settle_steps
        )

    def _arm(self, fault: Fault) -> None:
        """The rank has the fault in its next step, and writes that down itself."""
        state = self._run.state()
        self._run.arm(fault)
        self._note(fault, "armed", state=state)
        generation = state.generation if state else self._before.generation
        self._before = _Before(generation=generation, is_armed=True)

    def _fire(self, fault: Fault) -> bool:
        state = self._run.state()
        try:
            injected = inject(fault, run=self._run, identities=self._identities, clock=self._clock)
        except NotInjected as error:
            self._note(fault, "failed", state=state, detail={"reason": str(error)})
            return False
        self._note(fault, "fired", state=state, injected=injected)
        self._before = _Before(generation=state.generation if state else self._before.generation)
        return True

    def _note(
        self, fault: Fault, outcome: str, *, state: RunState | None,
        injected: Injected | None = None, detail: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        rank = fault.target.rank
        member = state.ranks.get(rank) if state is not None and rank is not None else None
        self._write({
            "fault": fault.id, "kind": fault.kind, "outcome": outcome, "rank": rank,
            "worker": member.worker if member else None, "pid": member.pid if member else None,
            "generation": state.generation if state else None,
            "published_step": self._run.published_step(rank) if rank is not None else None,
            "wall_us": injected.wall_us if injected else self._clock.wall_us(),
            "monotonic_us": injected.monotonic_us if injected else self._clock.monotonic_us(),
            "detail": injected.detail if injected else detail or {},
        })  # fmt: skip

    def _write(self, record: dict[str, object]) -> None:
        """One line, on the disk before anything else happens: the injector may be killed too."""
        self._log.write(msgspec.json.encode(record) + b"\n")
        self._log.flush()
        os.fsync(self._log.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the injector as a process."""
    parser = argparse.ArgumentParser(
        prog="python -m lastgood.faults.injector",
        description="Play a fault tape against a live run.",
    )
    parser.add_argument(
        "--run-dir", type=Path, required=True, help="directory that the supervisor writes"
    )
    parser.add_argument("--tape", type=Path, required=True, help="event tape (JSON lines)")
    parser.add_argument(
        "--log", type=Path, required=True, help="where the injector writes what it did"
    )
    parser.add_argument("--limit", default="15min", help="give up after this long (default 15min)")
    given = parser.parse_args(arguments)
    try:
        tape, limit_us = read_tape(given.tape), parse_duration_us(given.limit)
        log = given.log.open("xb")
    except FileExistsError:
        sys.stderr.write(f"{given.log}: there is a log already; name another file\n")
        return EXIT_BAD_INPUT
    except (LastgoodError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_INPUT
    with log:
        player = Player(
            tape, run=LiveRun(given.run_dir), log=log, clock=SystemClock(), limit_us=limit_us
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: player.stop())
        return player.play()


if __name__ == "__main__":
    sys.exit(main())
