import pytest

from lastgood.contract.taxonomy import Cause, CauseStatus, DomainKind, FailureClass
from lastgood.contract.taxonomy import Symptom as TaxonomySymptom
from lastgood.recovery.crew import Standing, first_crew
from lastgood.recovery.diagnosis import Occurrence, diagnose, signature_of
from lastgood.recovery.quarantine import evicted_workers
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict


def seen(symptom: Symptom, *culprits: int, **fields) -> Assessment:
    return Assessment(
        question=Question.LIVENESS,
        verdict=Verdict.FAILED,
        symptom=symptom,
        culprits=culprits,
        **fields,
    )


def found(assessment: Assessment, *earlier: Occurrence, now_us: int = 100):
    return diagnose(assessment, earlier=earlier, window_us=50, now_us=now_us)


@pytest.mark.parametrize("symptom", list(Symptom))
def test_every_symptom_has_a_class_and_a_word_in_the_taxonomy(symptom):
    assert TaxonomySymptom(symptom.value)
    assert found(seen(symptom, 1)).failure_class in FailureClass


@pytest.mark.parametrize(
    ("symptom", "expected"),
    [
        (Symptom.PROCESS_EXIT, "fail_stop"), (Symptom.EXCEPTION, "fail_stop"), (Symptom.HANG, "fail_slow"),
        (Symptom.REPLICA_DIVERGENCE, "sdc"), (Symptom.NONFINITE, "sdc"),
    ],
)  # fmt: skip
def test_the_class_says_how_the_failure_shows_itself(symptom, expected):
    assert found(seen(symptom, 1)).failure_class.value == expected


def test_a_symptom_is_never_stored_as_a_cause():
    assert (found(seen(Symptom.HANG, 1)).cause, found(seen(Symptom.HANG, 1)).cause_status) == (
        Cause.UNKNOWN, CauseStatus.UNKNOWN,
    )  # fmt: skip
    assert found(seen(Symptom.EXCEPTION, 1)).cause_status is CauseStatus.HYPOTHESIS


def test_the_smallest_domain_is_the_rank():
    assert (found(seen(Symptom.HANG, 2)).domain, found(seen(Symptom.HANG, 2)).culprits) == (
        DomainKind.RANK,
        (2,),
    )


def test_the_same_signature_within_the_window_widens_to_the_host():
    again = Occurrence("hang/ranks 2", 50)
    assert (found(seen(Symptom.HANG, 2), again).domain, found(seen(Symptom.HANG, 2), again).return_count) == (
        DomainKind.HOST, 1,
    )  # fmt: skip


@pytest.mark.parametrize("other", [Occurrence("hang/ranks 1", 50), Occurrence("hang/ranks 2", 49)])
def test_another_rank_or_an_older_incident_does_not_widen(other):
    assert found(seen(Symptom.HANG, 2), other).domain is DomainKind.RANK


@pytest.mark.parametrize(
    ("assessment", "expected"),
    [
        (seen(Symptom.EXCEPTION, 2, key="ValueError"), "exception/ValueError"),
        (seen(Symptom.EXCEPTION, 0, key="ValueError"), "exception/ValueError"),
        (seen(Symptom.PROCESS_EXIT, 0, 3, key="signal 9"), "process_exit/ranks 0,3"),
        (seen(Symptom.NONFINITE, first_divergent_step=7), "nonfinite/step 7"),
        (seen(Symptom.GROUP_ERROR), "group_error/no culprit"),
    ],
)
def test_a_signature_says_what_counts_as_the_same_failure(assessment, expected):
    assert signature_of(assessment) == expected


def test_the_named_ranks_leave_and_the_host_is_every_rank():
    crew = first_crew(["a", "b", "c"], spare_count=0).moved(["c"], Standing.PARKED)
    exact = found(seen(Symptom.HANG, 1))
    assert evicted_workers(exact, crew) == ("b",)
    wide = found(seen(Symptom.HANG, 1), Occurrence("hang/ranks 1", 90))
    assert evicted_workers(wide, crew) == ("a", "b", "c")
    assert evicted_workers(exact, crew.moved(["b"], Standing.GONE)) == ()
    assert evicted_workers(found(seen(Symptom.GROUP_ERROR)), crew) == ()
