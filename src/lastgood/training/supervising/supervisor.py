"""The supervisor of one host: starts the ranks, watches them, and carries out what the recovery loop decides.

It never imports torch, so nothing that hangs a rank hangs it. All decisions are in `recovery` and `signals`; here is
the edge: processes, sockets, files and the clock. One thread, one whole turn every 10 ms, and at once when anything is
heard but an answer within a recovery, which is taken by itself; beside it only `life_lock` waits.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from lastgood.base.errors import LastgoodError
from lastgood.recovery import loop, messages
from lastgood.recovery.crew import Standing
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.liveness import is_cascade
from lastgood.signals.reading import Symptom, Verdict
from lastgood.training import control
from lastgood.training.processes import WorkerProcess
from lastgood.training.resuming.interrupted import Resumption
from lastgood.training.resuming.life import LifePage
from lastgood.training.slot import ControlPage
from lastgood.training.states.checkpointing import Checkpointing
from lastgood.training.states.reserving import reserve_snapshots
from lastgood.training.states.striping import stripe_count
from lastgood.training.supervising.beginning import Beginning
from lastgood.training.supervising.effects import Effects
from lastgood.training.supervising.ending import Ending
from lastgood.training.supervising.hearing import raised_of, wait_for_workers
from lastgood.training.supervising.launch import hear_script_error, launch_workers
from lastgood.training.supervising.leaving import Leavers
from lastgood.training.supervising.ledger_watch import LedgerWatch
from lastgood.training.supervising.shutdown import end_orphans, end_processes, record_gone
from lastgood.training.supervising.startup import Startup
from lastgood.training.watching.fatal import FatalErrors, hear_fatal_errors
from lastgood.training.watching.noise import hear_noise
from lastgood.training.watching.pauses import notice_pause
from lastgood.training.watching.remarks import Remarks
from lastgood.training.watching.sections import Sections
from lastgood.training.watching.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood.contract.model import FailureContract
    from lastgood.signals.reading import Raised
    from lastgood.training.options import RunOptions
    from lastgood.training.recorder import Recorder
    from lastgood.training.rundir import RunDir

TURN_S_MAX = 0.01
LIVENESS_EVERY_US = 40_000


class Supervisor:
    """One training run on this host."""

    def __init__(
        self,
        options: RunOptions,
        contract: FailureContract | None,
        recorder: Recorder,
        *,
        run_dir: RunDir,
        resumption: Resumption | None = None,
        on_turn: Callable[[Supervisor], None] | None = None,
    ) -> None:
        """Nothing is started yet; this process owns `run_dir`, and `on_turn` is called once a turn."""
        self.options = options
        self.contract = contract
        self.recorder = recorder
        self.clock = recorder.clock
        self.run_dir = run_dir
        self.resumption = resumption or Resumption()
        self.life = LifePage(run_dir.life)
        recorder.follow(self.life)
        self.page = ControlPage(self.run_dir.control, create=True)
        self.page.wall_offset_us = recorder.clock.offset_us
        self.watch = Watch(options.limits, recovery=contract.spec.recovery if contract else None)
        self.workers: dict[str, WorkerProcess] = {}
        self.serving: tuple[str, ...] = ()
        self.spares: list[str] = []
        self.raised: dict[int, Raised] = {}
        self.finished: dict[int, int] = {}
        """Rank -> the step after which it had no further batch, or left its loop."""
        self.script_errors: set[str] = set()
        """What scripts raised before lastgood.start."""
        self.sections = Sections(self)
        self._remarks, self.leavers = Remarks(self), Leavers()
        self.beginning = Beginning(self)
        self.refusal: control.ScriptRefused | None = None
        self.state: loop.LoopState | None = None
        self.exit_code: int | None = None
        self.tolerance = self.resumption.tolerance
        """Largest difference of a replay that is no fault, as hex text; None = every replay must be bit-equal."""
        self.started_count = 0
        self.has_turned = False
        """True once the page of this process tells of a turn of its own."""
        self._state_bytes = self._snapshot_bytes = 0
        self._startup: Startup | None = None
        self.has_gone_on = False
        """True once new steps were allowed."""
        self._is_broken = False
        """True once the supervisor itself failed: its snapshots are not to blame."""
        self._effects = Effects(self)
        self.checkpointing = Checkpointing(self)
        self.fatal_errors = FatalErrors(run_dir.stacks)
        self.ending = Ending(self, self.checkpointing)
        self._ledger_watch = LedgerWatch(self)
        self._on_turn = on_turn
        self.last_step: int | None = None
        """No step follows this one, once that is decided."""
        self._next_liveness_us = self._next_turn_us = 0
        self._reaped: set[str] = set()
        self._talking: list[WorkerProcess] = []
        """Workers that had something to say when this turn began."""
        self._is_due = True  # something was heard that a whole turn must look at now

    # --- the whole run ----------------------------------------------------------------------------

    def run(self) -> int:
        """Run the job to its end; returns the exit code of `lastgood run`."""
        previous = {s: signal.signal(s, self._notice) for s in noticed_signals()}
        try:
            self.checkpointing.prepare()
            ended = launch_workers(self)
            if ended is not None:
                return ended
            self._reserve()
            self._startup = Startup(self)
            while self.exit_code is None:
                self._serve()
                self.raise_refusal()
            return self.exit_code
        except LastgoodError:
            raise
        except BaseException:
            self._is_broken = True
            raise
        finally:
            self._end()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _reserve(self) -> None:
        reserve_snapshots(
            self.run_dir,
            ranks=self.options.ranks,
            state_bytes=self._snapshot_bytes,
            stripes=self.stripe_count,
        )

    def _notice(self, number: int, _frame: object) -> None:
        self.ending.notice(number)

    def _end(self) -> None:
        """End every process that this run started, and remove its live files."""
        self.checkpointing.close()
        end_processes(self)
        self._effects.close()
        self.life.close()
        if self.keeps_live_files:
            self.run_dir.release()
        else:
            self.run_dir.remove()

    @property
    def keeps_live_files(self) -> bool:
        """True when the next start of this run may need them: it broke, or never came to take up what it found."""
        return self._is_broken or (self.resumption.has_slots and not self.has_gone_on)

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return self.clock.monotonic_us()

    def raise_refusal(self) -> None:
        """End the run with what a rank refused: every other rank would refuse it too."""
        if self.refusal is not None:
            self.ending.refuse(self.refusal)

    # --- one turn ---------------------------------------------------------------------------------

    def wait_for_input(self, limit_s: float = TURN_S_MAX) -> None:
        """Sleep until a worker says something or ends, at most that long."""
        heard = wait_for_workers(self.workers.values(), limit_s)
        self._talking = heard.talking
        self._is_due |= bool(heard.letting_go or heard.ended)
        if heard.letting_go:
            self._effects.preparing.expect_ends(heard.letting_go)

    def _serve(self) -> None:
        notice_pause(self)
        left_s = max(0, self._next_turn_us - self.now_us()) / 1e6
        self.wait_for_input(TURN_S_MAX if self._startup else min(left_s, TURN_S_MAX))
        # What is said to the ranks does not wait for what is written of it.
        with self.recorder.held():
            self._take_turn()

    def _take_turn(self) -> None:
        self.hear_workers()
        if self._startup is not None:
            if self.ending.is_noticed:
                self.exit_code = self.ending.code  # nothing has been trained yet
            elif self._startup.advance():
                self._startup = None
            return
        if self._is_due or self.now_us() >= self._next_turn_us:
            self._look_around()
        self._effects.publish_state()
        if self._on_turn is not None:
            self._on_turn(self)

    def _look_around(self) -> None:
        """Do all that makes a turn a whole one: what nobody says has to be looked for."""
        self.recorder.watch_clock()
        self._collect_steps()
        self._look()
        self._reap()
        self._effects.poll()
        self._effects.standby.poll()
        self.beginning.poll()
        self.checkpointing.poll()
        self._ledger_watch.poll()
        # Before a deadline has passed, time alone changes nothing in the loop.
        until_us = None if self.state is None else self.state.deadline_us
        if until_us is not None and self.now_us() >= until_us:
            self.tell_loop(messages.Tick())
        self.ending.advance()
        self._is_due, self._next_turn_us = False, self.now_us() + int(TURN_S_MAX * 1e6)

    def tell_loop(self, observation: messages.Observation) -> None:
        """Give the loop one observation and carry out what it answers."""
        assert self.state is not None, "the loop begins when the first generation runs"
        self.state, actions = loop.step(self.state, observation, self.now_us())
        for action in actions:
            self.watch.hear(action)
            self._effects.carry_out(action)
        if self.state.phase is LoopPhase.VERIFYING:
            self._effects.let_proceed(self.state.generation)

    def begin_loop(self, *, generation: int, step: int) -> None:
        """The first generation runs: from here on the loop decides."""
        state = self._first_state()
        # A run that was taken up has slots of newer states that nobody had assessed: they count as abandoned.
        trust = state.trust.resumed(generation=generation, step=step, at_us=self.now_us())
        self.state = replace(state, generation=generation, trust=trust if step else state.trust)
        self.begin_generation(generation, step=step)
        self.run_dir.reserve_store(generation + 1)
        self.tell_loop(messages.Progress(step, generation))
        self._tell_spares()

    def take_over_start(self, generation: int) -> None:
        """A start failed before there was a state: the loop begins with nothing published."""
        self.state = replace(self._first_state(), generation=generation)
        self._tell_spares()

    @property
    def is_running(self) -> bool:
        """True while the ranks take new steps."""
        return self.state is not None and self.state.phase is LoopPhase.RUNNING

    @property
    def is_before_first_state(self) -> bool:
        """True while no state of this run was published by all ranks, as far as the loop knows."""
        return self.state is not None and self.state.published_step < 0

    def _first_state(self) -> loop.LoopState:
        return loop.initial_state(
            self.options.ranks,
            self.contract,
            self.serving,
            self.options.spares,
            run=self.options.run_id,
            host=os.uname().nodename,
            case_count=self.resumption.incident_count,
            now_us=self.now_us(),
        )

    def _tell_spares(self) -> None:
        for name in list(self.spares):
            self.tell_loop(messages.SpareReady(name))

    def begin_generation(self, generation: int, *, step: int) -> None:
        """New steps may follow `step` in this generation."""
        self.watch.begin_generation(generation, next_step=step + 1)
        self.has_gone_on = True
        self.page.assessed_step = step
        self.life.begin_generation(generation, step=step)
        self.recorder.attempt = generation
        self.recorder.begin_steps(first=step + 1)

    def abandon_checkpoints(self, step: int) -> None:
        """The run goes on from `step`: checkpoints of newer states belong to a history that is done again."""
        self.checkpointing.abandon_behind(step)

    @property
    def stripe_count(self) -> int:
        """In how many stripes the ranks keep their snapshots."""
        options = self.options
        return stripe_count(options.snapshots, ranks=options.ranks, state_bytes=self._state_bytes)

    # --- what the workers say ---------------------------------------------------------------------

    def hear_workers(self) -> None:
        """Take in what has arrived; what is more than one read can hold wakes the next turn up at once."""
        for worker in self._talking:
            for message in worker.channel.receive():
                self._hear(worker, message)
        hear_fatal_errors(self)

    def hear_all(self, worker: WorkerProcess) -> None:
        """Take in what a worker that has ended still had to say, however much it is."""
        while not worker.channel.is_closed and worker.channel.has_input(0):
            for message in worker.channel.receive():
                self._hear(worker, message)

    def _hear(self, worker: WorkerProcess, message: object) -> None:
        match message:
            case control.Hello():
                worker.introduce(message)
            case control.Ready():
                worker.is_ready = True
                self._state_bytes = max(self._state_bytes, message.state_bytes)
                self._snapshot_bytes = max(self._snapshot_bytes, message.snapshot_bytes)
                if self.state is not None:
                    self._effects.admit_spare(worker)
            case control.NoiseMeasured():
                hear_noise(self, message)
            case control.ScriptRefused():
                if self.state is None or worker.name in self.serving:
                    self.refusal = self.refusal or message
                else:
                    hear_script_error(self, worker, message.text)
            case control.SectionChanged():
                self.sections.hear(worker, message)
            case control.Remark():
                self._remarks.hear(message)
            case control.ScriptFailed():
                hear_script_error(self, worker, message.text)
            case control.Finished():
                self._hear_finished(worker, message)
            case control.StepRaised():
                self._hear_exception(worker, message)
            case control.Parked() | control.StateRestored() | control.StepReplayed():
                if self._startup is not None:
                    self._startup.hear(message)
                else:
                    self._effects.hear(worker, message)
                return  # the loop has taken it: nothing else has to look at it
        self._is_due = True

    def _hear_finished(self, worker: WorkerProcess, message: control.Finished) -> None:
        if message.generation != self.recorder.attempt or worker.name not in self.serving:
            return
        rank = self.serving.index(worker.name)
        self.finished[rank] = message.step
        if message.is_early:
            self.leavers.leave(rank, exit_code=message.exit_code, now_us=self.now_us())

    def _hear_exception(self, worker: WorkerProcess, message: control.StepRaised) -> None:
        if worker.name not in self.serving or message.generation != self.recorder.attempt:
            return
        rank = self.serving.index(worker.name)
        self.raised.setdefault(rank, raised_of(message, now_us=self.now_us()))
        if not message.is_group_error:
            self.recorder.record(
                "observation",
                ranks=(rank,),
                symptom=Symptom.EXCEPTION.value,
                body={
                    "type": message.type_name,
                    "message": message.message,
                    "trace": message.trace,
                    "where": message.loader or f"in step {message.step}",
                },
            )
        self._next_liveness_us = 0

    # --- detection --------------------------------------------------------------------------------

    def _collect_steps(self) -> None:
        """Assess newly finished steps. Runs before liveness, since lost steps are counted from what is known here."""
        assert self.state is not None
        if self.state.phase is not LoopPhase.RUNNING:
            return
        workers = [self.workers[name] for name in self.serving]
        for assessed in self.watch.assess_steps(workers, now_us=self.now_us()):
            finished, began_us = assessed.finished, self.recorder.step_began_us
            step = finished.step
            # A wrong step is recorded too: its time was spent, and becomes lost when it is done again.
            self.recorder.step_done(
                step, done_wall_us=finished.done_wall_us, loss=finished.mean_loss
            )
            if assessed.correctness.verdict in (Verdict.FAILED, Verdict.UNKNOWN):
                # The state before was right, and nobody knows when in this step it went wrong: so from its begin.
                wrong = replace(assessed.correctness, onset_us=began_us)
                self.tell_loop(messages.Progress(step, self.state.generation))
                self.tell_loop(messages.Assessed(wrong))
                return
            self.page.assessed_step = step
            self.life.assess(step)
            self.tell_loop(messages.Progress(step, self.state.generation))
            for remark in (assessed.correctness, assessed.performance):
                if remark.verdict in (Verdict.SUSPECT, Verdict.FAILED):
                    self.tell_loop(messages.Assessed(remark))
            if self.state.phase is not LoopPhase.RUNNING:
                return

    def _look(self) -> None:
        """Ask whether the ranks move: every 40 ms, and at once when a rank ended or raised."""
        if (
            self.ending.is_finishing
            or self.state is None
            or self.state.phase is LoopPhase.ESCALATED
        ):
            return
        notice_pause(self)  # also one in the middle of a turn
        now_us = self.now_us()
        has_ended = any(self.workers[name].exit_code is not None for name in self.serving)
        if now_us < self._next_liveness_us and not has_ended:
            return
        self._next_liveness_us = now_us + LIVENESS_EVERY_US
        if not self._effects.is_generation_up:
            return
        self.hear_last_words()
        self.sections.look()
        workers = [self.workers[name] for name in self.serving]
        verdict = self.leavers.look(self, workers, now_us=now_us)
        if verdict is None and not self.leavers.has_ending:
            verdict = self.watch.assess_liveness(workers, self.raised, now_us=now_us)
        if verdict is not None and verdict.verdict is not Verdict.OK:
            if verdict.verdict is Verdict.FAILED and self.is_running:
                for rank in verdict.culprits:
                    workers[rank].note("; ".join(verdict.evidence))
            self.tell_loop(messages.Assessed(verdict))

    def hear_last_words(self) -> None:
        """Take in what a rank said right before it ended: its error says more than its exit code."""
        for name in self.serving:
            worker = self.workers[name]
            if worker.exit_code is not None:
                self.hear_all(worker)

    def _reap(self) -> None:
        """Tell the loop of every process that has ended."""
        for worker in list(self.workers.values()):
            code = worker.exit_code
            if code is None or worker.name in self._reaped:
                continue
            rank = self.serving.index(worker.name) if worker.name in self.serving else None
            if rank is not None and (self.ending.is_finishing or self.leavers.is_ending(rank)):
                continue
            if rank is not None and self._is_unseen(worker):
                continue
            self._reaped.add(worker.name)
            self.hear_all(worker)
            record_gone(self, worker, code)
            is_echo = rank is not None and self._is_cascade(rank, code)
            self.tell_loop(messages.WorkerGone(worker.name, is_echo, code))
            self._effects.forget(worker)
            end_orphans(self, worker)

    def _is_unseen(self, worker: WorkerProcess) -> bool:
        """Whether a rank ended after this turn's look: the next one says more of it than its mere end."""
        assert self.state is not None
        is_active = self.state.crew.of(worker.name) is Standing.ACTIVE
        return self.is_running and is_active and not self.state.is_stopping

    def _is_cascade(self, rank: int, exit_code: int) -> bool:
        """Whether a rank ended of a peer's end: in a collective of its own code, or done and called back in vain."""
        is_done = rank in self.finished and exit_code >= 0
        return is_done or is_cascade(self.raised.get(rank), exit_code)

    # --- the end ----------------------------------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """Process of each rank, for a person who wants to look at one."""
        return {
            str(rank): self.workers[name].pid
            for rank, name in enumerate(self.serving)
            if name in self.workers
        }

    def finish_after(self, more_steps: int) -> None:
        """End the training loop on every rank so many steps behind the furthest one."""
        furthest = max(self.workers[name].slot.view().step for name in self.serving)
        self.last_step = furthest + more_steps
        for name in self.serving:
            self.workers[name].channel.send(control.StopAfter(step=self.last_step))


def noticed_signals() -> list[signal.Signals]:
    """What ends a run in order: also a terminal that is closed, unless nohup said that it does not matter."""
    found = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found
