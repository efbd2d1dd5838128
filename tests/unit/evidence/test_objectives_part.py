"""Objectives and budgets against a run: held, not held, and unknown, which is never held."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from lastgood.base.figures import measured
from lastgood.contract.load import parse_contract
from lastgood.contract.starter import starter_value
from lastgood.evidence.objectives_part import judge, objectives_section
from lastgood.evidence.stops_part import class_table
from lastgood.ledger.ettr import measure_run
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS


def contract_with(*objectives, budgets=(), no_data="unknown"):
    value = starter_value("training")
    value["spec"] |= {"objectives": list(objectives), "budgets": list(budgets), "noData": no_data}
    return parse_contract(json.dumps(value))


def times_of(events):
    return measure_run(events, run=events[0].run, as_of_us=events[-1].t_observed_us)


def judged(objective, events=None, **options):
    events = sample_run.five_faults(is_injected=False) if events is None else events
    contract = contract_with(objective, **options)
    return judge(contract.spec.objectives[0], contract, times_of(events))


def detection(limit, share="95%", **more):
    return {"name": "d", "indicator": "detection_time", "percentile": share, "limit": limit, **more}


# The detection times of the five faults are 52, 48, 1350, 70 and 21 ms.


@pytest.mark.parametrize(
    ("objective", "state"),
    [
        (detection("1350ms"), "held"),
        (detection("1349ms"), "not_held"),
        (detection("70ms", share="80%"), "held"),
        (detection("69ms", share="80%"), "not_held"),
        (detection("5s", minCount=6), "unknown"),
        ({"name": "l", "indicator": "lost_steps", "limit": 1}, "held"),
        ({"name": "l", "indicator": "lost_steps", "limit": 0}, "not_held"),
        ({"name": "c", "indicator": "escaped_corruption", "limit": 0}, "held"),
        ({"name": "e", "indicator": "ettr", "target": 0.8}, "held"),
        ({"name": "e", "indicator": "ettr", "target": 0.97}, "not_held"),
    ],
)
def test_an_objective_is_judged_by_what_was_seen(objective, state):
    assert judged(objective).state == state


def test_an_incident_without_a_time_can_still_break_the_limit():
    limit = {"name": "r", "indicator": "recovery_time", "percentile": "95%", "limit": "1h"}
    assert judged(limit, sample_run.still_running()).state == "unknown"


def test_an_open_incident_leaves_lost_steps_unknown():
    assert (
        judged(
            {"name": "l", "indicator": "lost_steps", "limit": 5}, sample_run.still_running()
        ).state
        == "unknown"
    )


def test_no_incident_at_all_proves_no_limit_on_lost_steps():
    assert (
        judged({"name": "l", "indicator": "lost_steps", "limit": 5}, sample_run.undisturbed()).state
        == "unknown"
    )


def test_a_corrupt_state_without_an_accepted_verification_has_escaped():
    faults = (*FAULTS[:4], dataclasses.replace(FAULTS[4], result="different"))
    answer = judged(
        {"name": "c", "indicator": "escaped_corruption", "limit": 0},
        sample_run.five_faults(faults=faults, is_injected=False),
    )
    assert (answer.state, answer.seen.value) == ("not_held", 1)


@pytest.fixture
def half_unknown():
    """100 steps of 150 ms, then 15 s of which no record tells anything, then a bad end: known 15 s of 34 s productive."""
    record = sample_run.Recorder(is_injected=False)
    record.begin()
    record.steps(1, 100)
    record.now_us += 15_000_000
    record.end(exit_code=1)
    return record.events


@pytest.mark.parametrize(
    ("no_data", "target", "state"),
    [
        ("unknown", 0.4, "held"),
        ("unknown", 0.8, "unknown"),  # 15 of 34 s known good, 15 more could be
        ("unknown", 0.9, "not_held"),  # even if all unknown time were good: 30 of 34
        ("bad", 0.8, "not_held"),
        ("exclude", 0.78, "held"),  # 15 of 19 s
        ("exclude", 0.8, "not_held"),
    ],
)
def test_time_without_records_counts_as_the_contract_says_and_never_as_good(
    half_unknown, no_data, target, state
):
    assert (
        judged(
            {"name": "e", "indicator": "ettr", "target": target}, half_unknown, no_data=no_data
        ).state
        == state
    )


def recovery(limit, share):
    return {"name": "r", "indicator": "recovery_time", "percentile": share, "limit": limit}


def one_escalated():
    """The five faults, the last of which says that it escalated, with the zero that older runs wrote."""
    events = sample_run.five_faults(is_injected=False)
    at = max(n for n, e in enumerate(events) if e.kind == "incident.close")
    body = {**events[at].body, "outcome": "escalated"}
    return [
        msgspec.structs.replace(e, recover_us=0, body=body) if n == at else e
        for n, e in enumerate(events)
    ]


def test_a_recovery_that_never_happened_is_not_a_fast_one():
    events = one_escalated()
    known = sorted(i.recover_us for i in times_of(events).incidents if i.outcome == "recovered")
    assert len(known) == 4
    seen = judged(recovery("1h", "95%"), events)
    assert (seen.state, seen.seen.value, seen.seen.n) == ("not_held", None, 4)
    assert "1 of them never recovered" in seen.why
    seen = judged(recovery("1h", "50%"), events)
    assert (seen.state, seen.seen.value) == ("held", known[2])


def test_the_table_and_the_objective_mean_the_same_recovery_time():
    events = one_escalated()
    times = times_of(events)
    one_class = [dataclasses.replace(i, class_="fail_stop") for i in times.incidents]
    exposure = measured("exposure", 1.0, "device-h", source="joins")
    table = class_table(one_class, exposure=exposure, as_of_us=1, rule="links", wall=times.wall)
    row = dict(zip((c.title for c in table.columns), table.rows[1], strict=True))
    assert row["Recover"].value == judged(recovery("1h", "50%"), events).seen.value
    assert row["To next step"].n == len(one_class) - 1  # the escalated one has none


def budget(count_max, alpha=0.05):
    return {
        "name": "b",
        "kind": "count",
        "counts": ["fail_stop"],
        "max": count_max,
        "per": "1h",
        "exposure": "run_hours",
        "alpha": alpha,
    }


def answer_of(budgets, events, *, is_injected=False):
    section = objectives_section(
        contract_with(budgets=budgets), times_of(events), is_injected=is_injected
    )
    (row,) = section.tables[0].rows
    return row[6]


def test_a_count_budget_is_judged_by_its_exact_tail():
    # Two fail-stop incidents in 71 s. Under 1 per hour that has P = 1.9e-4; under 200 per hour about 0.9.
    events = sample_run.five_faults(is_injected=False)
    assert answer_of([budget(1)], events) == "✗ not held"
    assert answer_of([budget(200)], events) == "✓ held"


def test_a_budget_is_not_judged_by_faults_on_purpose():
    assert answer_of([budget(1)], sample_run.five_faults(), is_injected=True) == "· not judged"


def test_a_contract_without_objectives_says_so():
    section = objectives_section(contract_with(), times_of(sample_run.undisturbed()))
    assert "not declared" in section.notes[0].text
