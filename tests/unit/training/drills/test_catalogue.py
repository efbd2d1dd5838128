"""The catalogue: names that a person can type, and jobs in which no drill spoils another."""

import dataclasses
import re
from collections import Counter

import pytest

from lastgood.base.errors import BadInput
from lastgood.faults.tape import parse_tape, write_tape
from lastgood.training.drills.catalogue import (
    DRILLS_PER_JOB_MAX,
    all_drills,
    chosen_drills,
    jobs_of,
)
from lastgood.training.drills.drill import Outcome
from lastgood.training.drills.play import tape_of
from lastgood.training.drills.verdict import EXIT_CODE

DRILLS = all_drills()


def test_every_drill_has_its_own_plain_name_an_owner_and_a_title():
    assert [n for n, count in Counter(d.name for d in DRILLS).items() if count > 1] == []
    for drill in DRILLS:
        assert re.fullmatch(r"[a-z0-9-]{3,32}", drill.name)
        assert drill.owner
        assert drill.title
    groups = {d.group for d in DRILLS}
    assert not groups & {d.name for d in DRILLS}, "a group and a drill share a name"


@pytest.mark.parametrize("drill", DRILLS, ids=lambda d: d.name)
def test_the_faults_of_every_drill_can_be_written_to_a_tape(drill, tmp_path):
    write_tape(tape_of([drill]), tmp_path / "tape")
    assert len(parse_tape((tmp_path / "tape").read_bytes()).faults) == len(drill.faults)


def test_every_drill_is_played_once():
    assert Counter(d.name for job in jobs_of(DRILLS) for d in job) == Counter(
        d.name for d in DRILLS
    )


@pytest.mark.parametrize("job", jobs_of(DRILLS), ids=lambda job: job[0].name)
def test_drills_that_share_a_job_want_the_same_job_and_are_different_failures(job, tmp_path):
    write_tape(tape_of(job), tmp_path / "tape")
    if len(job) == 1:
        return
    assert len(job) <= DRILLS_PER_JOB_MAX
    assert {d.run for d in job} == {job[0].run}
    assert {d.expect.outcome for d in job} == {Outcome.RECOVERED}
    assert not any(d.needs_process or d.is_alone for d in job)
    signatures = [(d.expect.symptom, d.expect.ranks) for d in job]
    assert len(set(signatures)) == len(signatures), "the second would be a recurrence of the first"


def test_a_failure_that_would_be_a_recurrence_gets_a_job_of_its_own():
    first = DRILLS[0]
    again = dataclasses.replace(first, name="the-same-again")
    assert [len(job) for job in jobs_of([first, DRILLS[1], again])] == [2, 1]


def test_a_drill_waits_until_the_one_before_has_settled():
    first, second = next(job for job in jobs_of(DRILLS) if len(job) > 1)[:2]
    tape = tape_of((first, second))
    begins = {fault.id: fault.when for fault in tape.faults}
    assert not begins[f"{first.name}/{first.faults[0].id}"].after_recovered
    assert begins[f"{second.name}/{second.faults[0].id}"].after_recovered
    assert begins[f"{second.name}/{second.faults[0].id}"].settle_steps > 0


def test_drills_are_chosen_by_name_or_group_in_the_order_of_the_catalogue():
    assert [d.name for d in chosen_drills("kill-rank-0, kill-rank")] == ["kill-rank", "kill-rank-0"]
    assert {d.group for d in chosen_drills("numerics")} == {"numerics"}
    assert chosen_drills(None) == DRILLS


@pytest.mark.parametrize(
    ("names", "says"), [("kil-rank", "write kill-rank"), ("", "--list"), ("zzzz", "--list")]
)
def test_an_unknown_drill_is_refused_with_what_to_type(names, says):
    with pytest.raises(BadInput, match=says):
        chosen_drills(names)


def test_every_outcome_but_observed_has_an_exit_code():
    """A job that is only watched ends with its own code, so each such drill says which."""
    assert set(Outcome) - set(EXIT_CODE) == {Outcome.OBSERVED}
    observed = [d for d in DRILLS if d.expect.outcome is Outcome.OBSERVED]
    assert len(observed) >= 3
    assert [d.name for d in observed if d.expect.exit_code is None] == []
