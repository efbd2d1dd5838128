"""One generation of a rank, and the way into the next: leave, park, join, restore, verify."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import RunClock, SystemClock
from lastgood.base.errors import Refused
from lastgood.recovery.messages import ReplayOutcome, Tier, VerifyMode
from lastgood.signals.reading import Phase, StepReport
from lastgood.training import control
from lastgood.training.rank import environment
from lastgood.training.rank.ahead import ReadAhead
from lastgood.training.rank.buckets import digest_of
from lastgood.training.rank.checkpoint import load_checkpoint
from lastgood.training.rank.comparing import compare_replay
from lastgood.training.rank.feed import Feed, warm_up
from lastgood.training.rank.fitting import refuse_other_model
from lastgood.training.rank.link import ReplayVerdict
from lastgood.training.rank.passes import (
    FIRST_SETTLED_STEP,
    Pass,
    passes_after_restore,
    passes_of_static_graph,
)
from lastgood.training.rank.probing import Probing
from lastgood.training.rank.raised import step_raised
from lastgood.training.rank.readiness import Readiness
from lastgood.training.rank.replica import replicas_agree
from lastgood.training.rank.shards import holds_shards
from lastgood.training.rank.snapshot import (
    LoadedState,
    SnapshotMismatch,
    SnapshotWriter,
    load_snapshot,
)
from lastgood.training.rank.state import (
    Digests,
    capture_streams,
    digest_state,
    restore_streams,
)
from lastgood.training.rundir import SLOT_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from lastgood.training.control import Assignment, Plan
    from lastgood.training.rank.buckets import Layout
    from lastgood.training.rank.injection import StepInjection
    from lastgood.training.rank.link import Link
    from lastgood.training.rank.replica import Replica
    from lastgood.training.rank.state import Trainable

GATE_POLL_US = 200
EXIT_NOT_WHOLE = 71
"""A rank that cannot go back to where it began ends with this, to be replaced."""
_SNAPSHOT = Phase.SNAPSHOT
"""Entered every step: a look into an enum costs as much as the entry itself."""
_GATE_DEPTH = 2
"""A snapshot is overwritten only once the signals of the step two before have been assessed."""


class Generation:
    """The rank's current generation and everything in it that recovery replaces."""

    def __init__(
        self,
        link: Link,
        trainable: Trainable,
        replica: Replica,
        make_loader: Callable[[int, int], Iterable[Any]],
        injection: StepInjection,
    ) -> None:
        self.link = link
        self.trainable = trainable
        self._make_loader = make_loader
        self.clock = RunClock(SystemClock(), link.page.wall_offset_us)
        self.replica = replica
        self.injection = injection
        self.number = 0
        self.rank = -1
        self.world = 0
        self.state_step = 0
        self.is_fresh = False
        """True in a run that started from the script's own initial state and has not been probed yet."""
        self._has_begun = False
        """True once this process published the script's own initial state."""
        self._is_in_start = True
        """True until the script has its run."""
        self.passes: list[Pass] = []
        self._feed: Feed | None = None
        self._ahead = ReadAhead(link.run)
        self._writer: SnapshotWriter | None = None
        self.loaded: LoadedState | None = None
        """What the next passes begin with."""
        self.expected: LoadedState | None = None
        """The published target of a predecessor replay."""
        self.probing = Probing(self)
        self.readiness = Readiness(self)
        self._layout: Layout | None = None
        """The gradient buckets of the step that is replayed, where the wrapper is made with them."""
        self._trial: Digests | None = None
        self._trial_tensors: dict[str, torch.Tensor] = {}
        self._mode: VerifyMode | None = None
        self._tolerance: float | None = None

    @property
    def has_scaler(self) -> bool:
        """True when a gradient scaler decides which steps count."""
        scaler = self.trainable.scaler
        return scaler is not None and scaler.is_enabled()

    @property
    def feed(self) -> Feed:
        """The data of this rank."""
        assert self._feed is not None, "there is a feed once there is a rank"
        return self._feed

    # --- into the next generation -----------------------------------------------------------------

    def enter_next(self) -> None:
        """Leave this generation, park, and come back with a state restored in another one."""
        self.link.on_hint = self._read_ahead
        while True:
            self._leave()
            assignment = self._next_assignment()
            is_of_group: bool | None = True
            try:
                self._take(assignment)
                if assignment.plan is not None:
                    # All bytes are checked before anybody joins: a rank that finds its own wrong must not leave
                    # the others in a group that never forms.
                    self._read(assignment.plan)
                    self._layout = self._known_layout()
                    self._tell_restored(intact=True, standby=assignment.standby)
                    assert self.loaded is not None, "read before it is told"
                    # What goes wrong here goes wrong again in the pass that needs it, which can tell it.
                    with suppress(Exception):
                        self.readiness.get(self.loaded)
                    if not self.link.wait_proceed(self.number):
                        continue
                self._join(assignment)
                is_of_group = None
                self._begin(assignment.plan)
            except SnapshotMismatch as mismatch:
                self._tell_restored(intact=False, bad_step=mismatch.step, detail=mismatch.detail)
                self.link.wait_revoked(self.number)
                continue
            except RuntimeError as error:
                # A peer died while the group was formed, or what builds the data raised; the supervisor revokes.
                self._tell_raised(error, is_of_group=is_of_group)
                self.link.wait_revoked(self.number)
                continue
            self.link.slot.enter(Phase.BETWEEN, step=self.state_step)
            self._is_in_start = False
            return

    def _read_ahead(self, newest_step: int) -> None:
        """On the control thread: this rank may still be in its step for a while."""
        self._ahead.begin(rank=self.rank, newest_step=newest_step)

    def _next_assignment(self) -> Assignment:
        if self._feed is None:
            warm_up()
        while isinstance(message := self.link.wait_assignment(), control.Prepare):
            self._prepare_for(message)
        return message

    def _prepare_for(self, message: control.Prepare) -> None:
        """In a spare: read the states of the rank that it will probably serve, and open its data at them."""
        self.readiness.freeze()
        self.link.slot.enter(Phase.RESTORING)
        environment.release(rank=message.rank, world=message.world, generation=message.generation)
        self._ahead.prepare(
            self._make_loader,
            rank=message.rank,
            world=message.world,
            newest_step=message.newest_step,
        )
        self.readiness.get_early(self._ahead, message.rank)
        self.readiness.freeze()
        self.link.slot.enter(Phase.PARKED)

    def _tell_raised(self, error: Exception, *, is_of_group: bool | None = None) -> None:
        self.link.channel.send(
            step_raised(
                error, generation=self.number, step=self.state_step, is_of_group=is_of_group
            )
        )

    def _leave(self) -> None:
        if self.number:
            self.readiness.freeze()
        self.passes.clear()
        self._layout = None
        self.readiness.forget()
        self.replica.unwrap()
        self.probing.forget()
        self.link.group.leave(waits=False)
        self.link.slot.close_section()
        self.link.slot.enter(Phase.PARKED)
        if self.number:
            self.link.channel.send(control.Parked(generation=self.number))
            self.readiness.get_early(self._ahead, self.rank)

    def _take(self, assignment: Assignment) -> None:
        """Become the rank of the assignment."""
        self.link.group.standby.halt()
        self.number, self.world = assignment.generation, assignment.world
        self._tolerance = (
            None if assignment.tolerance is None else float.fromhex(assignment.tolerance)
        )
        if self.rank != assignment.rank:
            self.rank = assignment.rank
            self._writer = SnapshotWriter(self.link.run, self.rank, stripe_count=assignment.stripes)
            self._feed = self._ahead.feed_of(self.rank)
            self.injection.serve_rank(self.rank)
        environment.release(rank=self.rank, world=self.world, generation=self.number)
        self.link.slot.begin_generation(self.number, self.rank)

    def _read(self, plan: Plan) -> None:
        """Re-read the states of the plan and hash every byte; nothing is loaded yet."""
        self.link.slot.enter(Phase.RESTORING)
        self._mode = VerifyMode(plan.mode)
        if plan.tier == Tier.CHECKPOINT:
            self.loaded = load_checkpoint(plan.locator, rank=self.rank, step=plan.restore_step)
        else:
            self.loaded = self._ahead.state(self.rank, plan.restore_step)
        self.expected = self.loaded
        if self._mode is VerifyMode.PREDECESSOR:
            self.expected = self._ahead.state(self.rank, plan.target_step)
        self._ahead.forget()
        found = self.expected.digests.replica
        if found != plan.digest:
            raise SnapshotMismatch(
                plan.target_step, f"hashes to {found}, the ranks agreed on {plan.digest}"
            )

    def _join(self, assignment: Assignment) -> None:
        self.link.slot.enter(Phase.JOINING)
        # Without a plan nobody was asked what stands by, and what was said last is of another generation.
        standby = None if assignment.plan is None else assignment.standby
        self.link.group.join(
            generation=self.number,
            rank=self.rank,
            world=self.world,
            store=self.link.run.store(self.number),
            lost_rank=standby[1] if standby is not None and self.link.has_standby else None,
        )
        self.readiness.joined()

    def _begin(self, plan: Plan | None) -> None:
        """Load the state and plan the passes that verify it; or start from the script's own state."""
        self.link.slot.enter(Phase.RESTORING)
        self.injection.begin_rank()
        if self._feed is None:
            self._feed = Feed(self._make_loader, rank=self.rank, world=self.world)
            self.readiness.forget()  # the script's own code ran: it may have touched what is in place
        if plan is None:
            self._start_fresh()
            return
        assert self.loaded is not None, "read before it is begun"
        assert self._mode is not None, "read before it is begun"
        self.is_fresh = False
        self.state_step = plan.restore_step
        self.link.slot.set_published(plan.restore_step)
        if not self.link.has_buckets:
            self._layout = None  # all ranks make the same passes
        passes = self._passes_of(self._mode, self.loaded)
        if self.replica.is_made_anew:
            # There is nothing to load into before it is made, and what is new needs no second making.
            self.replica.wrap(is_synced=True, layout=self._layout)
            besides = passes_of_static_graph(passes[0]) if self.replica.is_static else ()
            passes = (replace(passes[0], wraps=False), *besides, *passes[1:])
            self.readiness.tell_where()
        refuse_other_model(self.trainable, self.loaded)
        if self._is_in_start:
            # The script may look at what it restored; whoever comes back from a step loads before the first pass.
            self.load(self.loaded)
        self.passes = list(passes)

    def _known_layout(self) -> Layout | None:
        """The gradient buckets of the step that is replayed, where a wrapper can be made with them."""
        assert self.expected is not None, "read before it is told"
        is_usable = (
            self._mode is VerifyMode.PREDECESSOR
            and self.replica.can_lay_out
            and self.expected.step >= FIRST_SETTLED_STEP
        )
        return self.expected.position.get("buckets") if is_usable else None

    def _passes_of(self, mode: VerifyMode, loaded: LoadedState) -> tuple[Pass, ...]:
        return passes_after_restore(
            mode,
            restore_step=loaded.step,
            has_buckets=not holds_shards(loaded.tensors),
            is_laid_out=self._layout is not None,
        )

    def _start_fresh(self) -> None:
        began = self._begin_again() if self._has_begun else None
        if began is not None and not self.replica.is_made_anew:
            self.load(began)
        self.is_fresh = True
        self.state_step = 0
        replicated, private = self.trainable.tensors()
        self.replica.wrap(is_synced=replicas_agree(replicated | private))
        if self.replica.is_built and not replicas_agree(self.trainable.tensors()[0]):
            raise Refused(
                "the replicas differ after build",
                where="lastgood.start(build=...)",
                found="parameters that are not the same on every rank",
                needs="one state to begin with",
                next="seed before the model is made, or leave init_sync of DDP as it is",
            )
        if began is not None and self.replica.is_made_anew:
            self.load(began)
        self._publish_state(0)
        self._has_begun = True
        self.readiness.tell_where()

    def _begin_again(self) -> LoadedState:
        """Return the state that this rank began with, since it had begun its first step when a peer died.

        Where the state lies in stripes, that of the peer may be missing: then only a new process has it whole.
        """
        try:
            return load_snapshot(self.link.run, self.rank, 0)
        except SnapshotMismatch as mismatch:
            self._tell_raised(mismatch, is_of_group=True)
            os._exit(EXIT_NOT_WHOLE)

    def _tell_restored(
        self,
        *,
        intact: bool,
        standby: tuple[int, int] | None = None,
        bad_step: int | None = None,
        detail: str = "",
    ) -> None:
        self.link.channel.send(
            control.StateRestored(
                generation=self.number,
                rank=self.rank,
                is_intact=intact,
                bad_step=bad_step,
                detail=detail,
                buckets=digest_of(self._layout) if intact else "",
                has_standby=standby is not None and self.link.group.standby.has(*standby),
            )
        )

    def load(self, state: LoadedState) -> None:
        """Set the live objects, the random streams and the data to a state."""
        if not self.readiness.take(state):
            self.trainable.load(state.tensors, state.values)
        restore_streams(state.streams)
        self.feed.seek(state.position["feed"], step=state.step)

    # --- passes -----------------------------------------------------------------------------------

    def prepare(self, this: Pass) -> None:
        """Set the state, and the wrapper where the pass asks for one, before the user's step runs."""
        assert self.loaded is not None, "passes follow a restore"
        if this.wraps:
            # A large model takes its time to be made or wrapped anew, and is no hang.
            self.link.slot.enter(Phase.RESTORING)
            self.replica.wrap(is_synced=True, layout=self._layout)
            if self.replica.is_static:
                # Known only now, where the user's own build wraps; `this` is the first of the passes.
                self.passes[1:1] = passes_of_static_graph(this)
            if self.replica.is_made_anew:
                self.readiness.tell_where()
        self.load(self.loaded)
        self.link.slot.enter(Phase.BETWEEN)

    def accept(self, report: StepReport) -> bool:
        """Publish the state after a new step; False when the generation was revoked while waiting at the gate."""
        if not self._wait_at_gate(report.step):
            return False
        digests = self._publish_state(report.step)
        self.state_step = report.step
        self.link.slot.publish(
            replace(report, digest=digests.replica), done_wall_us=self.clock.wall_us()
        )
        self.readiness.has_stepped = True
        return True

    def _wait_at_gate(self, step: int) -> bool:
        page = self.link.page
        while page.assessed_step < step - _GATE_DEPTH or page.pinned_step == step - SLOT_COUNT:
            if self.link.is_revoked(self.number):
                return False
            # Held back by others, for as long as it takes: this rank is not the one that hangs.
            self.link.slot.enter(Phase.HELD)
            self.clock.sleep_us(GATE_POLL_US)
        self.link.slot.enter(_SNAPSHOT)
        return True

    def _publish_state(self, step: int) -> Digests:
        assert self._writer is not None, "there is a writer once there is a rank"
        digests = self._writer.write(
            self.trainable,
            step=step,
            generation=self.number,
            streams=capture_streams(),
            position={"feed": self.feed.position, "buckets": self.replica.layout},
        )
        self.link.slot.set_published(step)
        return digests

    def digests(self) -> Digests:
        """Return the digests of the live state."""
        replicated, private = self.trainable.tensors()
        return digest_state(replicated, private, capture_streams())

    def live_tensors(self) -> dict[str, torch.Tensor]:
        """Return the live tensors by name."""
        replicated, private = self.trainable.tensors()
        return replicated | private

    def keep_trial(self) -> None:
        """Remember the first of two runs of a step."""
        self._trial = self.digests()
        self._trial_tensors = {}
        if self._tolerance is not None:
            self._trial_tensors = {
                name: tensor.clone() for name, tensor in self.live_tensors().items()
            }

    def end_replay(self, report: StepReport, *, is_beyond_end: bool = False) -> bool:
        """Compare a replay, report it, and wait for the verdict; False when its result was not kept.

        A state at the very end of a run is verified by a step that the run never asked for: that one is taken back.
        """
        assert self.expected is not None, "a replay compares"
        assert self.loaded is not None, "a replay starts from a restored state"
        assert self._mode is not None, "a replay has a mode"
        found = self.digests()
        is_again = self._mode is VerifyMode.PREDECESSOR
        outcome, detail = compare_replay(
            found,
            self.expected.digests if is_again else self._trial,
            tolerance=self._tolerance,
            live=self.live_tensors,
            reference=self.expected.tensors if is_again else self._trial_tensors,
        )
        layout, self._layout = self._layout, None
        is_right = outcome is not ReplayOutcome.DIFFERENT and self.replica.layout == layout
        self.link.slot.enter(Phase.HELD)
        self.link.channel.send(
            control.StepReplayed(
                generation=self.number,
                rank=self.rank,
                step=report.step,
                outcome=outcome,
                digest=found.replica,
                detail=detail,
                is_by_buckets=layout is None or is_right,
            )
        )
        verdict = self.link.wait_verdict(self.number)
        if verdict is ReplayVerdict.AGAIN:
            self.passes += self._passes_of(self._mode, self.loaded)
        if verdict is not ReplayVerdict.RESUMED:
            return False
        if is_again:
            self.state_step = report.step
            self.link.slot.set_published(report.step)
            if outcome is not ReplayOutcome.EQUAL:
                self.load(self.expected)
            is_kept = True
        elif is_beyond_end:
            self.load(self.loaded)
            is_kept = False
        else:
            is_kept = self.accept(report)
        self.loaded = self.expected = self._trial = None
        self._trial_tensors = {}
        return is_kept
