"""Runs with everything that a supervisor, or an observer, writes: workers, checkpoints, remarks, states and stacks.

They are made of `sample_run`; each constant here is what the tests expect to read in the report.
"""

from __future__ import annotations

from lastgood.ledger.event import Event
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS, Recorder

LAUNCH_US = 2_500_000
"""From the launch of a worker until it is ready."""
CHECKPOINT_US = (800_000, 1_000_000, 900_000, 1_200_000)
"""How long each committed checkpoint took to write."""
BYTES = 3_400_000
BLOCKED_US = 300_000
"""How long the job waited for its own blocking checkpoint."""
USUAL = (
    "DistributedDataParallel.forward (torch/nn/parallel/distributed.py:1886)",
    "train_step (train.py:86)",
    "<module> (train.py:130)",
)
ODD = ("read (socket.py:706)", "fetch (data.py:41)", "train_step (train.py:80)", "<module> (train.py:130)")  # fmt: skip


def py_spy(frames: tuple[str, ...]) -> str:
    """The frames as py-spy prints them for one process."""
    head = "Process 4711: python train.py\nPython v3.11.7\n\n"
    return f'{head}Thread 4711 (idle): "MainThread"\n' + "".join(f"    {f}\n" for f in frames)


def crew(record: Recorder) -> None:
    """Four workers and a spare are launched and become ready; the attempt names the four."""
    names = [f"w{n}" for n in range(record.world + 1)]
    for name in names:
        record.add("inventory", body={"worker": name, "state": "launching", "pid": 1})
    record.now_us += LAUNCH_US
    record.add("attempt.start", body={"world": record.world, "workers": {str(n): f"w{n}" for n in range(record.world)}})  # fmt: skip
    record.add("inventory", body={"worker": names[-1], "state": "parked"})


def checkpoint(record: Recorder, step: int, took_us: int, *, reason: str | None = None) -> None:
    """One write beside the training, to its commit or its failure."""
    record.add("checkpoint.begin", body={"step": step, "path": f"step-{step:09d}"})
    record.now_us += took_us
    if reason is None:
        record.add("checkpoint.commit", body={"step": step, "path": f"step-{step:09d}", "bytes": BYTES})  # fmt: skip
    else:
        record.add("checkpoint.fail", body={"step": step, "reason": reason})


def dump(record: Recorder, worker: str, frames: tuple[str, ...]) -> None:
    record.add("observation", body={"what": "stack dump", "worker": worker, "text": py_spy(frames)})


def full(*, is_injected: bool = False) -> list[Event]:
    """Three incidents: a killed rank, a hang of which all stacks are known, and a diverged replica."""
    record = Recorder(is_injected=is_injected, run="full-1")
    record.begin()
    del record.events[1]  # the attempt: it starts when its crew is ready
    crew(record)
    record.steps(1, 50)
    for n, took_us in enumerate(CHECKPOINT_US):
        checkpoint(record, 20 + n, took_us)
        record.steps(51 + n, 51 + n)
    checkpoint(record, 30, 400_000, reason="[Errno 28] No space left on device")
    record.add("checkpoint.begin", body={"step": 40, "path": "step-000000040"})
    record.steps(55, 58)
    record.add("section.begin", body={"name": "save", "state": "checkpoint.blocking"})
    record.now_us += BLOCKED_US
    record.add("section.end", body={"name": "save", "state": "checkpoint.blocking"})
    record.steps(59, 60)
    record.add(
        "annotation", symptom="numeric_jump", ranks=[1],
        body={"text": "correctness: suspect", "evidence": ["loss of rank 1 is 9.1 times the median"]},
    )  # fmt: skip
    killed, hung, diverged = FAULTS[0], FAULTS[2], FAULTS[4]
    record.incident(killed, 1)
    replaced(record, gone="w2", spare="w4", fresh="w5", rank=2)
    record.steps(61, 200)
    hang(record, hung, 2)
    replaced(record, gone="w1", spare="w5", fresh="w6", rank=1)
    record.steps(201, 331)
    record.add(
        "state.trust",
        body={"step": 331, "tier": "slot", "state": "tainted", "reason": "not older than the first divergent step"},
    )  # fmt: skip
    record.add(
        "state.trust",
        body={"step": 328, "tier": "checkpoint", "state": "suspect", "reason": "re-read bytes hash to something else"},
    )  # fmt: skip
    resumed = record.incident(diverged, 3)
    record.steps(resumed + 1, 400)
    record.end()
    return record.events


def replaced(record: Recorder, *, gone: str, spare: str, fresh: str, rank: int) -> None:
    """A spare takes the rank of a worker that is gone, and a new one is launched and parks."""
    record.add("inventory", body={"worker": gone, "state": "gone", "exit": "signal 9"})
    record.add("inventory", body={"worker": spare, "state": "active", "rank": rank})
    record.add("inventory", body={"worker": fresh, "state": "launching", "pid": 1})
    record.now_us += LAUNCH_US
    record.add("inventory", body={"worker": fresh, "state": "parked"})


def hang(record: Recorder, fault: sample_run.Fault, number: int) -> None:
    """The chain of an incident, with the stacks of all four workers taken while it is diagnosed."""
    before = len(record.events)
    record.incident(fault, number)
    # The dumps come between detection and isolation, so they are put in at the instant of the detection.
    detected = next(e for e in record.events[before:] if e.kind == "detect")
    now_us, record.now_us = record.now_us, detected.t_observed_us + 1_000
    for worker, frames in (("w0", USUAL), ("w1", ODD), ("w4", USUAL), ("w3", USUAL)):
        dump(record, worker, frames)
    record.now_us = now_us


GROUPS = [
    {"role": "trainer", "ranks": [0, 2, 3], "pids": [10, 12, 13], "is_usual": True, "is_outlier": False, "stack": list(USUAL)},
    {"role": "trainer", "ranks": [1], "pids": [11], "is_usual": False, "is_outlier": True, "stack": list(ODD)},
]  # fmt: skip


def observed(*, outcome: str = "resolved", last_outcome: str = "ended") -> list[Event]:
    """A run that was only watched: a hang that resolved itself, then a rank that ended and the job with it."""
    record = Recorder(is_injected=False, run="observed-1")
    record.begin()
    record.events[0].body["mode"] = "observe"
    record.steps(1, 100)
    watched(record, FAULTS[2], 1, outcome=outcome, groups=GROUPS, lasted_us=9_000_000)
    record.steps(101, 200)
    watched(record, FAULTS[0], 2, outcome=last_outcome, groups=[], lasted_us=1_000_000)
    record.add("attempt.end", body={"reason": "failed"})
    record.add("run.end", body={"exit_code": 1, "result": "failed"})
    return record.events


def watched(record: Recorder, fault, number: int, *, outcome: str, groups, lasted_us: int) -> None:
    """An incident as an observer writes it: neither isolated nor restored nor verified."""
    onset_us, name = record.now_us, f"{record.run}/1.{number}"
    record.now_us += fault.detect_us
    words = {
        "class_": fault.class_, "symptom": fault.symptom, "cause_status": "unknown", "role": "initiating",
        "ranks": [fault.rank], "incident": name,
    }  # fmt: skip
    body = {"evidence": list(fault.evidence), "signature": fault.signature}
    record.add("incident.open", t_occurred_us=onset_us, **dict(words), body={**body, "observed_only": True})  # fmt: skip
    record.add("detect", t_occurred_us=onset_us, **dict(words), detect_us=fault.detect_us, body=body)  # fmt: skip
    record.now_us += fault.diagnose_us
    outliers = [1] if groups else []
    record.add(
        "diagnose", incident=name, ranks=[fault.rank], diagnose_us=fault.diagnose_us,
        body={"culprits": [fault.rank], "stack_groups": groups, "outliers": outliers, "dumped": 4, "asked": 4},
    )  # fmt: skip
    record.now_us += lasted_us
    lost = {"lost_steps": 0} if outcome == "resolved" else {}
    record.add(
        "incident.close", incident=name, ranks=[fault.rank], detect_us=fault.detect_us, diagnose_us=fault.diagnose_us,
        body={"outcome": outcome, "resumed_step": 100, **lost},
    )  # fmt: skip
