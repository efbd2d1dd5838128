"""One incident at a time: opened by a verdict, named once, closed by the job's own movement and by nothing else."""

from dataclasses import replace

import pytest

from lastgood.recovery.diagnosis import diagnose
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict
from lastgood.training.observe import case
from lastgood.training.watching.stack_groups import StackGroup

OK = Assessment(question=Question.LIVENESS, verdict=Verdict.OK)
SUSPECT = replace(OK, verdict=Verdict.SUSPECT, symptom=Symptom.SLOW)
HANG = replace(OK, verdict=Verdict.FAILED, symptom=Symptom.HANG, culprits=(1,), onset_us=400)
NOBODY = replace(HANG, verdict=Verdict.UNKNOWN, culprits=())
EXIT = replace(HANG, symptom=Symptom.PROCESS_EXIT, culprits=(2,), key="signal 9")
NEW = case.Book(run="r", host="h", world=4)


def look(book: case.Book, found: Assessment, now_us: int = 1_000, *, step: int = 7) -> case.Book:
    return case.look(book, found, now_us=now_us, at=case.Progress(step), attempt=1)


def kinds(book: case.Book) -> list[str]:
    return [said.kind for said in book.said]


def test_a_bad_verdict_opens_one_incident_with_its_onset_and_its_culprit():
    book = look(NEW, HANG)
    assert kinds(book) == ["incident.open", "detect"]
    assert book.said[1].fields["detect_us"] == 600
    assert book.said[0].fields["ranks"] == (1,)
    assert book.said[0].fields["incident"] == "r/1.1"
    assert kinds(look(book, HANG, 2_000)) == []


def test_what_was_seen_of_the_culprit_is_kept_for_whoever_gives_up():
    book = look(
        look(NEW, replace(NOBODY, evidence=("nobody yet",))),
        replace(HANG, evidence=("rank 1 stopped",)),
    )
    assert book.open is not None
    assert book.open.evidence == ("rank 1 stopped",)


@pytest.mark.parametrize("found", [OK, SUSPECT])
def test_nothing_is_opened_for_what_is_not_bad(found):
    assert kinds(look(NEW, found)) == []


def test_a_hang_that_ends_by_itself_is_resolved_and_lost_nothing():
    book = look(look(NEW, HANG), OK, 9_000, step=8)
    assert kinds(book) == ["incident.close"]
    assert book.said[0].fields["body"] == {
        "outcome": "resolved",
        "resumed_step": 8,
        "blast_radius": 4,
        "lost_steps": 0,
    }
    assert book.open is None


@pytest.mark.parametrize("found", [HANG, NOBODY, replace(NOBODY, symptom=Symptom.GROUP_ERROR)])
def test_nothing_is_resolved_before_a_step_of_all_ranks_follows(found):
    """The peers of a hung rank stop waiting when the time of their group is up, and nobody has moved."""
    book = look(look(NEW, found), OK, 9_000)
    assert kinds(book) == []
    assert book.open is not None
    assert kinds(look(book, OK, 10_000, step=8)) == ["incident.close"]


def test_a_job_without_steps_is_going_again_when_all_are_past_the_collective_that_it_stood_in():
    def at(last: int, foremost: int, found: Assessment, book: case.Book) -> case.Book:
        return case.look(book, found, now_us=9_000, at=case.Progress(0, last, foremost), attempt=1)

    book = at(4, 5, OK, at(4, 5, HANG, NEW))
    assert book.open is not None
    assert at(5, 5, OK, book).open is not None, "they may be about to leave it by an error"
    assert at(6, 6, OK, book).open is None


@pytest.mark.parametrize("symptom", list(Symptom))
def test_a_failure_has_the_class_that_it_has_in_act_mode(symptom):
    found = replace(HANG, symptom=symptom)
    acted = diagnose(found, earlier=(), window_us=1, now_us=1_000)
    assert look(NEW, found).said[0].fields["class_"] == acted.failure_class


def test_a_suspect_verdict_does_not_close_an_open_incident():
    assert look(look(NEW, HANG), SUSPECT).open is not None


def test_a_dead_process_does_not_come_back_by_an_ok():
    assert look(look(NEW, EXIT), OK).open is not None


def test_what_follows_is_the_cascade_of_the_same_incident_and_said_once():
    book = look(look(NEW, HANG), EXIT, 5_000)
    assert kinds(book) == ["observation"]
    assert book.said[0].fields["role"] == "cascade"
    assert book.said[0].fields["incident"] == "r/1.1"
    assert kinds(look(book, EXIT, 6_000)) == []


def test_a_name_that_comes_later_is_a_diagnosis():
    book = look(look(NEW, NOBODY), HANG, 5_000)
    assert kinds(book) == ["diagnose"]
    assert book.open is not None
    assert book.open.culprits == (1,)


def test_stacks_name_an_outlier_where_the_counts_named_nobody():
    odd = StackGroup(role="trainer", ranks=(3,), pids=(9,), stack=("f",), is_usual=False, is_outlier=True)  # fmt: skip
    usual = replace(odd, ranks=(0, 1, 2), pids=(6, 7, 8), is_usual=True, is_outlier=False)
    book = case.diagnosed(look(NEW, NOBODY), [usual, odd], asked=5, now_us=3_000)
    (said,) = book.said
    assert said.fields["ranks"] == (3,)
    assert said.fields["diagnose_us"] == 2_000
    assert (said.fields["body"]["dumped"], said.fields["body"]["asked"]) == (4, 5)


def test_two_incidents_of_a_run_have_two_names():
    book = look(look(look(NEW, HANG), OK, 2_000, step=8), HANG, 3_000, step=8)
    assert book.open is not None
    assert book.open.id == "r/1.2"


def test_the_end_of_the_job_closes_what_is_open():
    book = case.close(look(NEW, EXIT), now_us=4_000, step=7, outcome="ended", exit_code=137)
    assert book.said[0].fields["body"] == {
        "outcome": "ended",
        "resumed_step": 7,
        "blast_radius": 4,
        "exit_code": 137,
    }
    assert kinds(case.close(book, now_us=5_000, step=7, outcome="ended")) == []
