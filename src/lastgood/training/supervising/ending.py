"""The ways in which a run ends: finished, preempted, escalated, or with ranks that do not agree on the last step."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

from lastgood.base.errors import (
    EXIT_BAD_INPUT,
    EXIT_DO_NOT_REQUEUE,
    EXIT_INTERRUPTED,
    EXIT_REQUEUE,
    BadInput,
    Refused,
)
from lastgood.base.units import format_duration
from lastgood.recovery import messages
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.reading import Phase
from lastgood.training import control
from lastgood.training.lingering import Lingering, RankAtEnd
from lastgood.training.states.checkpointing import LAST_CHECKPOINT_US
from lastgood.training.supervising.late_deaths import SIGNAL_BASE, LateDeaths
from lastgood.training.teardown import code_of_end, code_of_leaver, torn_down

if TYPE_CHECKING:
    from lastgood.training.states.checkpointing import Checkpointing
    from lastgood.training.supervising.supervisor import Supervisor

STEP_END_US = 10_000_000
"""How long a step in progress may take to end after a notice; then the newest finished step is what is kept."""
_BEHIND_LAST = "behind the last step"
"""How a remark begins on a notice that comes when nothing is left to stop; `cli/live` says those."""
_REPLAYED = frozenset({Phase.HELD, Phase.RESTORING, Phase.FINISHED})
_BEHIND = {"name": "the script behind its loop", "state": "stall"}


class Ending:
    """Looks once a turn whether the run is over, and says with which code."""

    def __init__(self, supervisor: Supervisor, checkpointing: Checkpointing) -> None:
        self._supervisor = supervisor
        self._checkpointing = checkpointing
        self._deaths = LateDeaths(supervisor)
        self._lingering = Lingering(
            supervisor.recorder,
            limits=supervisor.options.limits,
            stacks=supervisor.run_dir.stacks,
        )
        self._torn_down: set[str] = set()
        self._reason: str | None = None
        self._code = EXIT_REQUEUE
        self._noticed_us = 0
        self._is_signal = False
        """True where a signal is the reason: it asks for the end, and the scripts may be at it already."""
        self._is_told = False
        self._finished_us: int | None = None
        self.is_finishing = False
        """True once every rank has done its last step: from here on an exit is no fault."""

    @property
    def is_noticed(self) -> bool:
        """True after a preemption notice."""
        return self._reason is not None

    @property
    def code(self) -> int:
        """The exit code that a notice asks for: requeue me, or interrupted by a person."""
        return self._code

    def notice(self, number: int) -> None:
        """Remember a signal; acted upon in the next turn. A second Ctrl-C ends the run at once."""
        if self._reason is None:
            self._reason = signal.Signals(number).name
            self._code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_REQUEUE
            self._noticed_us = self._supervisor.now_us()
            self._is_signal = True
        elif number == signal.SIGINT:
            self._supervisor.exit_code = EXIT_INTERRUPTED

    def end_for(self, reason: str, *, code: int) -> None:
        """End the run as after a notice, for another reason."""
        if self._reason is None:
            self._reason, self._code = reason, code
            self._noticed_us = self._supervisor.now_us()

    def advance(self) -> None:
        """Set the exit code when the run is over."""
        supervisor = self._supervisor
        assert supervisor.state is not None
        if supervisor.state.phase is LoopPhase.ESCALATED:
            supervisor.exit_code = EXIT_DO_NOT_REQUEUE
        elif self._reason is not None and not self._are_steps_done():
            self._stop(self._reason)
        elif self.is_finishing:
            self._wait_for_exits()
        elif supervisor.state.phase is LoopPhase.RUNNING and supervisor.finished:
            self._refuse_uneven_data()
            if len(supervisor.finished) == supervisor.options.ranks:
                self._finish()
        if self._reason is not None and supervisor.exit_code is None and self._are_steps_done():
            self._bound_the_ends(self._reason)

    def _are_steps_done(self) -> bool:
        """Whether a signal came when every rank had done its last step by itself: then nothing is left to stop."""
        supervisor = self._supervisor
        if not self._is_signal or supervisor.last_step is not None:
            return False
        has_all = len(supervisor.finished) == supervisor.options.ranks
        return self.is_finishing or (supervisor.is_running and has_all)

    def _bound_the_ends(self, reason: str) -> None:
        """The scripts end by themselves, and their code is the run's, unless they take longer than a notice gives."""
        supervisor = self._supervisor
        grace_us = supervisor.options.preemption_grace_us
        if not self._is_told:
            self._is_told = True
            text = f"{_BEHIND_LAST} came {reason}: every step is done, and the scripts have {format_duration(grace_us)} to end"
            supervisor.recorder.record("annotation", body={"text": text})
        elif supervisor.now_us() - self._noticed_us > grace_us:
            text = f"{_BEHIND_LAST} the scripts have not ended within {format_duration(grace_us)} of {reason}: they are ended now"
            supervisor.recorder.record("annotation", body={"text": text})
            supervisor.exit_code = self._code

    def refuse(self, refusal: control.ScriptRefused) -> NoReturn:
        """End the run with what a rank refused, and with a checkpoint of what was trained, if there is time."""
        supervisor = self._supervisor
        if supervisor.has_gone_on:
            self._checkpointing.keep_newest()
        kind = BadInput if refusal.exit_code == EXIT_BAD_INPUT else Refused
        error = kind(refusal.text)
        if supervisor.exit_code == EXIT_INTERRUPTED:  # the text is said all the same
            error.exit_code = EXIT_INTERRUPTED
        raise error

    def _refuse_uneven_data(self) -> None:
        """A rank without a further batch, while another is in a later step: no recovery can mend that."""
        supervisor = self._supervisor
        left = supervisor.leavers.left
        at_end = {r: step for r, step in supervisor.finished.items() if r not in left}
        if not at_end:
            return
        first_rank, last_step = min(at_end.items(), key=lambda item: item[1])
        for rank, name in enumerate(supervisor.serving):
            view = supervisor.workers[name].slot.view()
            # A rank that is held replayed a step, perhaps the one behind the end: it has not gone into it.
            step = at_end.get(rank, 0 if view.phase in _REPLAYED else view.step)
            if supervisor.last_step is None and step > last_step:
                raise BadInput(
                    "the ranks have different numbers of batches",
                    where=f"rank {first_rank}",
                    found=f"no batch after step {last_step}, while rank {rank} is in step {step}",
                    needs="as many batches on every rank",
                    next="use DistributedSampler, or drop_last=True, or run.batches(steps=N)",
                )

    def _finish(self) -> None:
        """Every rank is done: write the last checkpoint, then let the scripts go on behind their loops."""
        supervisor = self._supervisor
        now_us = supervisor.now_us()
        if self._finished_us is None:
            self._finished_us = now_us
        is_late = now_us - self._finished_us > LAST_CHECKPOINT_US
        last_step = supervisor.watch.next_step - 1
        is_assessed = all(
            supervisor.workers[name].slot.view().published_step <= last_step
            for name in supervisor.serving
        )
        if not is_assessed or not (self._checkpointing.write_last() or is_late):
            return
        self.is_finishing = True
        supervisor.recorder.record("section.begin", body=dict(_BEHIND))
        for name in supervisor.serving:
            supervisor.workers[name].channel.send(control.FinishAcknowledged())

    def close(self) -> None:
        """Release what looks after ranks that do not end."""
        self._lingering.close()

    def _ranks_at_end(self) -> list[RankAtEnd]:
        supervisor = self._supervisor
        found = []
        for rank, name in enumerate(supervisor.serving):
            worker = supervisor.workers[name]
            path = supervisor.run_dir.status(name)
            found.append(RankAtEnd(rank, name, worker.pid, worker.exit_code, path, worker.kill))
        return found

    def _wait_for_exits(self) -> None:
        supervisor = self._supervisor
        self._lingering.look(self._ranks_at_end, supervisor.now_us())
        codes = {rank: self._code_of(rank, name) for rank, name in enumerate(supervisor.serving)}
        if self._deaths.take({rank: code for rank, code in codes.items() if code is not None}):
            # The others still work behind their loops: without a word that time would be nobody's.
            supervisor.recorder.record("section.begin", body=dict(_BEHIND))
        if None not in codes.values():
            supervisor.recorder.record("section.end", body=dict(_BEHIND))
            # Some launchers send a notice to the ranks too, and it ends those that are still at work.
            is_cut_off = self._is_signal and self._deaths.code > SIGNAL_BASE
            supervisor.exit_code = self._code if is_cut_off else self._deaths.code

    def _code_of(self, rank: int, name: str) -> int | None:
        """The exit code of a rank; one that a signal ended in Python's own teardown was through, which is said once."""
        supervisor = self._supervisor
        ended = supervisor.workers[name].exit_code
        code = code_of_end(ended, supervisor.run_dir.status(name))
        if ended is None and name in self._lingering.given_up:
            return code_of_leaver(supervisor.run_dir.status(name))
        if ended is not None and code != ended and name not in self._torn_down:
            self._torn_down.add(name)
            body = torn_down(rank, name, ended=ended, counts_as=code)
            supervisor.recorder.record("annotation", ranks=(rank,), body=body)
        return code

    def _stop(self, reason: str) -> None:
        """Stop all ranks behind the same step if they get there soon, write a checkpoint, and end."""
        supervisor = self._supervisor
        assert supervisor.state is not None
        supervisor.tell_loop(messages.StopRequested(reason))
        waited_us = supervisor.now_us() - self._noticed_us
        if supervisor.last_step is None and supervisor.state.phase is LoopPhase.RUNNING:
            has_checkpoints = supervisor.options.checkpoint_dir is not None
            body = {"reason": reason, "has_checkpoints": has_checkpoints}
            supervisor.recorder.record("planned.begin", body=body)
            supervisor.finish_after(1)
        has_stopped = len(supervisor.finished) == supervisor.options.ranks
        is_enough = has_stopped or waited_us > STEP_END_US
        if (is_enough and self._checkpointing.write_last()) or (
            waited_us > supervisor.options.preemption_grace_us
        ):
            supervisor.exit_code = self._code
