"""The first generation: from the script's own state, or from the newest checkpoint that still holds.

A run that resumes is a restore like any other: the bytes are hashed, a step is run twice, and only then do new steps
follow. A checkpoint that does not hold is passed over for the next older one, and never tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.base.errors import RecoveryError
from lastgood.base.units import format_duration
from lastgood.recovery.messages import ReplayOutcome, VerifyMode
from lastgood.training import control
from lastgood.training.checkpoints import Checkpoint, list_checkpoints
from lastgood.training.processes import describe_exit

if TYPE_CHECKING:
    from lastgood.training.supervisor import Supervisor


class Startup:
    """Assigns generation 1, or the first generation whose checkpoint holds."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Assign at once."""
        self._supervisor = supervisor
        self._generation = 0
        options = supervisor.options
        self._untried: list[Checkpoint] = []
        if options.checkpoint_dir is not None and options.checkpoint_dir.exists():
            self._untried = list(list_checkpoints(options.checkpoint_dir, world=options.ranks))
        self._has_candidates = bool(self._untried)
        self._checkpoint: Checkpoint | None = None
        self._restored: dict[int, control.StateRestored] = {}
        self._replayed: dict[int, control.StepReplayed] = {}
        self._parked = 0
        self._is_leaving = False
        self._assign()

    def _assign(self) -> None:
        supervisor = self._supervisor
        self._generation += 1
        self._restored, self._replayed, self._parked, self._is_leaving = {}, {}, 0, False
        self._has_proceeded = False
        self._began_us = supervisor.now_us()
        supervisor.raised.clear()
        self._checkpoint = self._untried.pop(0) if self._untried else None
        plan = None
        if self._checkpoint is not None:
            step = self._checkpoint.step
            plan = control.Plan(
                tier="checkpoint",
                mode=VerifyMode.REPEAT.value,
                restore_step=step,
                target_step=step,
                digest=self._checkpoint.digest,
                locator=str(self._checkpoint.path),
            )
        elif self._has_candidates:
            raise RecoveryError(
                "no checkpoint holds",
                where=str(supervisor.options.checkpoint_dir),
                found="every checkpoint failed its digest or its replay",
                needs="one that is whole, or an empty folder to start over",
                next="name another --checkpoint-dir, or move the damaged ones away",
            )
        supervisor.recorder.attempt = self._generation
        workers = {str(rank): name for rank, name in enumerate(supervisor.serving)}
        if self._checkpoint is not None:
            body = {"resumes": self._checkpoint.path.name, "step": self._checkpoint.step}
            supervisor.recorder.record("restore.begin", body=body)
        supervisor.recorder.record(
            "attempt.start",
            body={"world": len(workers), "workers": workers, "pids": supervisor.pids()},
        )
        for rank, name in enumerate(supervisor.serving):
            if self._generation == 1:
                supervisor.recorder.record(
                    "exposure.join", devices=1, ranks=(rank,), body={"worker": name, "rank": rank}
                )
            supervisor.workers[name].channel.send(
                control.Assignment(
                    generation=self._generation, rank=rank, world=len(workers), plan=plan
                )
            )

    def hear(self, message: object) -> None:
        """Take an answer of a rank."""
        match message:
            case control.StateRestored() if message.generation == self._generation:
                self._restored[message.rank] = message
            case control.StepReplayed() if message.generation == self._generation:
                self._replayed[message.rank] = message
            case control.Parked() if message.generation == self._generation:
                self._parked += 1

    def advance(self) -> bool:
        """Move on if the ranks allow it; True when the run may begin."""
        supervisor = self._supervisor
        for name in supervisor.serving:
            code = supervisor.workers[name].exit_code
            if code is not None:
                raise RecoveryError(
                    "a rank ended before the first step",
                    where=name,
                    found=describe_exit(code),
                    needs="all ranks up to the first step",
                    next="look at its output above (or use --log-dir)",
                )
        self._refuse_to_wait_for_ever()
        world = len(supervisor.serving)
        if self._checkpoint is None:
            return self._begin_fresh()
        if self._is_leaving:
            if self._parked == world:
                self._assign()
            return False
        if (
            len(self._restored) == world
            and not self._has_proceeded
            and all(r.is_intact for r in self._restored.values())
        ):
            self._has_proceeded = True
            for name in supervisor.serving:
                supervisor.workers[name].channel.send(control.Proceed(generation=self._generation))
        broken = next((r for r in self._restored.values() if not r.is_intact), None)
        different = next(
            (r for r in self._replayed.values() if r.outcome == ReplayOutcome.DIFFERENT), None
        )
        if broken is not None or different is not None:
            self._give_up(broken.detail if broken is not None else "two runs of one step differ")
        elif len(self._replayed) == world:
            self._resume()
            return True
        return False

    def _refuse_to_wait_for_ever(self) -> None:
        """No loop watches yet: an exception, or ranks that do not get there in time, end the run here."""
        supervisor = self._supervisor
        # A peer's death shows as a group error on the others, so the user's own exception is the one to name.
        raised = sorted(supervisor.raised.items(), key=lambda item: item[1].is_group_error)
        if raised and not self._is_leaving:
            rank, error = raised[0]
            raise RecoveryError(
                "a rank raised before the first new step",
                where=f"rank {rank}",
                found=f"{error.type_name}: {error.message}",
                needs="all ranks up to the first step",
                next="look at its output above (or use --log-dir)",
            )
        if supervisor.now_us() - self._began_us > supervisor.options.launch_limit_us:
            raise RecoveryError(
                "the ranks did not reach the first new step",
                where=f"generation {self._generation}",
                found=f"{len(self._restored)} restored, {len(self._replayed)} replayed, {self._parked} parked "
                f"after {format_duration(supervisor.options.launch_limit_us)}",
                needs=f"all {len(supervisor.serving)}",
                next="raise --launch-limit if they only need longer",
            )

    def _begin_fresh(self) -> bool:
        supervisor = self._supervisor
        is_published = all(
            supervisor.workers[name].slot.generation == self._generation
            and supervisor.workers[name].slot.view().published_step >= 0
            for name in supervisor.serving
        )
        if is_published:
            supervisor.begin_loop(generation=self._generation, step=0)
        return is_published

    def _give_up(self, reason: str) -> None:
        assert self._checkpoint is not None
        supervisor = self._supervisor
        self._is_leaving = True
        self._say_trust("suspect", reason)
        for name in supervisor.serving:
            supervisor.workers[name].channel.send(control.Revoked(generation=self._generation))

    def _resume(self) -> None:
        assert self._checkpoint is not None
        supervisor = self._supervisor
        step = self._checkpoint.step
        outcomes = {message.outcome for message in self._replayed.values()}
        result = "equal" if outcomes == {ReplayOutcome.EQUAL} else "within_tolerance"
        supervisor.recorder.record(
            "verify",
            verification={
                "test": f"run step {step + 1} twice on every rank",
                "result": result,
                "evidence": self._checkpoint.digest,
            },
            body={"step": step, "target": step, "mode": VerifyMode.REPEAT.value},
        )
        self._say_trust("verified", "resumed from it")
        supervisor.begin_loop(generation=self._generation, step=step)
        for name in supervisor.serving:
            supervisor.workers[name].channel.send(
                control.Resumed(generation=self._generation, step=step)
            )

    def _say_trust(self, state: str, reason: str) -> None:
        assert self._checkpoint is not None
        self._supervisor.recorder.record(
            "state.trust",
            body={
                "step": self._checkpoint.step,
                "tier": "checkpoint",
                "state": state,
                "reason": reason,
                "locator": self._checkpoint.path.name,
            },
        )
