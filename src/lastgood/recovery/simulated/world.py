"""The simulated job and its supervisor: answers the loop's actions with seeded delays, breaks on schedule.

The detectors are the real ones; only processes, memory and time are made up. What the loop is told is kept
apart from what is true, so that `invariants.py` can compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase, RecoveryPolicy, simple_policy
from lastgood.recovery.simulated.invariants import Invariants
from lastgood.recovery.simulated.tape import FaultKind, SimulatedFault, draw_tape
from lastgood.recovery.simulated.workers import Being, Shelf, SimulatedWorker, StoredState
from lastgood.signals import correctness, liveness
from lastgood.signals.limits import Limits
from lastgood.signals.reading import (
    Assessment,
    Phase,
    ProcessState,
    Question,
    Raised,
    StepReport,
    Symptom,
    Verdict,
)
from lastgood.sim.kernel import Kernel

LOOK_US = 200_000
HORIZON_US = 8_000_000
"""Faults begin within this time."""
END_US = 400_000_000
EVENT_COUNT_MAX = 60_000
CHECKPOINT_STEPS = 10
LIMITS = Limits(
    step_floor_us=1_000_000, warmup_floor_us=3_000_000, section_floor_us=3_000_000, group_error_us=500_000
)


def simulated_policy() -> RecoveryPolicy:
    """Short limits, so that every bound of the table is reached by some seed."""
    return simple_policy(
        timeout_us=10_000_000,
        soft_deadline_us=2_000_000,
        recurrence_window_us=30_000_000,
        recurrence_limit=2,
        attempts_max=8,
    )


class World:
    """One run of the simulated job."""

    def __init__(self, seed: int, *, tape: Sequence[SimulatedFault] | None = None) -> None:
        """Draw the job and its faults from the seed."""
        self.kernel = Kernel(seed)
        rng = self.kernel.stream("job")
        self.size = rng.choice([1, 2, 3, 4, 4, 4, 6])
        self.spare_count = rng.choice([0, 1, 1, 2])
        self.step_us = rng.choice([100_000, 200_000, 400_000])
        self.knows_generations = rng.random() < 0.5
        self.knows_times = rng.random() < 0.5
        self.is_noisy = rng.random() < 0.2
        self.tape = (
            tuple(tape)
            if tape is not None
            else draw_tape(self.kernel.stream("tape"), world=self.size, horizon_us=HORIZON_US)
        )
        names = [f"w{i}" for i in range(self.size)]
        self.workers = {
            name: SimulatedWorker(name=name, being=Being.SERVING, rank=rank, generation=1)
            for rank, name in enumerate(names)
        }
        self.serving = list(names)
        self.generation = 1
        self.name_count = self.size
        self.shelf = Shelf([{} for _ in names])
        self.step = 0
        """Newest state that every rank holds; the step in progress is the next one."""
        self.is_stepping = True
        self.plan: m.RestorePlan | None = None
        self.poisoned_steps: set[int] = set()
        self.outage_until_us = 0
        self.replays_differ = 0
        self.replays_minority: list[int] = []
        self.stalls: set[int] = set()
        self.entered: set[int] = set()
        self.published: set[int] = set()
        self.taint_count = 0
        self.liveness = liveness.LivenessMemory()
        self.correctness = correctness.CorrectnessMemory(window_count=8)
        self.pending = list(self.tape)
        self.armed: list[SimulatedFault] = []
        self.faults_left = len(self.tape)
        self.resumed_at_step: int | None = None
        self.state = loop.initial_state(
            self.size, None, names, self.spare_count, run=f"seed-{seed}", now_us=0, policy=simulated_policy()
        )
        self.invariants = Invariants(self)
        self.trace: list[str] = []

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Lets the job run until its faults are over and it either goes on or was escalated."""
        for rank, worker in enumerate(self.serving):
            self.shelf.publish(rank, StoredState(0, 1, 0, 0))
            self.workers[worker].moved(Phase.BETWEEN, 0)
        for _ in range(self.spare_count):
            self._launch_spare()
        self._begin_step()
        self.kernel.after(LOOK_US, "look", self._look)
        for fault in self.pending:
            self.kernel.after(fault.at_us, f"fault {fault.kind}", lambda f=fault: self._arm(f))
        self.kernel.run(
            until_us=END_US,
            event_count_max=EVENT_COUNT_MAX,
            after_each=self.invariants.after_event,
            is_over=self._is_over,
        )
        self.invariants.at_end()

    def _is_over(self) -> bool:
        if self.state.phase is LoopPhase.ESCALATED:
            return True
        if self.kernel.now_us < HORIZON_US or self.state.phase is not LoopPhase.RUNNING:
            return False
        # A fault that waits for a phase that never comes is over too.
        return self.step >= (self.resumed_at_step or 0) + 8 and all(
            self.workers[w].is_able for w in self.serving
        )

    def tell(self, observation: m.Observation) -> None:
        """Gives the loop one observation and carries out what it wants."""
        before = self.state.phase
        self.invariants.before_step(observation)
        self.state, actions = loop.step(self.state, observation, self.kernel.now_us)
        if not isinstance(observation, m.Tick | m.Progress):
            self.trace.append(f"{self.kernel.now_us:>10} {before.value} <- {observation}")
        for action in actions:
            self.trace.append(f"{self.kernel.now_us:>10} {self.state.phase.value} -> {action}")
            self.invariants.on_action(action)
            self._carry_out(action)
        if self.state.phase is not before:
            self._fire_armed(self.state.phase)

    def _delay(self, low_us: int, high_us: int) -> int:
        return self.kernel.stream("delays").randint(low_us, high_us)

    def _later(self, low_us: int, high_us: int, observation: m.Observation) -> None:
        self.kernel.after(
            self._delay(low_us, high_us), type(observation).__name__, lambda: self.tell(observation)
        )

    # --- the loop's actions -----------------------------------------------------------------------

    def _carry_out(self, action: m.Action) -> None:
        match action:
            case m.DumpStacks(workers):
                for worker in workers:
                    if self._delay(0, 9) > 1:
                        self._later(50_000, 1_500_000, m.StacksDumped(worker, f"{worker}.stack"))
            case m.Revoke(generation, workers):
                for worker in workers:
                    self.kernel.after(
                        self._delay(5_000, 200_000), "revoke", lambda w=worker, g=generation: self._park(w, g)
                    )
            case m.Kill(workers):
                for worker in workers:
                    self.kernel.after(self._delay(1_000, 50_000), "kill", lambda w=worker: self._kill(w))
            case m.ReadCatalogue():
                self.kernel.after(self._delay(1_000, 100_000), "catalogue", self._read_catalogue)
            case m.Assign(generation=generation, workers=workers, plan=plan):
                self._assign(generation, workers, plan)
            case m.Resume(generation, step):
                self._resume(generation, step)
            case m.RefillSpare(count):
                for _ in range(count):
                    self._launch_spare()
            case m.Record() | m.Escalate():
                pass

    def _launch_spare(self) -> None:
        name = f"w{self.name_count}"
        self.name_count += 1
        ready_us = self.kernel.now_us + self._delay(500_000, 4_000_000)
        ready_us = max(ready_us, self.outage_until_us)
        is_stillborn = self._delay(0, 9) == 0
        self.kernel.after(
            ready_us - self.kernel.now_us, "spare", lambda: self._spare_up(name, is_stillborn=is_stillborn)
        )

    def _spare_up(self, name: str, *, is_stillborn: bool) -> None:
        if is_stillborn:
            self.tell(m.SpareLost(name))
            return
        self.workers[name] = SimulatedWorker(name=name, being=Being.SPARE, progress_us=self.kernel.now_us)
        self.invariants.announced.add(name)
        self.tell(m.SpareReady(name))

    def _park(self, name: str, generation: int) -> None:
        worker = self.workers[name]
        if worker.being is not Being.SERVING or worker.generation != generation:
            return
        if worker.process is not ProcessState.SLEEPING or worker.refuses_to_park:
            return
        worker.being = Being.PARKED
        worker.moved(Phase.PARKED, self.kernel.now_us)
        self.tell(m.WorkerParked(name, generation))

    def _kill(self, name: str) -> None:
        worker = self.workers[name]
        if not worker.is_alive:
            return
        if worker.is_unkillable:
            worker.being = Being.HELD_BY_KERNEL
            worker.process = ProcessState.UNINTERRUPTIBLE
            self._later(100_000, 500_000, m.WorkerUnkillable(name))
            return
        self._die(worker)

    def _die(self, worker: SimulatedWorker) -> None:
        """The process ends; its end is collected a little later, its peers notice in their collectives."""
        was_serving = worker.being is Being.SERVING
        worker.being = Being.DEAD
        worker.process = ProcessState.GONE
        worker.exit_code = -9

        self._later(1_000, 60_000, m.WorkerGone(worker.name))
        if was_serving:
            self._break_group(worker.generation)

    def _break_group(self, generation: int) -> None:
        """Some ranks of the generation get an error from the group and park; the others stay blocked."""
        for name in self.serving:
            if self._delay(0, 9) < 5:
                self.kernel.after(
                    self._delay(10_000, 200_000), "group error", lambda n=name: self._raise_group(n, generation)
                )

    def _raise_group(self, name: str, generation: int) -> None:
        worker = self.workers[name]
        if not worker.is_able or worker.generation != generation or worker.phase is Phase.HELD:
            return
        worker.raised = Raised(
            type_name="RuntimeError", message="peer closed", is_group_error=True, step=self.step + 1,
            t_us=self.kernel.now_us,
        )
        if not worker.refuses_to_park:
            worker.being = Being.PARKED
            worker.moved(Phase.PARKED, self.kernel.now_us)
            self.tell(m.WorkerParked(name, generation))

    def _read_catalogue(self) -> None:
        found = []
        steps = self.shelf.common_steps()
        for step in steps:
            copies = [copy for rank in range(self.size) if (copy := self.shelf.slot(rank, step)) is not None]
            found.append(self._candidate(copies, tier=m.Tier.SLOT, has_predecessor=step - 1 in steps))
        for number, state in enumerate(self.shelf.checkpoints):
            found.append(
                self._candidate([state], tier=m.Tier.CHECKPOINT, has_predecessor=False, locator=f"c{number}-{state.step}")
            )
        found.sort(key=lambda c: -c.step)
        self.tell(m.CatalogueRead(candidates=tuple(found)))

    def _candidate(
        self, copies: list[StoredState], *, tier: m.Tier, has_predecessor: bool, locator: str = ""
    ) -> m.Candidate:
        return m.Candidate(
            step=copies[0].step,
            tier=tier,
            digest=copies[0].digest,
            has_predecessor=has_predecessor,
            locator=locator,
            generation=min(c.generation for c in copies) if self.knows_generations else None,
            published_us=max(c.published_us for c in copies) if self.knows_times else None,
        )

    # --- a new generation -------------------------------------------------------------------------

    def _assign(self, generation: int, workers: tuple[str, ...], plan: m.RestorePlan) -> None:
        self.generation = generation
        self.serving = list(workers)
        self.plan = plan
        self.is_stepping = False
        self.correctness = correctness.CorrectnessMemory(window_count=8)
        for rank, name in enumerate(workers):
            worker = self.workers[name]
            worker.rank, worker.generation = rank, generation
            worker.launches = worker.completions = 0
            worker.raised = None
            if not worker.is_alive:
                continue
            worker.being = Being.SERVING
            worker.moved(Phase.JOINING, self.kernel.now_us)
            if rank in self.stalls:
                self.stalls.discard(rank)
                worker.process = ProcessState.STOPPED
            self.kernel.after(
                self._delay(20_000, 500_000), "restore", lambda r=rank: self._restore_rank(r, generation)
            )

    def _is_whole(self, generation: int) -> bool:
        return generation == self.generation and all(self.workers[w].is_able for w in self.serving)

    def _restore_rank(self, rank: int, generation: int) -> None:
        if not self._is_whole(generation) or self.plan is None:
            return  # joining needs everybody: the others wait until they are revoked
        plan = self.plan
        worker = self.workers[self.serving[rank]]
        worker.moved(Phase.RESTORING, self.kernel.now_us)
        copy = self._copy_of(rank, plan.restore_step, plan)
        wanted = plan.digest if plan.restore_step == plan.target_step else None
        is_intact = copy is not None and not copy.is_flipped and (wanted is None or copy.digest == wanted)
        worker.taint = copy.taint if copy is not None else 0
        worker.moved(Phase.HELD, self.kernel.now_us)
        self._later(
            0, 50_000,
            m.Restored(
                rank=rank, generation=generation, is_intact=is_intact,
                bad_step=None if is_intact else plan.restore_step,
            ),
        )
        if is_intact:
            self.kernel.after(
                self._delay(50_000, 400_000), "replay", lambda: self._replay_rank(rank, generation)
            )

    def _copy_of(self, rank: int, step: int, plan: m.RestorePlan) -> StoredState | None:
        if plan.tier is m.Tier.SLOT:
            return self.shelf.slot(rank, step)
        number = int(plan.locator[1:].partition("-")[0])
        kept = self.shelf.checkpoints
        return kept[number] if number < len(kept) and kept[number].step == step else None

    def _replay_rank(self, rank: int, generation: int) -> None:
        if not self._is_whole(generation) or self.plan is None:
            return
        plan = self.plan
        worker = self.workers[self.serving[rank]]
        outcome = m.ReplayOutcome.WITHIN_TOLERANCE if self.is_noisy else m.ReplayOutcome.EQUAL
        if plan.mode is m.VerifyMode.PREDECESSOR:
            taints = {self.workers[w].taint for w in self.serving}
            result = worker.taint if len(taints) == 1 else -1
            if f"{plan.target_step}:{result}" != plan.digest:
                outcome = m.ReplayOutcome.DIFFERENT
        if self.replays_differ > 0 or rank in self.replays_minority:
            outcome = m.ReplayOutcome.DIFFERENT
            if rank in self.replays_minority:
                self.replays_minority.remove(rank)
            elif rank == self.size - 1:
                self.replays_differ -= 1
        if plan.target_step in self.poisoned_steps and rank == 0:
            self._raise_own(rank, plan.target_step)
            return
        worker.moved(Phase.HELD, self.kernel.now_us)
        self._later(
            0, 50_000, m.Replayed(rank=rank, generation=generation, step=plan.target_step, outcome=outcome)
        )

    def _resume(self, generation: int, step: int) -> None:
        self.step = step
        self.resumed_at_step = step
        self.is_stepping = True
        for name in self.serving:
            self.workers[name].moved(Phase.BETWEEN, self.kernel.now_us)
        self.kernel.after(10_000, "resume", lambda: self._begin_step() if generation == self.generation else None)

    # --- steps ------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        if not self.is_stepping:
            return
        generation, step = self.generation, self.step + 1
        self.entered, self.published = set(), set()
        for rank, name in enumerate(self.serving):
            worker = self.workers[name]
            if not worker.is_able:
                continue
            worker.moved(Phase.COMPUTE, self.kernel.now_us)
            if step in self.poisoned_steps and rank == 0:
                self.kernel.after(1_000, "poison", lambda r=rank: self._raise_own(r, step))
                continue
            self.kernel.after(
                self._delay(self.step_us // 3, self.step_us), "enter", lambda r=rank: self._enter(r, generation, step)
            )

    def _enter(self, rank: int, generation: int, step: int) -> None:
        worker = self.workers[self.serving[rank]]
        if generation != self.generation or step != self.step + 1 or not worker.is_able:
            return
        worker.launches += 1
        worker.moved(Phase.COLLECTIVE, self.kernel.now_us)
        self.entered.add(rank)
        if len(self.entered) == self.size and self._is_whole(generation):
            for each in range(self.size):
                self.kernel.after(
                    self._delay(1_000, 30_000), "publish", lambda r=each: self._publish(r, generation, step)
                )

    def _publish(self, rank: int, generation: int, step: int) -> None:
        worker = self.workers[self.serving[rank]]
        if generation != self.generation or not worker.is_able or not self.is_stepping:
            return
        worker.completions = worker.launches
        worker.moved(Phase.BETWEEN, self.kernel.now_us)
        self.shelf.publish(rank, StoredState(step, generation, worker.taint, self.kernel.now_us))
        self.published.add(rank)
        if len(self.published) == self.size:
            self._finish_step(step)

    def _finish_step(self, step: int) -> None:
        self.step = step
        self.tell(m.Progress(step, self.generation))
        taints = {self.workers[w].taint for w in self.serving}
        reports = [
            StepReport(
                rank=rank, step=step, digest=f"{step}:{self.workers[name].taint}", loss=1.0, grad_norm=1.0,
                local_nonfinite=False, self_us=1000, step_us=2000,
            )
            for rank, name in enumerate(self.serving)
        ]
        verdict, self.correctness = correctness.assess(
            reports, memory=self.correctness, world=self.size, now_us=self.kernel.now_us
        )
        if verdict.verdict is not Verdict.OK:
            lag_us = self._delay(0, 200_000)
            generation = self.generation
            self.kernel.after(lag_us, "divergence", lambda: self._tell_verdict(verdict, generation))
        if step % CHECKPOINT_STEPS == 0 and len(taints) == 1:
            self.shelf.checkpoints.append(StoredState(step, self.generation, next(iter(taints)), self.kernel.now_us))
            del self.shelf.checkpoints[:-3]
        if len(taints) > 1:
            # One wrong replica poisons everybody's next gradient.
            for name in self.serving:
                self.taint_count += 1
                self.workers[name].taint = self.workers[name].taint or self.taint_count
        if self.is_stepping:
            self._begin_step()

    def _tell_verdict(self, verdict: Assessment, generation: int) -> None:
        if generation == self.generation:
            self.tell(m.Assessed(verdict))

    # --- detectors --------------------------------------------------------------------------------

    def _look(self) -> None:
        self.kernel.after(LOOK_US, "look", self._look)
        readings = [self.workers[name].reading(rank, step=self.step) for rank, name in enumerate(self.serving)]
        now_us = self.kernel.now_us
        verdict = liveness.assess(readings, limits=LIMITS, now_us=now_us, previous=self.liveness)
        self.liveness = liveness.remember(self.liveness, readings, now_us=now_us)
        if verdict.verdict is not Verdict.OK:
            self.tell(m.Assessed(verdict))
        elif self.state.phase is not LoopPhase.RUNNING:
            self.tell(m.Tick())

    # --- faults -----------------------------------------------------------------------------------

    def _arm(self, fault: SimulatedFault) -> None:
        if fault.phase is None:
            self._strike(fault)
        else:
            self.armed.append(fault)

    def _fire_armed(self, phase: LoopPhase) -> None:
        due = [fault for fault in self.armed if fault.phase is phase]
        self.armed = [fault for fault in self.armed if fault.phase is not phase]
        for fault in due:
            self.kernel.after(fault.delay_us, f"fault {fault.kind}", lambda f=fault: self._strike(f))

    def _strike(self, fault: SimulatedFault) -> None:
        self.faults_left -= 1
        self.trace.append(f"{self.kernel.now_us:>10} FAULT {fault}")
        worker = self.workers[self.serving[fault.rank]]
        match fault.kind:
            case FaultKind.KILL:
                if worker.is_alive and not worker.is_unkillable:
                    self._die(worker)
            case FaultKind.KILL_SPARE:
                for spare in [w for w in self.workers.values() if w.being is Being.SPARE][:1]:
                    spare.being, spare.exit_code = Being.DEAD, -9
                    self._later(1_000, 100_000, m.SpareLost(spare.name))
            case FaultKind.HANG_STOPPED | FaultKind.HANG_SPINNING:
                if worker.is_alive:
                    is_stopped = fault.kind is FaultKind.HANG_STOPPED
                    worker.process = ProcessState.STOPPED if is_stopped else ProcessState.RUNNING
            case FaultKind.EXCEPTION:
                self._raise_own(fault.rank, self.step + 1)
            case FaultKind.POISON:
                self.poisoned_steps.add(self.step + 2)
            case FaultKind.NONFINITE:
                self._strike_nonfinite(fault)
            case FaultKind.DIVERGENCE:
                self.taint_count += 1
                worker.taint = self.taint_count
            case FaultKind.FLIP_SLOT:
                steps = sorted((s for s in self.shelf.slots[fault.rank].values()), key=lambda s: -s.step)
                for state in steps[fault.count - 1 : fault.count]:
                    state.is_flipped = True
            case FaultKind.REFUSE_PARK:
                worker.refuses_to_park = True
            case FaultKind.UNKILLABLE:
                worker.is_unkillable = True
            case FaultKind.SPARE_OUTAGE:
                self.outage_until_us = self.kernel.now_us + 5_000_000 * fault.count
            case FaultKind.REPLAY_DIFFERS:
                self.replays_differ += fault.count
            case FaultKind.REPLAY_MINORITY:
                self.replays_minority += [fault.rank] * fault.count
            case FaultKind.GROUP_ERROR:
                self._break_group(self.generation)
            case FaultKind.RESTORE_STALLS:
                self.stalls.add(fault.rank)

    def _raise_own(self, rank: int, step: int) -> None:
        worker = self.workers[self.serving[rank]]
        if not worker.is_able or worker.phase is Phase.HELD:
            return
        worker.raised = Raised(
            type_name="ValueError", message="bad batch", is_group_error=False, step=step, t_us=self.kernel.now_us
        )
        worker.progress_us = self.kernel.now_us

    def _strike_nonfinite(self, fault: SimulatedFault) -> None:
        """All ranks go wrong together in the next step; a check names that step some steps later."""
        if not self.is_stepping:
            return
        self.taint_count += 1
        for name in self.serving:
            self.workers[name].taint = self.taint_count
        first = self.step + 1
        verdict = Assessment(
            question=Question.CORRECTNESS, verdict=Verdict.FAILED, symptom=Symptom.NONFINITE,
            onset_us=self.kernel.now_us, first_divergent_step=first, evidence=("values went wrong on all ranks",),
        )
        generation = self.generation
        self.kernel.after(
            fault.count * self.step_us, "nonfinite", lambda: self._tell_verdict(verdict, generation)
        )
