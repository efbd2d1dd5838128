"""The simulated job and its supervisor: answers the loop's actions with seeded delays, breaks on schedule.

The detectors are the real ones; only processes, memory and time are made up. What the loop is told is kept
apart from what is true, so that `invariants.py` can compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.policy import LoopPhase, RecoveryPolicy, simple_policy
from lastgood.recovery.simulated import breaking, pacing, rejoining, starting, stepping
from lastgood.recovery.simulated.invariants import Invariants
from lastgood.recovery.simulated.tape import Poison, SimulatedFault, draw_tape
from lastgood.recovery.simulated.workers import Being, Shelf, SimulatedWorker, StoredState
from lastgood.signals import correctness, liveness
from lastgood.signals.limits import Limits
from lastgood.signals.reading import (
    Assessment,
    Phase,
    ProcessState,
    Verdict,
)
from lastgood.sim.kernel import Kernel

LOOK_US = 200_000
HORIZON_US = 8_000_000
"""Faults begin within this time."""
END_US = 400_000_000
EVENT_COUNT_MAX = 60_000
LIMITS = Limits(
    step_floor_us=1_000_000,
    warmup_floor_us=3_000_000,
    section_floor_us=3_000_000,
    group_error_us=500_000,
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

    def __init__(
        self, seed: int, *, tape: Sequence[SimulatedFault] | None = None, size: int | None = None
    ) -> None:
        """Draw the job and its faults from the seed; a tape and a number of ranks may be given instead."""
        self.kernel = Kernel(seed)
        rng = self.kernel.stream("job")
        drawn = rng.choice([1, 2, 3, 4, 4, 4, 6])
        self.size = drawn if size is None else size
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
        self.is_stepping = False
        self.is_begun = False
        """Whether every rank has published state 0."""
        self.begun: set[int] = set()
        self.is_start_slow = rng.random() < 0.3
        """The ranks take their time until state 0: faults may strike before there is anything to restore."""
        self._nothing_is_wrong()
        self.stepped = [fault for fault in self.tape if fault.at_step is not None]
        self.pending = [fault for fault in self.tape if fault.at_step is None]
        self.armed: list[SimulatedFault] = []
        self.faults_left = len(self.tape)
        self.resumed_at_step: int | None = None
        self.state = loop.initial_state(
            self.size,
            None,
            names,
            self.spare_count,
            run=f"seed-{seed}",
            now_us=0,
            policy=simulated_policy(),
        )
        self.invariants = Invariants(self)
        self.trace: list[str] = []

    def _nothing_is_wrong(self) -> None:
        """What faults will change, before any of them."""
        self.plan: m.RestorePlan | None = None
        self.poisons: dict[int, Poison] = {}
        """Step -> where user code raises in it."""
        self.spares_late_until_us = 0
        self.has_spares_ever = True
        self.replays_differ = 0
        self.replays_raise = 0
        self.raising: set[int] = set()
        """Ranks that are about to raise in their replay."""
        self.replays_minority: list[int] = []
        self.stalls: set[int] = set()
        self.entered: set[int] = set()
        self.published: set[int] = set()
        self.taint_count = 0
        self.liveness = liveness.LivenessMemory()
        self.correctness = correctness.CorrectnessMemory(window_count=8)
        self.performance = pacing.first_memory()

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Lets the job run until its faults are over and it either goes on or was escalated."""
        for _ in range(self.spare_count):
            self._launch_spare()
        if self.is_start_slow:
            starting.begin(self, 1)
        else:
            for rank, worker in enumerate(self.serving):
                self.shelf.publish(rank, StoredState(0, 1, 0, 0))
                self.workers[worker].moved(Phase.BETWEEN, 0)
            self.is_stepping = self.is_begun = True
            stepping.begin_step(self)
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
        if (
            self.stepped
            or self.kernel.now_us < HORIZON_US
            or self.state.phase is not LoopPhase.RUNNING
        ):
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

    def delay(self, low_us: int, high_us: int) -> int:
        """A duration between the two bounds, drawn from this seed's stream of delays."""
        return self.kernel.stream("delays").randint(low_us, high_us)

    def later(self, low_us: int, high_us: int, observation: m.Observation) -> None:
        """Tells the loop something after a drawn delay."""
        self.kernel.after(
            self.delay(low_us, high_us), type(observation).__name__, lambda: self.tell(observation)
        )

    # --- the loop's actions -----------------------------------------------------------------------

    def _carry_out(self, action: m.Action) -> None:
        match action:
            case m.DumpStacks(workers):
                for worker in workers:
                    if self.delay(0, 9) > 1:
                        self.later(50_000, 1_500_000, m.StacksDumped(worker, f"{worker}.stack"))
            case m.Revoke(generation, workers):
                for worker in workers:
                    self.kernel.after(
                        self.delay(5_000, 200_000),
                        "revoke",
                        lambda w=worker, g=generation: self._park(w, g),
                    )
            case m.Kill(workers):
                for worker in workers:
                    self.kernel.after(
                        self.delay(1_000, 50_000), "kill", lambda w=worker: self._kill(w)
                    )
            case m.ReadCatalogue():
                self.kernel.after(
                    self.delay(1_000, 100_000), "catalogue", lambda: rejoining.read_catalogue(self)
                )
            case m.Assign(generation=generation, workers=workers, plan=plan):
                rejoining.assign(self, generation, workers, plan)
            case m.Resume(generation, step):
                rejoining.resume(self, generation, step)
            case m.RefillSpare(count):
                for _ in range(count):
                    self._launch_spare()
            case m.Record() | m.Escalate():
                pass

    def _launch_spare(self) -> None:
        name = f"w{self.name_count}"
        self.invariants.launched(name)
        self.name_count += 1
        ready_us = self.kernel.now_us + self.delay(500_000, 4_000_000)
        ready_us = max(ready_us, self.spares_late_until_us)
        is_stillborn = self.delay(0, 9) == 0 or not self.has_spares_ever
        self.kernel.after(
            ready_us - self.kernel.now_us,
            "spare",
            lambda: self._spare_up(name, is_stillborn=is_stillborn),
        )

    def _spare_up(self, name: str, *, is_stillborn: bool) -> None:
        if is_stillborn:
            self.tell(m.SpareLost(name))
            return
        self.workers[name] = SimulatedWorker(
            name=name, being=Being.SPARE, progress_us=self.kernel.now_us
        )
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
            self.later(100_000, 500_000, m.WorkerUnkillable(name))
            return
        breaking.die(self, worker)

    def is_whole(self, generation: int) -> bool:
        """Whether this is the newest generation and every rank of it can make progress."""
        return generation == self.generation and all(self.workers[w].is_able for w in self.serving)

    def tell_verdict(self, verdict: Assessment, generation: int) -> None:
        """Tells the loop a verdict about a generation, unless a newer one was formed meanwhile."""
        if generation == self.generation:
            self.tell(m.Assessed(verdict))

    # --- detectors --------------------------------------------------------------------------------

    def _look(self) -> None:
        self.kernel.after(LOOK_US, "look", self._look)
        readings = [
            self.workers[name].reading(rank, step=self.step)
            for rank, name in enumerate(self.serving)
        ]
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
            breaking.strike(self, fault)
        else:
            self.armed.append(fault)

    def _fire_armed(self, phase: LoopPhase) -> None:
        due = [fault for fault in self.armed if fault.phase is phase]
        self.armed = [fault for fault in self.armed if fault.phase is not phase]
        for fault in due:
            self.kernel.after(
                fault.delay_us, f"fault {fault.kind}", lambda f=fault: breaking.strike(self, f)
            )
