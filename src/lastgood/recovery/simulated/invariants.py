"""What must hold after every event, whatever went wrong.

Each rule compares what the loop ordered with what is true in the simulated world, or with what the loop
had been told by then. A broken rule stops the run with the command that replays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.contract.taxonomy import DomainKind, EventKind
from lastgood.fleet.inventory import Inventory, WorkerState
from lastgood.recovery import messages as m
from lastgood.recovery.crew import Standing
from lastgood.recovery.policy import LoopPhase
from lastgood.recovery.simulated.returning import Returning
from lastgood.recovery.simulated.workers import Being
from lastgood.signals.reading import Question, Symptom

if TYPE_CHECKING:
    from lastgood.recovery.simulated.world import World

_KINDS = frozenset(str(kind) for kind in EventKind)
_DURATIONS = ("detect_us", "diagnose_us", "isolate_us", "recover_us", "verify_us")


_OF_AN_INCIDENT = frozenset(
    {
        "detect",
        "diagnose",
        "isolate",
        "restore.begin",
        "restore",
        "verify",
        "state.trust",
        "escalate",
    }
)


class InvariantBrokenError(AssertionError):
    """A rule did not hold; the message ends with the command that replays the run."""


class Invariants:
    """The rules and what they have to remember."""

    def __init__(self, world: World) -> None:
        """Begin with generation 1, which is assigned and runs."""
        self.world = world
        self.announced: set[str] = set()
        self.inventory = Inventory()
        """The pool by the rules of `fleet`, fed with what the loop was told and what it ordered."""
        for rank, name in enumerate(world.serving):
            self.inventory = self.inventory.launch(name, host="h").park(name)
            self.inventory = self.inventory.activate(name, rank=rank)
        self.generation = 1
        self.plan: m.RestorePlan | None = None
        self.restored: dict[int, m.Restored] = {}
        self.replayed: dict[int, m.Replayed] = {}
        self.unkillable: set[str] = set()
        self.incident: str | None = None
        self.opened_us = 0
        self.onset_us = 0
        self.failed: set[tuple[int, m.Tier]] = set()
        self.planned: dict[tuple[int, m.Tier], int] = {}
        self.told_taints: dict[int, int] = {}
        """Taint -> the step from which on a verdict named it. An older state with the same taint was not named:
        that one is for the replay to find."""
        self.last_time_us = 0
        self.incident_count = 0
        self.recovered_count = 0
        self.revoked: set[tuple[int, str]] = set()
        self.returning = Returning(self)

    def fail(self, words: str) -> None:
        """Stops the run."""
        world = self.world
        raise InvariantBrokenError(
            f"{words} (at {world.kernel.now_us} us)\n"
            f"replay: python -m lastgood.recovery.simulated --seed {world.kernel.seed}"
        )

    def check(self, holds: bool, words: str) -> None:
        """Stops the run when a rule does not hold."""
        if not holds:
            self.fail(words)

    # --- what the loop is told --------------------------------------------------------------------

    def launched(self, name: str) -> None:
        """A spare is being started."""
        self.inventory = self.inventory.launch(name, host="h")

    def _end(self, name: str) -> None:
        """A process has ended; the process table and the detector may both say so."""
        if self.inventory.workers[name].state is not WorkerState.GONE:
            self.inventory = self.inventory.end(name)

    def _take_stock(self, observation: m.Observation) -> None:
        """Moves a worker in the inventory, which refuses every move that is not legal."""
        match observation:
            case m.SpareReady(worker) | m.WorkerParked(worker, _):
                self.inventory = self.inventory.park(worker)
            case m.SpareLost(worker) | m.WorkerGone(worker):
                self._end(worker)
            case m.Assessed(assessment) if assessment.symptom is Symptom.PROCESS_EXIT:
                for rank in assessment.culprits:
                    self._end(self.world.serving[rank])
            case m.WorkerUnkillable(worker):
                if self.inventory.workers[worker].state is WorkerState.ACTIVE:
                    self.inventory = self.inventory.suspect(worker)
                self.inventory = self.inventory.quarantine(worker, evidence="held by the kernel")
            case _:
                pass

    def before_step(self, observation: m.Observation) -> None:
        """Remembers what the loop has been told."""
        self._take_stock(observation)
        self.returning.hear(observation)
        match observation:
            case m.Restored() if observation.generation == self.generation:
                self.restored[observation.rank] = observation
                if not observation.is_intact and self.plan is not None:
                    self.failed.add((self.plan.target_step, self.plan.tier))
            case m.Replayed() if observation.generation == self.generation:
                self.replayed[observation.rank] = observation
                if observation.outcome is m.ReplayOutcome.DIFFERENT and self.plan is not None:
                    self.failed.add((self.plan.target_step, self.plan.tier))
            case m.WorkerUnkillable(worker):
                self.unkillable.add(worker)
            case m.Assessed(assessment) if assessment.question is Question.CORRECTNESS:
                if assessment.first_divergent_step is not None:
                    self._remember_taints(assessment.first_divergent_step)

    # --- what the loop orders ---------------------------------------------------------------------

    def on_action(self, action: m.Action) -> None:
        """Checks one action before it is carried out."""
        match action:
            case m.Assign():
                self._on_assign(action)
            case m.Resume():
                self._on_resume(action)
            case m.Record():
                self._on_record(action)
            case m.Kill(workers):
                self._on_kill(workers)
            case m.Revoke(generation, workers):
                serves = set(workers) <= set(self.world.serving)
                self.check(serves, f"{action} names a worker that serves nothing")
                self.check(
                    generation == self.generation, f"{action} in generation {self.generation}"
                )
                self.revoked |= {(generation, name) for name in workers}
            case m.Escalate():
                self.check(self.incident is None, "escalated, and the incident was left open")
            case _:
                pass

    def _on_kill(self, workers: tuple[str, ...]) -> None:
        """A rank is killed because it was named, shares a domain, or did not leave when it was told to."""
        state = self.world.state
        self.returning.on_kill(workers)
        for name in workers:
            self.check(name in self.world.serving, f"{name} is killed and serves nothing")
            rank = self.world.serving.index(name)
            is_named = state.case is not None and rank in state.case.culprits
            is_wide = state.case is not None and state.case.diagnosis.domain is DomainKind.HOST
            was_asked = (self.generation, name) in self.revoked
            has_left = self.world.workers[name].being is not Being.SERVING
            self.check(
                is_named or is_wide or was_asked or has_left,
                f"{name} was never told to leave generation {self.generation} and is killed",
            )

    def _on_assign(self, action: m.Assign) -> None:
        world = self.world
        self.check(
            action.generation > self.generation,
            f"generation {action.generation} after {self.generation}",
        )
        self.check(
            len(set(action.workers)) == world.size, f"a worker serves two ranks: {action.workers}"
        )
        for name in action.workers:
            worker = world.workers.get(name)
            if worker is None:
                self.fail(f"{name} was assigned before it existed")
                return
            was_serving = name in world.serving
            self.check(
                was_serving or name in self.announced, f"spare {name} serves before it was ready"
            )
            self.check(
                worker.being is not Being.SERVING,
                f"{name} is assigned while it still serves generation {worker.generation}",
            )
            self.check(name not in self.unkillable, f"{name} is held by the kernel and assigned")
        for rank, name in enumerate(world.serving):
            worker = world.workers[name]
            still_owns = worker.being is Being.SERVING and name not in self.unkillable
            self.check(
                not still_owns,
                f"rank {rank} would have two owners: {name} and {action.workers[rank]}",
            )
        key = (action.plan.target_step, action.plan.tier)
        self.check(
            key not in self.failed, f"state {key} failed in this incident and is tried again"
        )
        self.planned[key] = self.planned.get(key, 0) + 1
        bound = world.state.policy.target_attempts_max
        self.check(
            self.planned[key] <= bound,
            f"state {key} is tried {self.planned[key]} times in one incident",
        )
        self.check(
            not self._is_told_wrong(action.plan),
            f"state {key} is restored although it was reported to be wrong",
        )
        for rank, name in enumerate(action.workers):
            self.inventory = self.inventory.activate(name, rank=rank)
        self.returning.on_assign()
        self.generation = action.generation
        self.plan = action.plan
        self.restored, self.replayed = {}, {}

    def _remember_taints(self, first_step: int) -> None:
        world = self.world
        for taint in {world.workers[name].taint for name in world.serving} - {0}:
            self.told_taints[taint] = min(first_step, self.told_taints.get(taint, first_step))

    def _is_told_wrong(self, plan: m.RestorePlan) -> bool:
        since = self.told_taints.get(self._taint_of(plan))
        return since is not None and plan.target_step >= since

    def _taint_of(self, plan: m.RestorePlan) -> int:
        return int(plan.digest.partition(":")[2])

    def _on_resume(self, action: m.Resume) -> None:
        world = self.world
        plan = self.plan
        if plan is None or action.generation != self.generation:
            self.fail(f"{action} without a plan of that generation")
            return
        ranks = set(range(world.size))
        self.check(
            set(self.restored) == ranks,
            f"resumed before every rank restored: {sorted(self.restored)}",
        )
        self.check(
            all(a.is_intact for a in self.restored.values()),
            "resumed on bytes that were found wrong",
        )
        self.check(
            set(self.replayed) == ranks,
            f"resumed before every rank replayed: {sorted(self.replayed)}",
        )
        outcomes = {a.outcome for a in self.replayed.values()}
        self.check(
            m.ReplayOutcome.DIFFERENT not in outcomes,
            "resumed although a replay came out different",
        )
        self.check(
            action.step == plan.target_step,
            f"resumed at {action.step}, verified was {plan.target_step}",
        )
        self.check(
            not self._is_told_wrong(plan),
            "resumed from a state reported to be wrong",
        )
        # The newer states of this taint are computed anew, and nobody has said anything about those.
        self.told_taints.pop(self._taint_of(plan), None)

    def _on_record(self, action: m.Record) -> None:
        fields = action.fields
        self.check(action.kind in _KINDS, f"the taxonomy has no event {action.kind}")
        self.check(not _holds_float(fields), f"{action.kind} holds a float")
        observed = fields.get("t_observed_us")
        if isinstance(observed, int):
            self.check(
                observed <= self.world.kernel.now_us, f"{action.kind} was observed in the future"
            )
            self.check(
                observed >= self.last_time_us, f"{action.kind} is older than the record before it"
            )
            occurred = fields.get("t_occurred_us")
            self.check(
                isinstance(occurred, int) and occurred <= observed,
                f"{action.kind} was seen before it happened",
            )
            self.last_time_us = observed
        else:
            self.fail(f"{action.kind} has no time")
        if action.kind in _OF_AN_INCIDENT:
            is_of_it = self.incident is not None and fields.get("incident") == self.incident
            self.check(is_of_it, f"{action.kind} belongs to no open incident")
        self.returning.on_record(action)
        match action.kind:
            case "incident.open":
                self._on_open(fields)
            case "incident.close":
                self._on_close(fields)
            case "escalate":
                self._on_escalate(fields)
            case "restore":
                is_intact = all(answer.is_intact for answer in self.restored.values())
                self.check(is_intact, "bytes that were found wrong are recorded as intact")
                is_whole = len(self.restored) == self.world.size
                self.check(is_whole, "a silent rank is recorded as intact")

    def _on_open(self, fields: dict[str, object]) -> None:
        self.check(self.incident is None, "an incident opens while another is open")
        self.incident = str(fields["incident"])
        self.incident_count += 1
        self.opened_us = self.world.kernel.now_us
        self.onset_us = int(str(fields["t_occurred_us"]))
        self.failed, self.planned = set(), {}
        self.returning.on_open(str(fields["symptom"]))

    def _on_escalate(self, fields: dict[str, object]) -> None:
        """An isolation is given up only after every rank that did not leave was ordered to die."""
        body = fields["body"]
        assert isinstance(body, dict)
        spared = self.world.state.crew.serving_with(Standing.ACTIVE)
        if body["phase"] == "isolating":
            self.check(not spared, f"escalated before {spared} were killed: {body['reason']}")

    def _on_close(self, fields: dict[str, object]) -> None:
        self.check(fields.get("incident") == self.incident, "an incident closes that is not open")
        body = fields["body"]
        assert isinstance(body, dict)
        known = {name: fields[name] for name in _DURATIONS if name in fields}
        unfinished = body.get("unfinished_us", {})
        is_apart = not known.keys() & unfinished.keys()
        self.check(is_apart, f"{unfinished} is called complete")
        is_recovered = body["outcome"] == "recovered"
        self.check(is_recovered is not bool(unfinished), f"{body['outcome']} with {unfinished}")
        durations = [int(str(us)) for us in (*known.values(), *unfinished.values())]
        self.check(min(durations) >= 0, f"a negative duration: {durations}")
        total_us = self.world.kernel.now_us - self.onset_us
        self.check(sum(durations) == total_us, f"phases {durations} do not add up to {total_us} us")
        if is_recovered:
            self.recovered_count += 1
            self.returning.on_recovered(body["signature"])
            self.check(body["lost_steps"] >= 0, "lost steps are negative")
        self.incident = None

    # --- always -----------------------------------------------------------------------------------

    def after_event(self, name: str) -> None:
        """What holds at any moment."""
        self.returning.after_event()
        world = self.world
        state = world.state
        if self.incident is not None:
            self.check(
                world.kernel.now_us - self.opened_us <= self.incident_us_max,
                f"incident {self.incident} is still open after {world.kernel.now_us - self.opened_us} us",
            )
            self.check(state.deadline_us is not None, f"{state.phase} has no deadline after {name}")
        owners: set[int] = set()
        for worker in world.workers.values():
            if worker.being is Being.SERVING and worker.rank is not None:
                if worker.rank in owners:
                    self.fail(
                        f"rank {worker.rank} has two owners after {name}, one is {worker.name}"
                    )
                owners.add(worker.rank)

    @property
    def incident_us_max(self) -> int:
        """The longest that an incident may stay open: every phase at its limit, in every attempt."""
        policy = self.world.state.policy
        limits = [row.timeout_us or 0 for row in policy.rows.values()]
        one_us = (
            policy.soft_deadline_us
            + sum(limits)
            + (policy.rows[LoopPhase.RESTORING].timeout_us or 0)
        )
        return (policy.attempts_max + 1) * one_us + 2_000_000

    def at_end(self) -> None:
        """Every incident closed or was escalated, and a job that was not escalated goes on."""
        world = self.world
        self.check(self.incident is None, f"the run ended inside incident {self.incident}")
        if world.state.phase is LoopPhase.ESCALATED:
            return
        self.check(world.state.phase is LoopPhase.RUNNING, f"the run ended in {world.state.phase}")
        self.check(world.step > (world.resumed_at_step or 0), "the run went on and made no step")


def _holds_float(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_float(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_float(item) for item in value)
    return isinstance(value, float)
