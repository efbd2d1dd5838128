"""A made-up but complete run, event by event as the working ledger would hold it: four ranks, one spare, five faults.

The numbers that tests compare against are the constants and arguments here, not what the code prints. Times are
microseconds; the clock starts at a fixed instant and moves only where this file moves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from lastgood.contract.taxonomy import TAXONOMY_ID
from lastgood.ledger.event import Event

START_US = 1_796_004_000_000_000
STEP_US = 150_000
WARMUP_US = 4_000_000
WORLD = 4
RUN = "demo-20261130-020000"
VERSIONS = {"lastgood": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault with the durations of its five phases (microseconds) and what it costs."""

    at_step: int
    rank: int
    title: str
    class_: str
    symptom: str
    signature: str
    detect_us: int
    diagnose_us: int
    isolate_us: int
    restart_us: int
    restore_us: int
    verify_us: int
    lost_steps: int = 0
    first_divergent_step: int | None = None
    tier: str = "slot"
    result: str = "equal"
    evidence: tuple[str, ...] = ()


FAULTS = (
    Fault(
        at_step=60,
        rank=2,
        title="SIGKILL of a middle rank",
        class_="fail_stop",
        symptom="process_exit",
        signature="process_exit:rank2:-9",
        detect_us=52_000,
        diagnose_us=3_000,
        isolate_us=61_000,
        restart_us=240_000,
        restore_us=180_000,
        verify_us=410_000,
        evidence=("rank 2 (w2) ended by signal 9",),
    ),
    Fault(
        at_step=130,
        rank=0,
        title="SIGKILL of rank 0",
        class_="fail_stop",
        symptom="process_exit",
        signature="process_exit:rank0:-9",
        detect_us=48_000,
        diagnose_us=2_000,
        isolate_us=58_000,
        restart_us=260_000,
        restore_us=175_000,
        verify_us=430_000,
        evidence=("rank 0 (w0) ended by signal 9",),
    ),
    Fault(
        at_step=200,
        rank=1,
        title="SIGSTOP",
        class_="fail_slow",
        symptom="hang",
        signature="hang:rank1:stopped",
        detect_us=1_350_000,
        diagnose_us=640_000,
        isolate_us=95_000,
        restart_us=280_000,
        restore_us=190_000,
        verify_us=420_000,
        evidence=(
            "ranks 0, 2 and 3 wait in collective 801",
            "rank 1 has not entered collective 801",
            "/proc says that rank 1 (w1) is stopped",
        ),
    ),
    Fault(
        at_step=270,
        rank=3,
        title="corrupt newest snapshot",
        class_="sdc",
        symptom="snapshot_mismatch",
        signature="snapshot_mismatch:rank3:270",
        detect_us=70_000,
        diagnose_us=4_000,
        isolate_us=66_000,
        restart_us=250_000,
        restore_us=390_000,
        verify_us=440_000,
        lost_steps=1,
        evidence=("state 270 of rank 3 re-read as 9c01..., published as 4be2...",),
    ),
    Fault(
        at_step=330,
        rank=1,
        title="flipped parameter bit",
        class_="sdc",
        symptom="replica_divergence",
        signature="replica_divergence:rank1:331",
        detect_us=21_000,
        diagnose_us=2_500,
        isolate_us=60_000,
        restart_us=245_000,
        restore_us=185_000,
        verify_us=450_000,
        lost_steps=1,
        first_divergent_step=331,
        evidence=("after step 331 rank 1 published e01f..., ranks 0, 2 and 3 published 77a0...",),
    ),
)


@dataclass(slots=True)
class Recorder:
    """Writes events at a clock that it moves itself."""

    run: str = RUN
    world: int = WORLD
    is_injected: bool = True
    now_us: int = START_US
    attempt: int = 1
    events: list[Event] = field(default_factory=list)

    def add(self, kind: str, **fields: Any) -> Event:
        """Append one event at the present instant."""
        fields.setdefault("t_occurred_us", self.now_us)
        fields.setdefault("t_observed_us", self.now_us)
        if "incident" in fields:
            fields["links"] = {"incident": fields.pop("incident")}
        if "class_" in fields:
            fields["class"] = fields.pop("class_")
            fields.setdefault("taxonomy", TAXONOMY_ID)
        number = len(self.events)
        event = msgspec.convert(
            {
                "kind": kind,
                "id": f"{self.run}-{number:05d}",
                "seq": number,
                "run": self.run,
                "attempt": self.attempt,
                "t_recorded_us": self.now_us,
                "clock": {"id": "host-a", "source": "host", "boot_id": "b0"},
                "versions": VERSIONS,
                "topology": "4a91" * 16,
                **fields,
            },
            Event,
        )
        self.events.append(event)
        return event

    def begin(self) -> None:
        """Start of the run, the attempt and the exposure."""
        workers = {str(rank): f"w{rank}" for rank in range(self.world)}
        self.add(
            "run.start",
            body={
                "command": ["train.py"],
                "world": self.world,
                "spares": 1,
                "contract_digest": "0" * 64,
                "mode": "demo" if self.is_injected else "run",
                "host": "host-a",
                "state_bytes": 3_400_000,
            },
        )
        self.add("attempt.start", body={"world": self.world, "workers": workers})
        for rank in range(self.world):
            self.add(
                "exposure.join", devices=1, ranks=[rank], body={"worker": f"w{rank}", "rank": rank}
            )
        self.now_us += WARMUP_US

    def steps(self, first: int, last: int) -> None:
        """Accepted steps first..last, in chunks of at most 64."""
        while first <= last:
            end = min(last, first + 63)
            began_us = self.now_us
            ended = [began_us + STEP_US * (i + 1) for i in range(end - first + 1)]
            self.now_us = ended[-1]
            self.add(
                "step", body={"first": first, "last": end, "began_us": began_us, "ended_us": ended}
            )
            first = end + 1

    def incident(self, fault: Fault, number: int) -> int:
        """The whole chain of one incident; returns the step after which the run goes on."""
        self.open(fault, number)
        name, ranks = self._name(number), [fault.rank]
        self.now_us += fault.diagnose_us
        self.add(
            "diagnose",
            incident=name,
            ranks=ranks,
            diagnose_us=fault.diagnose_us,
            body={"culprits": ranks, "stacks": []},
        )
        self.now_us += fault.isolate_us
        self.add(
            "isolate",
            incident=name,
            ranks=ranks,
            body={
                "killed": [f"w{fault.rank}"],
                "parked": [f"w{r}" for r in range(self.world) if r != fault.rank],
            },
        )
        self.add("attempt.end", body={"reason": "incident"})
        self.attempt += 1
        self.add("attempt.start", body={"world": self.world, "workers": {}})
        self.now_us += fault.restart_us
        return self.restore(fault, number)

    def open(self, fault: Fault, number: int) -> None:
        """The onset and its detection: half a step was under way."""
        onset_us = self.now_us
        self.now_us += fault.detect_us
        self.add(
            "incident.open",
            t_occurred_us=onset_us,
            incident=self._name(number),
            class_=fault.class_,
            symptom=fault.symptom,
            cause=None,
            cause_status="unknown",
            role="initiating",
            ranks=[fault.rank],
            domain=[{"kind": "rank", "id": str(fault.rank)}, {"kind": "host", "id": "host-a"}],
            first_divergent_step=fault.first_divergent_step,
            body={"evidence": list(fault.evidence), "signature": fault.signature}
            | ({"injected": True} if self.is_injected else {}),
        )
        self.add(
            "detect",
            t_occurred_us=onset_us,
            incident=self._name(number),
            ranks=[fault.rank],
            detect_us=fault.detect_us,
        )

    def restore(self, fault: Fault, number: int) -> int:
        """Restore, replay, verify, close."""
        name, resumed = self._name(number), fault.at_step - fault.lost_steps
        if fault.first_divergent_step is not None:
            resumed = fault.first_divergent_step - 1
        self.add(
            "restore.begin",
            incident=name,
            body={"plan": {"tier": fault.tier, "restore_step": resumed - 1}},
        )
        self.now_us += fault.restore_us
        recover_us = fault.restart_us + fault.restore_us
        self.add(
            "restore",
            incident=name,
            recover_us=recover_us,
            body={"step": resumed - 1, "tier": fault.tier, "intact": True},
        )
        self.now_us += fault.verify_us
        verification = {
            "test": f"replay step {resumed} on every rank",
            "result": fault.result,
            "evidence": "77a0" * 16,
        }
        self.add(
            "verify",
            incident=name,
            verification=verification,
            verify_us=fault.verify_us,
            body={"step": resumed, "target": resumed, "mode": "predecessor"},
        )
        if fault.result != "different":
            self.add(
                "state.trust",
                body={
                    "step": resumed,
                    "tier": fault.tier,
                    "state": "verified",
                    "reason": "replayed",
                },
            )
        total_us = (
            fault.detect_us
            + fault.diagnose_us
            + fault.isolate_us
            + recover_us
            + fault.verify_us
            + fault.lost_steps * STEP_US
        )
        self.add(
            "incident.close",
            incident=name,
            detect_us=fault.detect_us,
            diagnose_us=fault.diagnose_us,
            isolate_us=fault.isolate_us,
            recover_us=recover_us,
            verify_us=fault.verify_us,
            lost_device_us=total_us * self.world,
            checkpoint_age_us=STEP_US,
            verification=verification,
            first_divergent_step=fault.first_divergent_step,
            body={"lost_steps": fault.lost_steps, "resumed_step": resumed, "outcome": "recovered"},
        )
        return resumed

    def end(self, *, exit_code: int = 0) -> None:
        """Leave the exposure and end the run."""
        for rank in range(self.world):
            self.add(
                "exposure.leave", devices=1, ranks=[rank], body={"worker": f"w{rank}", "rank": rank}
            )
        self.add("attempt.end", body={"reason": "finished"})
        result = "failed" if exit_code else "finished"
        self.add("run.end", body={"exit_code": exit_code, "result": result})

    def _name(self, number: int) -> str:
        return f"{self.run}-i{number}"


def five_faults(
    *, last_step: int = 400, faults: tuple[Fault, ...] = FAULTS, **options: Any
) -> list[Event]:
    """The whole run: every fault in turn, recovered and verified, to the last step."""
    record, next_step = Recorder(**options), 1
    record.begin()
    for number, fault in enumerate(faults, start=1):
        # A flipped bit shows after the step that it spoiled; the others strike between two steps.
        done = fault.first_divergent_step or fault.at_step
        record.steps(next_step, done)
        next_step = record.incident(fault, number) + 1
    record.steps(next_step, last_step)
    record.end()
    return record.events


def undisturbed(*, last_step: int = 200) -> list[Event]:
    """A run in which nothing failed."""
    return five_faults(faults=(), last_step=last_step, is_injected=False, run="quiet-1")


def still_running() -> list[Event]:
    """A run whose second incident is being restored, with no end."""
    record = Recorder(run="running-1", is_injected=False)
    record.begin()
    record.steps(1, 60)
    resumed = record.incident(FAULTS[0], 1)
    record.steps(resumed + 1, 130)
    record.open(FAULTS[1], 2)
    record.now_us += 2_000_000
    return record.events
