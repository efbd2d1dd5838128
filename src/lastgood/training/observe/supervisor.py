"""The supervisor of a job whose script is not changed.

In observe mode it starts the ranks as torchrun would, watches, records, and ends when they have ended: it sends a rank
nothing but the signals that it was sent itself. In act mode it takes the hard path: after the stacks it kills every
rank, and starts all of them again on a fresh port, so that the script resumes from its own checkpoints.
"""

from __future__ import annotations

import select
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from lastgood.base.clock import SystemClock
from lastgood.base.errors import EXIT_DO_NOT_REQUEUE, EXIT_INTERRUPTED, EXIT_REQUEUE
from lastgood.recovery.escalation import last_seen
from lastgood.recovery.messages import Escalate
from lastgood.signals.reading import Symptom
from lastgood.training.lingering import Lingering, RankAtEnd
from lastgood.training.observe.outsiders import Outsiders
from lastgood.training.observe.rank import Attempt, ObservedRank, hold_port
from lastgood.training.observe.restarting import Restarting
from lastgood.training.observe.watcher import Watcher
from lastgood.training.supervising.notify import notify
from lastgood.training.teardown import torn_down

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lastgood.contract.model import FailureContract
    from lastgood.training.observe.case import Case
    from lastgood.training.options import RunOptions
    from lastgood.training.recorder import Recorder
    from lastgood.training.rundir import RunDir

TURN_S_MAX = 0.01
LAST_WORDS_US = 2_000_000
"""After the first rank ended, the others get so long to end of it before a verdict is acted upon."""
KILLED_US_MAX = 5_000_000
"""A killed rank that is not gone after this sits in the kernel; it is recorded and not waited for."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class ObserveSupervisor:
    """One job on this host."""

    def __init__(
        self,
        options: RunOptions,
        contract: FailureContract,
        recorder: Recorder,
        *,
        run_dir: RunDir,
        is_acting: bool,
        on_turn: Callable[[ObserveSupervisor], None] | None = None,
    ) -> None:
        """Nothing is started yet."""
        self.options = options
        self.contract = contract
        self.recorder = recorder
        self.is_acting = is_acting
        self.state = None
        """There is no recovery loop: metrics ask for it."""
        self.spares: list[str] = []
        self.clock = SystemClock()
        self.run_dir = run_dir
        self.watcher = Watcher(
            recorder,
            run=options.run_id,
            limits=options.limits,
            stacks=self.run_dir.stacks,
            world=options.ranks,
        )
        self.ranks: list[ObservedRank] = []
        self._outsiders = Outsiders(self.run_dir) if options.mode == "drill" else None
        self._restarting = Restarting(contract)
        self._pending: list[Case] = []
        """Incidents that were acted upon and wait for the first step of the new attempt."""
        self._torn_down: set[str] = set()
        self._lingering = Lingering(
            recorder, limits=options.limits, stacks=self.run_dir.stacks, may_end=is_acting
        )
        self._port: socket.socket | None = None
        """Keeps the port of the present attempt."""
        self._attempt = recorder.attempt - 1
        self._noticed: int | None = None
        self._noticed_us = 0
        self._is_notice_said = False
        self._insisted: int | None = None
        """The second signal of a person, after which the ranks were killed."""
        self._is_insistence_said = False
        self._on_turn = on_turn

    def run(self) -> int:
        """Run the job to its end; returns the exit code of `lastgood run`."""
        previous = {number: signal.signal(number, self._notice) for number in _SIGNALS}
        try:
            self._start()
            while True:
                self._wait()
                now_us = self.clock.monotonic_us()
                self.watcher.look(now_us)
                self.recorder.watch_clock()
                if self._on_turn is not None:
                    self._on_turn(self)
                code = self._turn(now_us)
                if code is not None:
                    return code
        finally:
            self._end()
            for number, handler in previous.items():
                signal.signal(number, handler)

    # --- starts -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._attempt += 1
        if self._port is not None:
            self._port.close()
        self._port = hold_port()
        attempt = Attempt(
            number=self._attempt,
            port=int(self._port.getsockname()[1]),
            restarts_max=self._restarting.limit if self.is_acting else 0,
            is_acting=self.is_acting,
        )
        self.ranks = [
            ObservedRank(rank, attempt=attempt, options=self.options, run=self.run_dir)
            for rank in range(self.options.ranks)
        ]
        self.recorder.attempt = self._attempt
        names = {str(rank.rank): rank.name for rank in self.ranks}
        pids = {str(rank.rank): rank.pid for rank in self.ranks}
        self.recorder.record(
            "attempt.start", body={"world": len(self.ranks), "workers": names, "pids": pids}
        )
        for rank in self.ranks:
            self._record_exposure("exposure.join", rank)
        self.watcher.begin_attempt(self.ranks, self._attempt)
        if self._outsiders is not None:
            self._outsiders.say(self._attempt, self.ranks)

    def _record_exposure(self, kind: str, rank: ObservedRank) -> None:
        self.recorder.record(
            kind, devices=1, ranks=(rank.rank,), body={"worker": rank.name, "rank": rank.rank}
        )

    # --- one turn ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Sleep one turn; a signal ends it early."""
        with suppress(InterruptedError):
            select.select([], [], [], TURN_S_MAX)

    def _turn(self, now_us: int) -> int | None:
        """The exit code when the job is over."""
        if self._outsiders is not None:
            self._outsiders.say_steps(self.ranks)
        if self._noticed is not None:
            self._say_notice(self._noticed)
            self._end_grace(now_us)
        self._look_for_lingering(now_us)
        codes = [rank.exit_code for rank in self.ranks]
        self._say_torn_down()
        if all(code is not None for code in codes):
            self.watcher.finish(now_us)
            if self._noticed is None and self.is_acting and self._may_restart():
                return self._restart(now_us)
            return self._over(now_us)
        self._close_after_restart(now_us)
        is_hit = self.watcher.is_diagnosed and not self.watcher.has_passed
        if self.is_acting and is_hit and self._noticed is None and self._had_last_words(now_us):
            return self._restart(now_us)
        return None

    def _look_for_lingering(self, now_us: int) -> None:
        """Name ranks that do not end behind their script, and in act mode end those of which only Python is left."""
        self._lingering.look(lambda: [at_end(rank) for rank in self.ranks], now_us)
        for rank in self.ranks:
            rank.is_given_up = rank.name in self._lingering.given_up

    def _say_torn_down(self) -> None:
        """Say once of a rank that a signal ended it behind the end of its script: no incident, and no code of its own."""
        for rank in self.ranks:
            code = rank.process_code
            if code is None or code == rank.exit_code or rank.name in self._torn_down:
                continue
            self._torn_down.add(rank.name)
            body = torn_down(
                rank.rank,
                rank.name,
                ended=code,
                counts_as=rank.exit_code,
                is_counted=self.is_acting,
            )
            self.recorder.record("annotation", ranks=(rank.rank,), body=body)

    def _had_last_words(self, now_us: int) -> bool:
        """Peers of a rank that ended get a moment to say what they saw; a hang gets none."""
        case = self.watcher.open_case
        assert case is not None
        if case.symptom is Symptom.HANG:
            return True
        return now_us - case.detected_us > LAST_WORDS_US

    def _may_restart(self) -> bool:
        """True when a rank failed and none said by its exit code what is to be done."""
        codes = {rank.exit_code for rank in self.ranks}
        return any(codes) and not codes & {EXIT_REQUEUE, EXIT_DO_NOT_REQUEUE}

    def _over(self, now_us: int) -> int:
        """Every rank has ended: say how, and with which code."""
        codes = [self._code_of(rank) or 0 for rank in self.ranks]
        code = job_code(codes, self._first_failed())
        self.watcher.close_case(now_us, "ended", exit_code=code)
        self._close_pending(now_us, "ended", exit_code=code)
        if self._noticed is not None and self.is_acting and code != EXIT_DO_NOT_REQUEUE:
            return EXIT_INTERRUPTED if self._noticed == signal.SIGINT else EXIT_REQUEUE
        if self._insisted is not None and code == 128 + signal.SIGKILL:
            return 128 + self._insisted  # the kill was a person's, and no end of the job's own
        return code

    def _first_failed(self) -> int | None:
        case = self.watcher.open_case
        if case is None or not case.culprits:
            return None
        return self._code_of(self.ranks[case.culprits[0]])

    def _code_of(self, rank: ObservedRank) -> int | None:
        """What counts for the job's code: in observe mode what its launcher would have seen, wherever the process was."""
        return rank.exit_code if self.is_acting else rank.process_code

    # --- act: the hard path -----------------------------------------------------------------------

    def _restart(self, now_us: int) -> int | None:
        """Kill what is left, and start all ranks again, unless the contract's limit is reached."""
        case = self.watcher.open_case
        if case is None:  # every rank ended at once, without a verdict yet
            return self._over(now_us)
        if self.ranks and {r.exit_code for r in self.ranks} & {EXIT_REQUEUE, EXIT_DO_NOT_REQUEUE}:
            self._kill_all(case)
            return self._over(self.clock.monotonic_us())
        reason = self._restarting.refusal(
            case.signature, now_us=now_us, has_progressed=self.watcher.first_step is not None
        )
        if reason is not None:
            reason += last_seen(case.evidence)
        stuck = self._kill_all(case)
        if stuck and reason is None:
            reason = (
                f"{', '.join(stuck)} cannot be killed: the kernel holds it, and its device with it"
            )
        if reason is not None:
            return self._escalate(case, reason)
        self.recorder.record("attempt.end", body={"reason": "fault"})
        for rank in self.ranks:
            self._record_exposure("exposure.leave", rank)
            rank.close()
        self.watcher.hand_over()
        self._pending.append(case)
        self.recorder.record(
            "restore.begin",
            incident=case.id,
            body={"plan": "every rank starts again; the script resumes from its own checkpoints"},
        )
        self._start()
        return None

    def _kill_all(self, case: Case) -> list[str]:
        """Kill every rank; returns those that are still there after a bounded wait."""
        began_us = self.clock.monotonic_us()
        # From the name of the culprit on: the wait for the last words of its peers is part of it.
        named_us = began_us if case.diagnosed_us is None else case.diagnosed_us
        killed = [rank.name for rank in self.ranks if rank.exit_code is None]
        for rank in self.ranks:
            rank.kill()
        until_us = began_us + KILLED_US_MAX
        while self.clock.monotonic_us() < until_us and any(r.exit_code is None for r in self.ranks):
            self.clock.sleep_us(2_000)
        stuck = [rank.name for rank in self.ranks if rank.exit_code is None]
        self.recorder.record(
            "isolate",
            incident=case.id,
            isolate_us=self.clock.monotonic_us() - named_us,
            body={"killed": killed, "parked": [], "unkillable": stuck},
        )
        return stuck

    def _close_after_restart(self, now_us: int) -> None:
        """All ranks did a step of the new attempt: what led to it is over."""
        first = self.watcher.first_step
        if not self._pending or first is None:
            return
        step = None if first.source == "count" else first.step - 1
        body: dict[str, object] = {"numbered_by": first.source}
        if step is None:
            body["lost_steps_unknown"] = "the script does not say which step it resumed from"
        for case in self._pending:
            self.recorder.record(
                "restore",
                incident=case.id,
                body={"step": step, "tier": "script", "numbered_by": first.source},
            )
            self._restarting.recovered(case.signature, now_us=now_us)
        newest = max(case.step for case in self._pending)
        if step is not None:
            body["lost_steps"] = max(0, newest - step)
        self._close_pending(now_us, "restarted", **body)

    def _close_pending(self, now_us: int, outcome: str, **body: object) -> None:
        for case in self._pending:
            kept = self.watcher.hand_over()
            self.watcher.reopen(case)
            self.watcher.close_case(now_us, outcome, **body)
            if kept is not None:
                self.watcher.reopen(kept)
        self._pending = []

    def _escalate(self, case: Case, reason: str) -> int:
        owner = self.contract.spec.recovery.restore.owner
        body = {"reason": reason, "owner": owner, "signature": case.signature}
        self.recorder.record("escalate", incident=case.id, body=body)
        asked = Escalate(
            reason=reason,
            incident=case.id,
            owner=owner,
            transition="restore",
            culprits=case.culprits,
        )
        notify(self.contract, self.recorder, asked, ledger=self.options.ledger)
        now_us = self.clock.monotonic_us()
        self.watcher.close_case(now_us, "escalated", reason=reason)
        self._close_pending(now_us, "escalated", reason=reason)
        return EXIT_DO_NOT_REQUEUE

    # --- signals ----------------------------------------------------------------------------------

    def _notice(self, number: int, _frame: object) -> None:
        """Pass a signal on; the second one of a person ends the ranks."""
        if self._noticed is not None and number in {signal.SIGINT, signal.SIGTERM}:
            self._insisted = self._insisted or number
            for rank in self.ranks:
                rank.kill()
            return
        if self._noticed is None:
            self._noticed, self._noticed_us = number, self.clock.monotonic_us()
            self.watcher.is_leaving = True
        for rank in self.ranks:
            rank.signal(number)

    def _say_notice(self, number: int) -> None:
        if not self._is_notice_said:
            self._is_notice_said = True
            body = {"reason": signal.Signals(number).name, "passed_on": True}
            self.recorder.record("planned.begin", body=body)
        if self._insisted is not None and not self._is_insistence_said:
            self._is_insistence_said = True
            text = f"a second signal ({signal.Signals(self._insisted).name}): every rank was killed"
            self.recorder.record("annotation", body={"text": text})

    def _end_grace(self, now_us: int) -> None:
        """After a notice, in act mode, ranks that do not end within the grace are killed."""
        if self.is_acting and now_us - self._noticed_us > self.options.preemption_grace_us:
            for rank in self.ranks:
                rank.kill()

    def _end(self) -> None:
        """Leave nothing behind. In observe mode a fault of this process costs the records and not the job: it waits."""
        self._lingering.close()
        for rank in self.ranks if self.is_acting else ():
            rank.kill()
        for rank in self.ranks:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(timeout=KILLED_US_MAX / 1e6 if self.is_acting else None)
            self._record_exposure("exposure.leave", rank)
            with suppress(ValueError, BufferError):
                rank.close()
        if self._port is not None:
            self._port.close()


def at_end(rank: ObservedRank) -> RankAtEnd:
    """The rank as it is looked at behind the end of its script."""
    end = rank.process.kill
    return RankAtEnd(rank.rank, rank.name, rank.pid, rank.process_code, rank.ending_path, end)


def job_code(codes: list[int], culprit: int | None) -> int:
    """The job's own exit code: 93 and 75 of any rank first, else the culprit's, else the first that is not 0."""
    for wanted in (EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE):
        if wanted in codes:
            return wanted
    found = culprit or next((code for code in codes if code), 0)
    return 128 - found if found < 0 else found
