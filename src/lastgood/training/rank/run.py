"""What a user's script sees: `start`, and on the run `batches`, `step` and `section`.

A peer's death raises inside the user's step, and a generator never sees an exception of the loop body. So the
`with run.step()` block is the only place where recovery re-enters: it takes the exception, and the next turn of the
loop parks, joins the next generation, restores, rewinds and hands out the batches that have to run again.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lastgood.base.clock import RunClock, SystemClock
from lastgood.base.errors import BadInput, LastgoodError, Refused
from lastgood.base.units import parse_duration_us
from lastgood.signals.reading import Phase, StepReport
from lastgood.training import control
from lastgood.training.rank.build import Blueprint
from lastgood.training.rank.feed import EndOfEpoch
from lastgood.training.rank.generation import Generation
from lastgood.training.rank.injection import StepInjection
from lastgood.training.rank.loader_remarks import tell_loader_remarks
from lastgood.training.rank.observed_run import is_observed, start_observed
from lastgood.training.rank.passes import Pass, PassKind, passes_of_probe
from lastgood.training.rank.raised import step_raised
from lastgood.training.rank.replica import Replica
from lastgood.training.rank.sizing import ready_message
from lastgood.training.rank.starving import OwnWait
from lastgood.training.rank.state import capture_streams, restore_streams
from lastgood.training.rank.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import torch

    from lastgood.training.rank.link import Link

_COMPUTE, _BETWEEN = Phase.COMPUTE, Phase.BETWEEN
"""Entered every step: a look into an enum costs as much as the entry itself."""
PROBE_STEP = 2
"""The step that is run twice at the start: the first that runs DDP's final bucket layout."""


def start(
    *,
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    optimizer: torch.optim.Optimizer | Callable[[torch.nn.Module], torch.optim.Optimizer],
    loader: Callable[[int, int], Iterable[Any]],
    scheduler: Any = None,
    scaler: Any = None,
    extra: dict[str, Any] | None = None,
    ddp: dict[str, Any] | None = None,
    hook: Callable | None = None,
    hook_state: object = None,
    build: Callable[[torch.nn.Module, Any], torch.nn.Module] | None = None,
    interruptible: bool = True,
) -> Run:
    """Return the run once this worker has a rank; a spare parks in here until it is needed.

    Args:
        model: the bare module, not wrapped in DDP; or a function that makes it, called in every generation.
        optimizer: made from the model's parameters; a function of the (wrapped) model where that is one.
        loader: called with (rank, world) when the rank is known, in a spare perhaps before the group is formed; gives
            the batches of one epoch.
        scheduler: stepped inside the `with run.step()` block; part of the state. A function of the optimizer
            where that is made anew.
        scaler: a gradient scaler; part of the state.
        extra: further objects with `state_dict` and `load_state_dict`, by name; part of the state.
        ddp: options for DistributedDataParallel.
        hook: a DDP communication hook of your own; it is wrapped, not replaced.
        hook_state: the state that your hook gets.
        build: wraps the bare module yourself, in place of DDP: called with (module, group) in every generation.
            docs/frameworks.md says what it must not do.
        interruptible: False lets a step come to its end where another rank was lost, and everybody waits for that.

    Raises:
        Refused: when the script was not started by `lastgood run`.
    """
    link = None if is_observed() else _supervised_link(interruptible=interruptible)
    blueprint = Blueprint(model, optimizer, scheduler, build)
    blueprint.check(has_ddp_options=bool(ddp or hook))
    if link is None:
        return start_observed(blueprint, loader, ddp=ddp or {}, hook=hook, hook_state=hook_state)  # type: ignore[return-value]
    trainable = blueprint.make_trainable(scaler, extra or {})
    injection = StepInjection(link.run)
    replica = Replica(
        blueprint,
        trainable,
        link.slot,
        ddp=ddp or {},
        hook=hook,
        hook_state=hook_state,
        injection=injection,
        reductions=link.group.reductions,
        noting=link.group.noting,
    )
    run = Run(link, Generation(link, trainable, replica, loader, injection))
    link.channel.send(ready_message(trainable, is_sharded=bool(build) or blueprint.is_made_anew))
    run._generation.enter_next()  # noqa: SLF001 - start is part of the run
    tell_loader_remarks(run._generation)  # noqa: SLF001
    link.on_script_end, link.on_process_end = run.close, replica.unwrap
    return run


def _supervised_link(*, interruptible: bool) -> Link:
    from lastgood.training.rank.worker import current_link

    link = current_link()
    if link is None:
        raise Refused(
            "nobody supervises this process",
            where="lastgood.start",
            found="a script started directly",
            needs="the supervisor of lastgood run",
            next="type: lastgood run --nproc-per-node 4 --spares 1 SCRIPT",
        )
    if interruptible:
        link.interruption.set_up()
    return link


class Run:
    """A supervised training run, as one rank sees it."""

    def __init__(self, link: Link, generation: Generation) -> None:
        self._link = link
        self._generation = generation
        self._clock = RunClock(SystemClock(), link.page.wall_offset_us)
        self._pass: Pass | None = None
        self._began_us = 0
        self._ended_us: int | None = None
        """When the step before ended; None where no step leads straight to the next one."""
        self._between_us = 0
        self._sections_us = 0
        """Time in declared sections since the step before."""
        self._own_wait = OwnWait()
        self._is_finished = False
        self._is_beyond_end = False
        """True while a restored state is verified by a step that the run will never keep."""

    @property
    def model(self) -> Replica:
        """The data-parallel model."""
        return self._generation.replica

    @property
    def optimizer(self) -> Any:
        """The present optimizer; read it in every step where it is made anew in each generation."""
        return self._generation.trainable.optimizer

    @property
    def scheduler(self) -> Any:
        """The present scheduler, or None."""
        return self._generation.trainable.scheduler

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._generation.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self._generation.world

    @property
    def _is_over(self) -> bool:
        """True when this generation was revoked, so that its step counts for nothing."""
        return self._link.is_revoked(self._generation.number)

    @property
    def generation(self) -> int:
        """Attempt, from 1; it grows with every recovery."""
        return self._generation.number

    @property
    def steps_done(self) -> int:
        """Newest accepted step; 0 before the first."""
        return self._generation.state_step

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self._generation.feed.epoch

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs that are left, also in a spare that takes over in the middle of one."""
        while self.epoch < count:
            before = self.epoch
            yield before
            if self.epoch == before:
                self._generation.feed.next_epoch()

    def batches(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Any]:
        """Yield the batch of each step, and of each step that has to run again.

        Args:
            epochs: go through the data until so many epochs are done.
            steps: stop after so many steps in all, over as many epochs as they need.
            Without either, one epoch a call.
        """
        if epochs is not None:
            last_epoch: float = epochs
        else:
            last_epoch = self.epoch + 1 if steps is None else math.inf
        self._link.has_left_loop = False
        while True:
            if self._link.is_revoked(self._generation.number):
                self._generation.enter_next()
            try:
                batch = self._next_batch(last_epoch=last_epoch, steps=steps)
            except LastgoodError:
                raise
            except Exception as error:  # noqa: BLE001 - told to the supervisor, which decides
                # A peer died while the wrapper was made anew, or the loader failed: a dead worker of it, a bad record.
                self._raised(error)
                continue
            if batch is not None:
                given = self._pass
                yield batch[0]
                if self._pass is given is not None:
                    self._refuse_batch_without_step()
            elif (
                epochs is None and steps is None and self._link.stop_after is None
            ) or self._finish():
                self._link.has_left_loop = True
                return

    def _refuse_batch_without_step(self) -> None:
        raise Refused(
            "a batch was taken without a step",
            where="run.batches()",
            found="the next batch was asked for before a run.step() block had ended",
            needs="one block for each batch; a batch cannot be passed over",
            next="write: for batch in run.batches(): with run.step() as step: ...",
        )

    def _next_batch(self, *, last_epoch: float, steps: int | None) -> tuple[Any] | None:
        """Return the next batch in a tuple, or None when there is no further step."""
        generation = self._generation
        generation.readiness.look_behind_first_step()
        generation.probing.settle()
        if generation.passes:
            self._pass = generation.passes[0]
            generation.prepare(self._pass)
            batch = self._fetch(self._pass.step, last_epoch=math.inf)
            self._is_beyond_end = (
                self._is_behind_last(self._pass.step, steps) or generation.feed.epoch >= last_epoch
            )
            return batch
        step = generation.state_step + 1
        if self._is_behind_last(step, steps):
            return None
        self._pass = Pass(PassKind.STEP, step)
        return self._fetch(step, last_epoch=last_epoch)

    def _is_behind_last(self, step: int, steps: int | None) -> bool:
        stop_after = self._link.stop_after
        return (steps is not None and step > steps) or (
            stop_after is not None and step > stop_after
        )

    def _fetch(self, step: int, *, last_epoch: float) -> tuple[Any] | None:
        """Return the batch of a step in a tuple, in the next epoch where this one has no more; None at the end."""
        feed = self._generation.feed
        while feed.epoch < last_epoch:
            try:
                return (feed.batch(step),)
            except EndOfEpoch:
                feed.next_epoch()
        return None

    def step(self) -> Step:
        """Return the block in which one step runs; the only place where recovery re-enters."""
        if self._pass is None:
            raise Refused(
                "a step without a batch",
                where="run.step()",
                needs="one block for each batch of run.batches()",
                next="write: for batch in run.batches(): with run.step() as step: ...",
            )
        return Step(self, self._pass, self._link.interruption)

    def section(
        self, name: str, *, limit: str | None = None, counts_as: str = "productive"
    ) -> AbstractContextManager[None]:
        """Declare a long phase outside the steps, with its own limit for the hang detector.

        The global random streams are afterwards what they were before: an evaluation changes no training step.

        Args:
            name: such as `eval`.
            limit: such as `10min`; without it the limit is learned from earlier sections of that name.
            counts_as: wall-time state in the ledger: productive, checkpoint.blocking, warmup or planned.
        """
        if not isinstance(name, str) or not name:
            raise BadInput(
                "a section needs a name",
                where="run.section",
                found=type(name).__name__,
                needs="text, and the phase itself in a with block",
                next='write: with run.section("eval", limit="10min"): ...',
            )
        limit_us = 0 if limit is None else parse_duration_us(limit)
        return self._section(name, limit_us, counts_as)

    @contextmanager
    def _section(self, name: str, limit_us: int, counts_as: str) -> Generator[None]:
        self._generation.readiness.look_behind_first_step()
        self._tell_section(name, counts_as, is_open=True, limit_us=limit_us)
        self._link.slot.open_section(name, limit_us)
        opened_us = self._clock.monotonic_us()
        self._generation.injection.enter_section()
        streams = capture_streams()
        try:
            with self._own_wait.left_out():
                yield
        finally:
            # The next step draws from the streams, and a spare that replays it never ran this section.
            restore_streams(streams)
            self._sections_us += self._clock.monotonic_us() - opened_us
            self._link.slot.close_section()
            self._link.slot.enter(Phase.BETWEEN)
            self._tell_section(name, counts_as, is_open=False)

    def _tell_section(self, name: str, counts_as: str, *, is_open: bool, limit_us: int = 0) -> None:
        self._link.channel.send(
            control.SectionChanged(
                rank=self.rank,
                name=name,
                state=counts_as,
                is_open=is_open,
                wall_us=self._clock.wall_us(),
                step=self.steps_done,
                limit_us=limit_us,
            )
        )

    # --- one pass ---------------------------------------------------------------------------------

    def _begin(self, this: Pass) -> None:
        self._began_us = self._clock.monotonic_us()
        self._between_us = 0
        if self._ended_us is not None:
            self._between_us = max(0, self._began_us - self._ended_us - self._sections_us)
        else:
            self._own_wait.begin()
        self._ended_us = None
        self._generation.injection.begin_step(this.step)
        self._link.slot.enter(_COMPUTE, step=this.step)
        if self.model.hook is not None:
            self.model.hook.begin_step()

    def _end(self, step: Step) -> None:
        this = self._pass
        self._pass = None
        assert this is not None, "a block ends once"
        generation = self._generation
        if self._link.is_revoked(generation.number):
            return
        match this.kind:
            case PassKind.STEP:
                step.is_accepted = generation.accept(self._report(this, step))
                if this.step == PROBE_STEP and generation.is_fresh:
                    generation.probing.begin(
                        passes_of_probe(this.step, has_buckets=self.model.has_buckets)
                    )
            case PassKind.DISCARD:
                pass
            case PassKind.TRIAL:
                generation.keep_trial()
            case PassKind.PROBE:
                generation.probing.end()
            case PassKind.REPLAY:
                step.is_accepted = generation.end_replay(
                    self._report(this, step), is_beyond_end=self._is_beyond_end
                )
        if generation.passes and this is generation.passes[0]:
            generation.passes.pop(0)
        self._link.slot.enter(_BETWEEN, step=generation.state_step)
        if step.is_accepted:
            self._ended_us, self._sections_us = self._clock.monotonic_us(), 0
            self._own_wait.begin()

    def _report(self, this: Pass, step: Step) -> StepReport:
        """What this rank says about the step; the digest is filled in when the state is published."""
        hook = self.model.hook
        whole_us = self._clock.monotonic_us() - self._began_us
        norm = (
            step.grad_norm if step.grad_norm is not None else (hook.grad_norm() if hook else None)
        )
        grad_norm = _number(norm)
        is_nonfinite = hook.is_local_nonfinite if hook else False
        if self._generation.has_scaler:
            # A scaler provokes overflow to find its scale, and skips the step on every rank when it has happened.
            is_nonfinite = False
            grad_norm = grad_norm if grad_norm is not None and math.isfinite(grad_norm) else None
        self_us = whole_us - (hook.waited_us if hook else 0)
        own_us = self_us + self._between_us
        self._generation.injection.end_step(own_us)
        return StepReport(
            rank=self.rank,
            step=this.step,
            digest="0",
            loss=_number(step.loss),
            grad_norm=grad_norm,
            local_nonfinite=is_nonfinite,
            self_us=self_us,
            step_us=whole_us,
            between_us=self._between_us,
            work=_work(step.work),
            starved_us=self._own_wait.starved_us(own_us),
        )

    def _interrupted(self) -> None:
        """The next turn of the loop enters the next generation."""
        self._pass = None
        self._link.wait_revoked(self._generation.number)

    def _raised(self, error: Exception) -> None:
        """Tell the supervisor, then wait: it knows whether a peer died or this script is at fault."""
        self._pass = None
        number = self._generation.number
        if not self._link.is_revoked(number):
            self._link.channel.send(
                step_raised(
                    error,
                    generation=number,
                    step=self._generation.state_step + 1,
                    position=self._generation.feed.position,
                )
            )
            self._link.slot.enter(Phase.HELD)
            self._link.wait_revoked(number)

    def _finish(self, *, is_early: bool = False, exit_code: int = 0) -> bool:
        """Say that the last step is done; False when a fault elsewhere makes this rank go back to work."""
        generation = self._generation
        self._link.channel.send(
            control.Finished(
                generation=generation.number,
                step=generation.state_step,
                is_early=is_early,
                exit_code=exit_code,
            )
        )
        self._link.slot.enter(Phase.FINISHED)
        self._is_finished = self._link.wait_finish(generation.number)
        return self._is_finished

    def close(self, exit_code: int = 0) -> None:
        """End the run after the script: called by the worker, so that a loop left early still ends in order."""
        if not self._is_finished:
            self._finish(is_early=not self._link.has_left_loop, exit_code=exit_code)


def _work(value: float | None) -> float | None:
    """Reported work units; None when nothing usable was reported."""
    found = _number(value)
    return found if found is not None and math.isfinite(found) and found > 0 else None


def _number(value: torch.Tensor | float | None) -> float | None:
    """A loss or a norm as a plain number."""
    detach = getattr(value, "detach", None)
    if detach is not None:
        value = detach()
    return None if value is None else float(value)
