"""The injector's log beside the ledger: each fault gets its own incident, or none."""

import json

import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.figures import FigureKind
from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape
from lastgood.ledger.event import Verification, new_event
from lastgood.training.drills.judging import annotations, judge

CLOCK = ManualClock(10_000_000)


def fault(name, kind=FaultKind.SIGKILL, rank=1, step=5):
    return Fault(id=name, kind=kind, target=Target(rank=rank), when=When(step=step))


def tape(*faults):
    provenance = Provenance(kind=FigureKind.ASSUMED, source="test")
    return Tape(faults=faults, seed=0, provenance=provenance)


def event(kind, at_us, incident, **fields):
    return new_event(
        kind, clock=CLOCK, run="r", attempt=1, topology="t", versions={"a": "1"},
        t_occurred_us=at_us, t_observed_us=at_us, links={"incident": incident}, **fields,
    )  # fmt: skip


def incident(
    name, at_us, *, ranks=(1,), outcome="recovered", result="equal", lost_steps=0, dropped=False
):
    found = [
        event("incident.open", at_us, name, ranks=ranks, symptom="process_exit"),
        event("detect", at_us, name, ranks=ranks),
    ]
    if dropped:
        found.append(event("state.trust", at_us + 1, name, body={"step": 3, "state": "suspect"}))
    verification = Verification(test="replay", result=result, evidence="aa")
    found += [
        event("verify", at_us + 50, name, verification=verification),
        event(
            "incident.close", at_us + 60, name, ranks=ranks, verification=verification,
            body={"outcome": outcome, "lost_steps": lost_steps},
        ),
    ]  # fmt: skip
    return found


@pytest.fixture
def log(tmp_path):
    def write(*records, tail=""):
        path = tmp_path / "injector.jsonl"
        lines = [json.dumps({"fault": f, "outcome": o, "wall_us": t}) for f, o, t in records]
        path.write_text("\n".join(lines) + "\n" + tail)
        return path

    return write


def test_each_fault_gets_the_incident_between_it_and_the_next_fault(log):
    events = [*incident("i1", 1_100), *incident("i2", 2_300, ranks=(2,))]
    first, second = judge(
        log(("a", "fired", 1_000), ("b", "fired", 2_000)), events,
        tape=tape(fault("a"), fault("b", rank=2, step=9)),
    )  # fmt: skip
    assert (first.incident.id, first.detected_us, first.recovered_us) == ("i1", 100, 160)
    assert (second.incident.id, second.detected_us) == ("i2", 300)
    assert first.has_held
    assert second.has_held


def test_an_incident_before_the_fault_or_behind_the_next_one_is_not_its_own(log):
    events = [*incident("early", 900), *incident("late", 2_100)]
    first, second = judge(
        log(("a", "fired", 1_000), ("b", "fired", 2_000)), events,
        tape=tape(fault("a"), fault("b", step=9)),
    )  # fmt: skip
    assert (first.incident, first.has_held, first.detected_us, first.is_culprit_right) == (
        None,
        False,
        None,
        False,
    )
    assert second.incident.id == "late"


def test_a_fault_that_was_never_carried_out_has_not_held(log):
    (only,) = judge(log(("a", "skipped", 1_000)), incident("i1", 1_100), tape=tape(fault("a")))
    assert (only.injected_us, only.incident, only.has_held) == (None, None, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": (2,)},
        {"ranks": (1, 2)},
        {"outcome": "escalated"},
        {"result": "different"},
        {"lost_steps": 1},
    ],
    ids=str,
)
def test_the_wrong_rank_no_recovery_no_equal_replay_or_lost_steps_have_not_held(log, changes):
    (only,) = judge(
        log(("a", "fired", 1_000)), incident("i1", 1_100, **changes), tape=tape(fault("a"))
    )
    assert only.incident is not None
    assert not only.has_held


@pytest.mark.parametrize("dropped", [True, False])
def test_a_corrupt_snapshot_has_held_only_when_it_was_refused(log, dropped):
    (only,) = judge(
        log(("a", "fired", 1_000)), incident("i1", 1_100, dropped=dropped, lost_steps=1),
        tape=tape(fault("a", FaultKind.FLIP_SNAPSHOT)),
    )  # fmt: skip
    assert only.has_held is dropped


def test_without_a_log_nothing_was_carried_out(tmp_path):
    (only,) = judge(tmp_path / "none", incident("i1", 1_100), tape=tape(fault("a")))
    assert not only.has_held


def test_a_line_that_the_injector_did_not_finish_is_no_record(log):
    """It is ended by SIGKILL, perhaps in the middle of a line."""
    path = log(("a", "fired", 1_000), tail='{"fault": "b", "outc')
    first, second = judge(path, incident("i1", 1_100), tape=tape(fault("a"), fault("b", step=9)))
    assert first.has_held
    assert second.injected_us is None


def test_the_verdicts_become_annotations_of_their_incidents_and_one_of_the_run(log):
    events = incident("i1", 1_100)
    outcomes = judge(log(("a", "fired", 1_000)), events, tape=tape(fault("a"), fault("b", step=9)))
    first, second, twin = annotations(outcomes, events, is_bitwise_equal=False, steps=40)
    assert (first.incident, first.body["fault"], first.body["culprit_right"]) == ("i1", "a", True)
    assert (second.incident, second.body["injected_wall_us"]) == (None, None)
    assert (twin.body["twin"], twin.body["steps"], twin.run) == ("different", 40, "r")
