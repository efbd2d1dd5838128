"""When a checkpoint is due in a live run, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lastgood.base.errors import EXIT_INTERRUPTED
from lastgood.recovery.policy import LoopPhase
from lastgood.training.slot import NOTHING_PINNED
from lastgood.training.states.catalogue import read_headers, slot_candidates
from lastgood.training.states.checkpoints import CheckpointKeeper, checkpoint_candidates

if TYPE_CHECKING:
    from lastgood.recovery.messages import Candidate
    from lastgood.training.supervising.supervisor import Supervisor


EARLY_US = 60_000_000
"""With an interval below this the helper is started beside the ranks: its imports take as long as theirs."""
LAST_CHECKPOINT_US = 60_000_000
"""How long a run that ends, finished or for a refusal, waits for a checkpoint of what it has."""
_POLL_US = 20_000
LATE: Final = "a checkpoint is due and is not begun"


class Checkpointing:
    """Has checkpoints written every so often, from the snapshots, without stopping the ranks."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Without a checkpoint folder this does nothing."""
        self._supervisor = supervisor
        options = supervisor.options
        self._keeper: CheckpointKeeper | None = None
        if options.checkpoint_dir is not None:
            self._keeper = CheckpointKeeper(
                options.checkpoint_dir,
                run=supervisor.run_dir,
                world=options.ranks,
                kept=options.checkpoints_kept,
            )
        self._due_us: int | None = None
        self._told: str | None = None
        self._late: str | None = None
        """Why the checkpoint that is due now has not been begun; None while it is not late."""
        self._last_step = 0
        self._has_failed_last = False

    def prepare(self) -> None:
        """Start the helper beside the ranks, where the first checkpoint is due soon."""
        if self._keeper is not None and self._supervisor.options.checkpoint_every_us < EARLY_US:
            self._keeper.start()

    def poll(self) -> None:
        """Ask for a checkpoint when one is due; record how the last one went."""
        keeper, supervisor = self._keeper, self._supervisor
        if keeper is None:
            return
        now_us = supervisor.now_us()
        if self._due_us is None:
            keeper.start()
            self._due_us = now_us + supervisor.options.checkpoint_every_us
        self._hear(keeper)
        for checkpoint in keeper.verified_up_to(supervisor.page.assessed_step):
            supervisor.recorder.record(
                "state.trust",
                body={
                    "step": checkpoint.step,
                    "tier": "checkpoint",
                    "state": "verified",
                    "locator": checkpoint.path.name,
                    "reason": "re-read bytes hash to the published digest and the next step's signals were ok",
                },
            )
        assert supervisor.state is not None
        if now_us < self._due_us:
            return
        if keeper.is_busy:
            self._tell_late(now_us, "the one before is still being written")
        elif not keeper.is_ready():
            self._tell_not_ready(keeper)
            self._tell_late(now_us, "the process that writes them is not ready yet")
        elif supervisor.state.phase is LoopPhase.RUNNING:
            late_us = now_us - self._due_us
            self._due_us, self._told = now_us + supervisor.options.checkpoint_every_us, None
            self._request(keeper, late_us=late_us if self._late else None)
            self._late = None

    def _tell_late(self, now_us: int, reason: str) -> None:
        """A checkpoint is due and must wait: say so once it is late by half its interval, once for each reason."""
        every_us = self._supervisor.options.checkpoint_every_us
        assert self._due_us is not None
        if reason == self._late or now_us - self._due_us < every_us / 2:
            return
        self._late = reason
        body = {"text": LATE, "reason": reason, "every_us": every_us}
        self._supervisor.recorder.record("annotation", body=body)

    def _tell_not_ready(self, keeper: CheckpointKeeper) -> None:
        """A checkpoint is due and nobody is there to write it: say why, once for each reason."""
        reason = keeper.helper.why_not_ready()
        if reason is not None and reason != self._told:
            self._told = reason
            body = {"step": self._supervisor.page.assessed_step, "reason": reason}
            self._supervisor.recorder.record("checkpoint.fail", body=body)

    def _request(self, keeper: CheckpointKeeper, *, late_us: int | None = None) -> None:
        """Pin the newest assessed state that all ranks hold and have it copied."""
        supervisor = self._supervisor
        assessed = supervisor.page.assessed_step
        found = [
            c
            for c in slot_candidates(
                read_headers(supervisor.run_dir, world=supervisor.options.ranks),
                world=supervisor.options.ranks,
            )
            if c.step <= assessed
        ]
        if not found or found[0].step == self._last_step:
            return
        step = self._last_step = found[0].step
        supervisor.page.pinned_step = step
        path = keeper.request(
            step, published_us=found[0].published_us, tolerance=supervisor.tolerance
        )
        late = {} if late_us is None else {"late_us": late_us}
        supervisor.recorder.record(
            "checkpoint.begin", body={"step": step, "path": path.name, **late}
        )

    def _hear(self, keeper: CheckpointKeeper) -> None:
        supervisor = self._supervisor
        for answer in keeper.answers():
            if answer["kind"] == "copied":
                supervisor.page.pinned_step = NOTHING_PINNED
                continue
            supervisor.page.pinned_step = NOTHING_PINNED
            self._has_failed_last = answer["kind"] == "failed"
            if self._has_failed_last:
                self._last_step = 0
                supervisor.recorder.record(
                    "checkpoint.fail", body={"step": answer["step"], "reason": answer["reason"]}
                )
            else:
                supervisor.recorder.record(
                    "checkpoint.commit",
                    body={
                        "step": answer["step"],
                        "path": f"step-{answer['step']:09d}",
                        "bytes": answer["bytes"],
                        "blocked_us": 0,  # copied and written by another process, beside the steps
                    },
                )

    def write_last(self) -> bool:
        """Write a checkpoint of the state that all ranks stopped at; True when there is nothing left to wait for."""
        keeper = self._keeper
        if keeper is None:
            return True
        if keeper.is_busy or not keeper.is_ready():
            return False
        before = self._last_step
        self._request(keeper)
        return not keeper.is_busy and self._last_step == before and not self._has_failed_last

    def keep_newest(self) -> None:
        """Write a checkpoint of the newest assessed state, for a run that ends without its ranks: wait for it.

        A second Ctrl-C of a person ends the wait.
        """
        keeper, supervisor = self._keeper, self._supervisor
        until_us = supervisor.now_us() + LAST_CHECKPOINT_US
        self._has_failed_last = False  # of one that failed long ago: there may be room again
        while keeper is not None and supervisor.now_us() < until_us:
            if supervisor.exit_code == EXIT_INTERRUPTED:
                return
            self._hear(keeper)
            if self._has_failed_last or self.write_last():
                return
            supervisor.clock.sleep_us(_POLL_US)

    def abandon_behind(self, step: int) -> None:
        """Set aside the checkpoints of states newer than the one that the run went back to."""
        if self._keeper is None:
            return
        for checkpoint, problem in self._keeper.abandon_behind(step):
            reason = (
                f"the run went back to state {step}, so this one belongs to an abandoned history"
            )
            if problem:
                reason += f"; it could not be renamed ({problem}): delete it before a later start"
            self._supervisor.recorder.record(
                "state.trust",
                body={
                    "step": checkpoint.step,
                    "tier": "checkpoint",
                    "state": "tainted",
                    "locator": checkpoint.path.name,
                    "reason": reason,
                },
            )

    def candidates(self, *, generation: int) -> tuple[Candidate, ...]:
        """Return the checkpoints that a recovery may try."""
        if self._keeper is None:
            return ()
        return checkpoint_candidates(self._keeper.usable(), generation=generation)

    def close(self) -> None:
        """End the helper."""
        if self._keeper is not None:
            self._keeper.close()
