"""The first generation: from the script's own state, or from the newest state that still holds.

A run that resumes is a restore like any other: the bytes are hashed, a step is run again, and only then do new steps
follow. It resumes from the snapshots of a supervisor that was killed, or from a checkpoint (see `sources.py`). A state
that does not hold is passed over for the next older one, and never tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastgood.base.errors import RecoveryError
from lastgood.base.units import format_duration
from lastgood.recovery.messages import ReplayOutcome, VerifyMode
from lastgood.recovery.verification import RUN_TWICE
from lastgood.training import control
from lastgood.training.resuming.interrupted import beginning_again, closing_entry
from lastgood.training.states.sources import Source, find_sources
from lastgood.training.supervising.handover import HandOver

if TYPE_CHECKING:
    from lastgood.training.states.sources import Sources
    from lastgood.training.supervising.supervisor import Supervisor


class Startup:
    """Assigns the first generation of this start, or the first whose state holds."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Assign at once."""
        self._supervisor = supervisor
        self._hand_over = HandOver(supervisor)
        self._generation = supervisor.resumption.last_attempt
        """Attempts are counted on over the starts of a run."""
        options, sign = supervisor.options, supervisor.resumption.sign
        found = find_sources(
            supervisor.run_dir,
            options.checkpoint_dir,
            world=options.ranks,
            assessed_step=None if sign is None else sign.assessed_step,
        )
        self._untried: list[Source] = list(found.usable)
        self._has_joined = False
        self._report_torn(found)
        self._source: Source | None = None
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
        self._source = self._untried.pop(0) if self._untried else None
        if self._source is None and self._has_candidates:
            self._refuse_to_start_over()
        plan = None if self._source is None else self._source.plan
        tolerance = self._tolerance()
        if self._has_joined:
            supervisor.recorder.record("attempt.end", body={"reason": "its state did not hold"})
        supervisor.recorder.attempt = self._generation
        workers = {str(rank): name for rank, name in enumerate(supervisor.serving)}
        if self._source is not None:
            body = {
                "resumes": self._source.name,
                "step": self._source.step,
                "tier": self._source.plan.tier,
                "workers": workers,
            }
            self._record("restore.begin", body=body)
        supervisor.recorder.record(
            "attempt.start",
            body={
                "world": len(workers),
                "workers": workers,
                "pids": supervisor.pids(),
                "stripes": supervisor.stripe_count,
            },
        )
        for rank, name in enumerate(supervisor.serving):
            if not self._has_joined:
                # At risk since its process began, as in a run that is only watched: its warm-up is no free time.
                since_us = supervisor.recorder.wall_us(supervisor.workers[name].started_us)
                body = {"worker": name, "rank": rank}
                supervisor.recorder.record("exposure.join", t_occurred_us=since_us, devices=1, ranks=(rank,), body=body)  # fmt: skip
            supervisor.workers[name].channel.send(
                control.Assignment(
                    generation=self._generation,
                    rank=rank,
                    world=len(workers),
                    plan=plan,
                    tolerance=tolerance,
                    stripes=supervisor.stripe_count,
                )
            )
        self._has_joined = True

    def _record(self, kind: str, **fields: Any) -> None:
        """Record what belongs to the interruption that this start mends, if it mends one."""
        self._supervisor.recorder.record(
            kind, incident=self._supervisor.resumption.incident, **fields
        )

    def _tolerance(self) -> str | None:
        """A job that does not repeat bit for bit is verified within the noise that its earlier start measured."""
        source, supervisor = self._source, self._supervisor
        if supervisor.tolerance is None and source is not None and source.tolerance is not None:
            supervisor.tolerance = source.tolerance.hex()
            supervisor.life.tolerate(source.tolerance)
        return supervisor.tolerance

    def _report_torn(self, found: Sources) -> None:
        """Say which checkpoints are none: they are passed over, and nobody should count on them."""
        newest = found.usable[0].step if found.usable else -1
        for torn in found.torn:
            if torn.step > newest:
                body = {"step": torn.step, "tier": "checkpoint", "state": "suspect"}
                self._record(
                    "state.trust",
                    body={**body, "reason": torn.reason, "locator": torn.path.name},
                )
        self._has_candidates = bool(found.usable or found.torn)

    def _refuse_to_start_over(self) -> None:
        supervisor = self._supervisor
        folder = supervisor.options.checkpoint_dir
        is_in_memory = folder is None
        raise RecoveryError(
            "no state in shared memory holds" if is_in_memory else "no checkpoint holds",
            where=str(supervisor.run_dir.root if is_in_memory else folder),
            found="every state failed its digest or its replay",
            needs="one that is whole, or an empty folder to start over",
            next=(
                f"give it up: rm -r {supervisor.run_dir.root}"
                if is_in_memory
                else "name another --checkpoint-dir, or move the damaged ones away"
            ),
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
        if self._hand_over.is_done(self._generation, is_leaving=self._is_leaving):
            return True
        self._refuse_to_wait_for_ever()
        world = len(supervisor.serving)
        if self._source is None:
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
            self._say_restored()
            for name in supervisor.serving:
                supervisor.workers[name].channel.send(control.Proceed(generation=self._generation))
        broken = next((r for r in self._restored.values() if not r.is_intact), None)
        different = next(
            (r for r in self._replayed.values() if r.outcome == ReplayOutcome.DIFFERENT), None
        )
        if broken is not None or different is not None:
            self._give_up(
                broken.detail if broken is not None else "two runs of one step differ",
                bad_step=broken.bad_step if broken is not None else None,
            )
        elif len(self._replayed) == world:
            self._resume()
            return True
        return False

    def _refuse_to_wait_for_ever(self) -> None:
        """No loop watches yet: ranks that do not get there in time end the run here."""
        supervisor = self._supervisor
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
            entry = beginning_again(
                supervisor.resumption,
                now_us=supervisor.recorder.wall_us(supervisor.now_us()),
                world=len(supervisor.serving),
            )
            if entry is not None:
                supervisor.recorder.record(entry.kind, **entry.fields)
            supervisor.begin_loop(generation=self._generation, step=0)
        return is_published

    def _give_up(self, reason: str, *, bad_step: int | None) -> None:
        assert self._source is not None
        supervisor, source = self._supervisor, self._source
        self._is_leaving = True
        if bad_step is not None and bad_step < source.step:
            # Only the predecessor is broken: the state itself may still hold.
            self._untried = [s for s in self._untried if not (s.is_slot and s.step == bad_step)]
            self._untried.insert(0, source.repeated())
        self._say_trust("suspect", reason)
        for name in supervisor.serving:
            supervisor.workers[name].channel.send(control.Revoked(generation=self._generation))

    def _say_restored(self) -> None:
        assert self._source is not None
        if self._supervisor.resumption.incident is not None:
            body = {"step": self._source.step, "tier": self._source.plan.tier, "intact": True}
            self._record("restore", body=body)

    def _resume(self) -> None:
        assert self._source is not None
        supervisor, source = self._supervisor, self._source
        step = source.step
        outcomes = {message.outcome for message in self._replayed.values()}
        result = "equal" if outcomes == {ReplayOutcome.EQUAL} else "within_tolerance"
        is_replayed = source.plan.mode == VerifyMode.PREDECESSOR.value
        verification = {
            "test": f"replay step {step} on every rank"
            if is_replayed
            else f"{RUN_TWICE} {step + 1} twice on every rank",
            "result": result,
            "evidence": source.plan.digest,
        }
        self._record(
            "verify",
            verification=verification,
            body={"step": step, "target": step, "mode": source.plan.mode},
        )
        self._say_trust("verified", "resumed from it")
        closing = closing_entry(
            supervisor.resumption,
            source,
            verification=verification,
            now_us=supervisor.recorder.wall_us(supervisor.now_us()),
            world=len(supervisor.serving),
        )
        if closing is not None:
            supervisor.recorder.record(closing.kind, **closing.fields)
        supervisor.begin_loop(generation=self._generation, step=step)
        for name in supervisor.serving:
            supervisor.workers[name].channel.send(
                control.Resumed(generation=self._generation, step=step)
            )

    def _say_trust(self, state: str, reason: str) -> None:
        assert self._source is not None
        self._record(
            "state.trust",
            body={
                "step": self._source.step,
                "tier": self._source.plan.tier,
                "state": state,
                "reason": reason,
                "locator": self._source.name,
            },
        )
