"""What the recovery loop decided, done to real processes."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.recovery import messages
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.reading import ProcessState, Symptom
from lastgood.training import control
from lastgood.training.processes import own_niceness
from lastgood.training.states.catalogue import (
    DamagedHeader,
    damaged_headers,
    read_headers,
    slot_candidates,
)
from lastgood.training.supervising.beginning import INITIAL
from lastgood.training.supervising.hearing import observation_of
from lastgood.training.supervising.launch import golden_majority, refuse_worker
from lastgood.training.supervising.notify import notify
from lastgood.training.supervising.preparing import Preparing, published_steps
from lastgood.training.supervising.refilling import Refilling
from lastgood.training.supervising.shutdown import wait_for
from lastgood.training.supervising.standby_groups import StandbyGroups
from lastgood.training.watching.kernel import sample_process
from lastgood.training.watching.stacks import DUMP_S_MAX, StackDump

if TYPE_CHECKING:
    from lastgood.recovery.state import LoopState
    from lastgood.training.processes import WorkerProcess
    from lastgood.training.supervising.supervisor import Supervisor

_KILL_WAIT_US = 1_000_000
"""A killed process that is still in uninterruptible sleep after this is given up."""
_GONE_WAIT_US = 10_000_000
"""A killed process that is still there after this is given up, whatever the kernel says that it does."""


class Effects:
    """Carries out actions and reports back what becomes of them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._refilling = Refilling(supervisor)
        self.preparing = Preparing(supervisor)
        self.standby = StandbyGroups(supervisor)
        self._dumps: list[tuple[StackDump, int]] = []
        self._killed_us: dict[str, int] = {}
        self._last_facts: tuple[object, ...] = ()
        self._last_steps: list[int] = []
        self._proceeded = 0
        self._gone: set[str] = set()
        """Workers that have ended and are still named as serving."""
        self._dying: list[WorkerProcess] = []
        """Ended and replaced, and not yet taken apart by the kernel."""
        self._restored: dict[int, control.StateRestored] = {}
        """Rank -> what it said of its state and of what it has beside it, in the newest generation."""
        self._replays: dict[int, tuple[WorkerProcess, control.StepReplayed]] | None = None
        """Rank -> what came of the replay by buckets; None where the replay is not by buckets."""
        self._progress = os.open(supervisor.run_dir.progress, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_generation_up = True
        """False between a revocation and the next assignment: nobody serves, nobody can hang."""

    def carry_out(self, action: messages.Action) -> None:
        """Do one thing that the loop decided."""
        supervisor = self._supervisor
        match action:
            case messages.Record():
                supervisor.recorder.record_from_loop(action.kind, action.fields)
            case messages.DumpStacks():
                until_us = supervisor.now_us() + int(DUMP_S_MAX * 1e6)
                self._dumps += [
                    (StackDump(supervisor.workers[name], supervisor.run_dir.stacks), until_us)
                    for name in action.workers
                ]
            case messages.Kill():
                for name in action.workers:
                    supervisor.workers[name].kill()
                    self._killed_us[name] = supervisor.now_us()
            case messages.Revoke():
                self._revoke(action)
            case messages.ReadCatalogue():
                self.is_generation_up = False
                supervisor.tell_loop(messages.CatalogueRead(candidates=self._candidates()))
            case messages.Assign():
                self._assign(action)
            case messages.Resume():
                self._resume(action)
            case messages.RefillSpare():
                self._refilling.order(action.count)
            case messages.Escalate():
                recorder = supervisor.recorder
                recorder.write_held()  # a command may take 10 s, and is pointed to the ledger
                notify(
                    supervisor.contract,
                    recorder,
                    action,
                    ledger=supervisor.options.ledger,
                )

    def _revoke(self, action: messages.Revoke) -> None:
        """Tell the survivors to leave, and the spares which ranks they will probably serve."""
        self.is_generation_up = False
        self.preparing.revoke(action.workers, generation=action.generation)

    def _candidates(self) -> tuple[messages.Candidate, ...]:
        options = self._supervisor.options
        headers = read_headers(self._supervisor.run_dir, world=options.ranks)
        found = slot_candidates(headers, world=options.ranks)
        sign = self._supervisor.resumption.sign
        if sign is not None and not self._supervisor.has_gone_on:
            # Left by a supervisor that was killed: what it had not assessed was never part of the run.
            found = tuple(c for c in found if c.step <= sign.assessed_step)
        assert self._supervisor.state is not None, "the loop asked"
        self._report(damaged_headers(headers))
        generation = self._supervisor.state.generation
        found += self._supervisor.checkpointing.candidates(generation=generation)
        if not found and self._supervisor.is_before_first_state:
            return (INITIAL,)
        return found

    def _report(self, found: tuple[DamagedHeader, ...]) -> None:
        """A header that does not hold makes a state vanish from the list; the ledger must say why."""
        supervisor = self._supervisor
        state = supervisor.state
        for damaged in found:
            supervisor.recorder.record(
                "state.trust",
                incident=state.case.id if state is not None and state.case is not None else None,
                ranks=(damaged.rank,),
                symptom=Symptom.SNAPSHOT_MISMATCH.value,
                body={
                    "step": damaged.step,
                    "tier": messages.Tier.SLOT.value,
                    "state": "suspect",
                    "reason": f"the header of rank {damaged.rank} does not match its checksum",
                    "locator": damaged.path.name,
                },
            )

    def _assign(self, action: messages.Assign) -> None:
        supervisor = self._supervisor
        recorder = supervisor.recorder
        recorder.record("attempt.end", body={"reason": "fault"})
        previous = supervisor.serving
        recorder.attempt = action.generation
        supervisor.serving = action.workers
        supervisor.spares = [name for name in supervisor.spares if name not in action.workers]
        supervisor.raised.clear()
        supervisor.finished.clear()
        supervisor.leavers.begin_generation()
        self._restored.clear()
        self.preparing.begin_generation()
        self._replays = None
        is_first = action.plan.tier is messages.Tier.INITIAL
        supervisor.beginning.generation = action.generation if is_first else None
        plan = control.Plan(
            tier=action.plan.tier.value,
            mode=action.plan.mode.value,
            restore_step=action.plan.restore_step,
            target_step=action.plan.target_step,
            digest=action.plan.digest,
            locator=action.plan.locator,
        )
        standby = self.standby.case_of(action.workers)
        # First to who is new: a spare has the most to do.
        for rank, name in sorted(
            enumerate(action.workers), key=lambda served: served[1] == previous[served[0]]
        ):
            worker = supervisor.workers[name]
            worker.channel.send(
                control.Assignment(
                    generation=action.generation,
                    rank=rank,
                    world=len(action.workers),
                    plan=None if is_first else plan,
                    tolerance=supervisor.tolerance,
                    stripes=supervisor.stripe_count,
                    standby=standby,
                )
            )
            if supervisor.last_step is not None:
                worker.channel.send(control.StopAfter(step=supervisor.last_step))
        for name in set(action.workers) - set(previous):
            supervisor.workers[name].set_niceness(own_niceness())  # one that was not prepared
        supervisor.watch.begin_generation(action.generation, next_step=action.plan.target_step + 1)
        self._record_attempt(action.workers, previous)
        for name in self._gone & set(previous):
            self._close(supervisor.workers[name])
        supervisor.run_dir.retire_store(action.generation - 1)
        supervisor.run_dir.reserve_store(action.generation + 1)
        self.is_generation_up = True

    def _record_attempt(self, serving: tuple[str, ...], previous: tuple[str, ...]) -> None:
        """The new attempt begins, and who is at risk in it."""
        recorder = self._supervisor.recorder
        workers = {str(rank): name for rank, name in enumerate(serving)}
        recorder.record(
            "attempt.start",
            body={"world": len(workers), "workers": workers, "pids": self._supervisor.pids()},
        )
        for rank, name in enumerate(serving):
            if name == previous[rank]:
                continue
            left = {"worker": previous[rank], "rank": rank}
            recorder.record("exposure.leave", devices=1, ranks=(rank,), body=left)
            joined = {"worker": name, "rank": rank}
            recorder.record("exposure.join", devices=1, ranks=(rank,), body=joined)
            recorder.record("inventory", body={"worker": name, "state": "active", "rank": rank})

    def let_proceed(self, generation: int) -> None:
        """Every rank found its bytes right: they may form the group. Said once a generation."""
        if generation == self._proceeded:
            return
        self._proceeded = generation
        supervisor = self._supervisor
        said = list(self._restored.values())
        is_whole = len(said) == len(supervisor.serving)
        known = {message.buckets for message in said}
        has_buckets = is_whole and len(known) == 1 and "" not in known
        has_standby = is_whole and all(message.has_standby for message in said)
        self._replays = {} if has_buckets else None
        self._tell_serving(
            control.Proceed(generation=generation, has_buckets=has_buckets, has_standby=has_standby)
        )

    def _tell_serving(self, message: control.ToWorker) -> None:
        for name in self._supervisor.serving:
            self._supervisor.workers[name].channel.send(message)

    def hear(
        self,
        worker: WorkerProcess,
        message: control.Parked | control.StateRestored | control.StepReplayed,
    ) -> None:
        """Tell the loop what a worker says of its way into the next generation."""
        if message.generation == self._supervisor.recorder.attempt:
            if isinstance(message, control.StateRestored):
                self._restored[message.rank] = message
            elif isinstance(message, control.StepReplayed) and self._replays is not None:
                self._replays[message.rank] = worker, message
                self._settle_replays(self._replays)
                return
        self._supervisor.tell_loop(observation_of(worker, message))

    def _settle_replays(
        self, replays: dict[int, tuple[WorkerProcess, control.StepReplayed]]
    ) -> None:
        """Tell the loop of a replay by buckets when all ranks have made it; one that went wrong is made again."""
        supervisor = self._supervisor
        if len(replays) < len(supervisor.serving):
            return
        self._replays = None
        if all(message.is_by_buckets for _, message in replays.values()):
            for worker, message in replays.values():
                supervisor.tell_loop(observation_of(worker, message))
        else:
            self._tell_serving(control.ReplayAgain(generation=supervisor.recorder.attempt))

    def _resume(self, action: messages.Resume) -> None:
        supervisor = self._supervisor
        supervisor.begin_generation(action.generation, step=action.step)
        supervisor.abandon_checkpoints(action.step)
        self._tell_serving(control.Resumed(generation=action.generation, step=action.step))

    def admit_spare(self, worker: WorkerProcess) -> None:
        """A new worker has parked: it may serve if it computed the same bits as its peers."""
        supervisor = self._supervisor
        usual = golden_majority(
            [
                supervisor.workers[name].golden or ""
                for name in supervisor.serving
                if name in supervisor.workers
            ]
        )
        if worker.golden != usual:
            refuse_worker(supervisor, worker, usual=usual)
            return
        supervisor.spares.append(worker.name)
        supervisor.recorder.record("inventory", body={"worker": worker.name, "state": "parked"})
        supervisor.tell_loop(messages.SpareReady(worker.name))

    def forget(self, worker: WorkerProcess) -> None:
        """A process has ended and everybody who must know does."""
        supervisor = self._supervisor
        self._killed_us.pop(worker.name, None)
        if worker.name in supervisor.spares:
            supervisor.spares.remove(worker.name)
        if worker.name in supervisor.serving:
            self._gone.add(
                worker.name
            )  # the loop still asks for it, until its rank has another one
        else:
            self._close(worker)

    def _close(self, worker: WorkerProcess) -> None:
        self._gone.discard(worker.name)
        del self._supervisor.workers[worker.name]
        if worker.is_gone:
            worker.close()
        else:
            self._dying.append(worker)

    def poll(self) -> None:
        """Report stack dumps that are done and processes that the kernel will not let go."""
        self._refilling.poll()
        supervisor = self._supervisor
        for worker in [w for w in self._dying if w.is_gone]:
            self._dying.remove(worker)
            worker.close()
        now_us = supervisor.now_us()
        for dump, until_us in list(self._dumps):
            if dump.is_done() or now_us >= until_us:
                self._dumps.remove((dump, until_us))
                supervisor.tell_loop(
                    messages.StacksDumped(
                        dump.worker, self._keep_stacks(dump.finish(), dump.worker)
                    )
                )
        for name, killed_us in list(self._killed_us.items()):
            if now_us - killed_us < _KILL_WAIT_US or name not in supervisor.workers:
                continue
            state = sample_process(supervisor.workers[name].pid).state
            is_held = state is ProcessState.UNINTERRUPTIBLE
            if is_held or now_us - killed_us >= _GONE_WAIT_US:
                del self._killed_us[name]
                self._give_up(supervisor.workers[name], state)

    def _give_up(self, worker: WorkerProcess, state: ProcessState) -> None:
        """The kernel keeps a killed process. It never runs its own code again, so the run need not wait for it."""
        body = {"worker": worker.name, "state": "unkillable", "pid": worker.pid, "process": state}
        self._supervisor.recorder.record("inventory", body=body)
        self._supervisor.tell_loop(messages.WorkerUnkillable(worker.name))

    def _keep_stacks(self, locator: str, worker: str) -> str:
        """Put the stacks into the ledger, since the run's live files go away with the run."""
        if not locator:
            return ""
        text = Path(locator).read_text(errors="replace")
        self._supervisor.recorder.record(
            "observation", body={"what": "stack dump", "worker": worker, "text": text[:20_000]}
        )
        return Path(locator).name

    def close(self) -> None:
        """Release what outside readers look at, and whom the kernel still holds."""
        os.close(self._progress)
        for worker in self._dying:
            wait_for(self._supervisor, worker)
            worker.close()

    def publish_state(self) -> None:
        """Rewrite what outside readers see, when it changed."""
        supervisor = self._supervisor
        state = supervisor.state
        assert state is not None
        known = tuple(supervisor.workers)
        facts = (state.generation, state.phase, supervisor.serving, (*supervisor.spares,), known)
        if facts != self._last_facts:
            with suppress(OSError):  # no room: outside readers see the last one until there is
                supervisor.run_dir.write_state(self._told_state(state))
                self._last_facts = facts
        steps = published_steps(supervisor)
        if steps != self._last_steps:
            self._last_steps = steps
            os.pwrite(self._progress, struct.pack(f"<{len(steps)}q", *steps), 0)

    def _told_state(self, state: LoopState) -> dict[str, object]:
        """What outside readers see: it follows from the facts that `publish_state` compares."""
        supervisor = self._supervisor
        pids = {name: worker.pid for name, worker in supervisor.workers.items()}
        serving, spares = enumerate(supervisor.serving), supervisor.spares
        return {
            "generation": state.generation,
            "phase": state.phase.value,
            "ranks": {str(r): {"worker": n, "pid": pids[n]} for r, n in serving if n in pids},
            "slots_dir": str(supervisor.run_dir.root / "slots"),
            "spares_parked": len(spares) if state.phase is LoopPhase.RUNNING else 0,
            "spares": [{"worker": n, "pid": pids[n]} for n in spares if n in pids],
        }
