from __future__ import annotations

import random

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.event import Domain, Verification
from lastgood.ledger.grouping import LINKS, Rule, by_gap
from lastgood.ledger.incident import fold_incidents
from tests.unit.ledger.story import Story, us

TIMES = {
    "onset": 121, "detect": 130, "diagnose": 132, "isolate": 135, "begin": 139, "restore": 144, "verify": 150,
    "close": 151,
}  # fmt: skip
HOST, OTHER_HOST = {"kind": "host", "id": "h1"}, {"kind": "host", "id": "h2"}
RACK = {"kind": "rack", "id": "k1"}


def rank(number: int) -> dict[str, str]:
    return {"kind": "rank", "id": str(number)}


def test_an_incident_has_its_times_in_order_and_its_durations():
    (incident,) = fold_incidents(Story().start().incident("i1", **TIMES).events)
    assert (incident.id, incident.run, incident.class_, incident.symptom) == (
        "i1", "r1", "fail_stop", "process_exit",
    )  # fmt: skip
    times = (
        incident.onset_us, incident.detected_us, incident.diagnosed_us, incident.isolated_us,
        incident.restored_us, incident.verified_us, incident.closed_us,
    )  # fmt: skip
    assert times == tuple(us(second) for second in (121, 130, 132, 135, 144, 150, 151))
    durations = (
        incident.detect_us, incident.diagnose_us, incident.isolate_us, incident.recover_us, incident.verify_us,
    )  # fmt: skip
    assert durations == tuple(second * 1_000_000 for second in (9, 2, 3, 9, 6))
    assert (incident.ranks, incident.blast_radius, incident.outcome) == ((2,), 4, "recovered")
    assert incident.verification == Verification(test="replay", result="equal")
    assert not incident.is_open


def test_what_the_records_state_goes_before_the_difference_of_times():
    story = Story().incident("i1", **TIMES)
    story.tell("annotation", 152, incident="i1", detect_us=7, verify_us=0)
    (incident,) = fold_incidents(story.events)
    assert (incident.detect_us, incident.verify_us) == (7, 0)


def test_what_was_not_recorded_is_not_zero():
    story = Story()
    story.tell("incident.open", 10, incident="i1", class_="fail_slow", symptom="hang")
    (incident,) = fold_incidents(story.events)
    assert incident.is_open
    unknown = (
        incident.diagnose_us, incident.isolate_us, incident.recover_us, incident.verify_us, incident.lost_steps,
        incident.lost_device_us, incident.checkpoint_age_us, incident.first_divergent_step, incident.blast_radius,
        incident.outcome, incident.injected, incident.verification,
    )  # fmt: skip
    assert unknown == (None,) * 12


def test_the_newest_diagnosis_names_the_culprit():
    story = Story()
    story.tell("incident.open", 10, incident="i1", class_="fail_slow", symptom="hang", ranks=[0])
    story.tell("diagnose", 12, incident="i1", body={"culprits": [3]})
    story.tell("diagnose", 14, incident="i1", body={"culprits": [2, 1]})
    assert fold_incidents(story.events)[0].ranks == (1, 2)


def test_the_close_names_also_those_who_failed_behind_the_diagnosis():
    story = Story()
    story.tell("diagnose", 12, incident="i1", body={"culprits": [1]})
    story.tell("incident.close", 14, incident="i1", ranks=[3, 1])
    story.tell("annotation", 15, incident="i1", ranks=[0])
    assert fold_incidents(story.events)[0].ranks == (1, 3)
    story.tell("incident.close", 16, incident="i2")
    story.tell("diagnose", 15, incident="i2", body={"culprits": [2]})
    assert fold_incidents(story.events)[1].ranks == (2,)


def test_only_an_accepted_verification_is_one():
    story = Story()
    story.tell("detect", 10, incident="i1")
    story.tell("verify", 20, incident="i1", verification={"test": "replay", "result": "different"})
    assert fold_incidents(story.events)[0].verified_us is None
    story.tell(
        "verify", 30, incident="i1", verification={"test": "replay", "result": "within_tolerance"}
    )
    assert fold_incidents(story.events)[0].verified_us == us(30)


def test_the_cost_and_the_notes_come_from_wherever_they_were_recorded():
    story = Story()
    story.tell("incident.open", 10, incident="i1", class_="sdc", body={"evidence": ["rank 3 differs"], "injected": True})  # fmt: skip
    story.tell(
        "incident.close", 20, incident="i1", lost_device_us=0, checkpoint_age_us=5, first_divergent_step=41,
        cause="gpu.memory", cause_status="supported", body={"lost_steps": 2, "outcome": "escalated"},
    )  # fmt: skip
    (incident,) = fold_incidents(story.events)
    assert (incident.lost_steps, incident.lost_device_us, incident.checkpoint_age_us) == (2, 0, 5)
    assert (incident.first_divergent_step, incident.cause, incident.cause_status) == (
        41,
        "gpu.memory",
        "supported",
    )
    assert (incident.notes, incident.injected, incident.outcome) == (
        ("rank 3 differs",),
        True,
        "escalated",
    )


def test_an_escalated_incident_has_no_time_of_a_recovery_that_did_not_happen():
    story = Story()
    story.tell("detect", 10, incident="i1", t_occurred_us=us(8))
    story.tell("diagnose", 11, incident="i1")
    story.tell("isolate", 13, incident="i1")
    story.tell("restore", 20, incident="i1", recover_us=7_000_000)
    story.tell("diagnose", 21, incident="i1")
    story.tell("isolate", 24, incident="i1")
    story.tell(
        "incident.close", 30, incident="i1", diagnose_us=1, isolate_us=5, recover_us=0, verify_us=0,
        body={"outcome": "escalated"},
    )  # fmt: skip
    (incident,) = fold_incidents(story.events)
    assert (incident.diagnose_us, incident.isolate_us) == (1, 5)
    assert (incident.recover_us, incident.verify_us) == (None, None)


@pytest.mark.parametrize(
    ("ranks", "killed", "parked", "radius"),
    [
        ([1], [], ["w0"], 2),  # its process ended by itself: nobody had to kill it
        ([1], ["w1"], ["w0"], 2),  # an exception, a hang
        ([], [], ["w0", "w1"], 2),  # nobody is named
        ([1, 2], ["w1"], ["w0", "w3"], 4),  # one ended, one was killed
        ([1], ["w0", "w1", "w2"], ["w0"], 3),  # parked first, killed later
    ],
)
def test_everybody_who_had_to_stop_is_in_the_blast_radius(ranks, killed, parked, radius):
    story = Story()
    story.tell("incident.open", 10, incident="i1", ranks=ranks)
    story.tell("isolate", 13, incident="i1", body={"killed": killed, "parked": parked})
    assert fold_incidents(story.events)[0].blast_radius == radius
    workers = {str(rank): f"v{rank}" for rank in range(6)}
    story.tell("restore.begin", 14, incident="i1", body={"workers": workers})
    assert fold_incidents(story.events)[0].blast_radius == 6
    story.tell("incident.close", 15, incident="i1", body={"blast_radius": 7})
    assert fold_incidents(story.events)[0].blast_radius == 7


def test_a_run_that_is_started_again_counts_its_incidents_anew():
    story = Story().start().incident("r1/incident-1", **TIMES).end(160)
    later = {name: second + 1000 for name, second in TIMES.items()}
    story.start(1000).incident("r1/incident-1", **later, symptom="hang")
    story.tell("annotation", 1160, incident="r1/incident-1", body={"text": "the second one"})
    first, second = fold_incidents(story.events)
    assert (first.id, second.id) == ("r1/incident-1", "r1/incident-1 (start 2)")
    assert (first.symptom, second.symptom) == ("process_exit", "hang")
    assert (first.onset_us, first.closed_us) == (us(121), us(151))
    assert (second.onset_us, second.closed_us) == (us(1121), us(1151))
    assert (first.recover_us, second.recover_us) == (9_000_000, 9_000_000)
    assert "the second one" in second.notes


def test_a_remark_after_the_next_start_belongs_to_the_incident_that_it_names():
    story = Story().start().incident("i1", **TIMES).end(160)
    story.start(1000).tell("annotation", 1001, incident="i1", body={"text": "it was the fan"})
    (incident,) = fold_incidents(story.events)
    assert "it was the fan" in incident.notes


def test_an_escalation_is_an_outcome():
    story = Story()
    story.tell("detect", 10, incident="i1")
    story.tell("escalate", 20, incident="i1", body={"reason": "no spare"})
    (incident,) = fold_incidents(story.events)
    assert (incident.outcome, incident.is_open, incident.notes) == (
        "escalated",
        True,
        ("no spare",),
    )


def test_arrival_order_does_not_matter():
    story = Story().start().incident("i1", **TIMES)
    story.incident("i2", **{key: second + 100 for key, second in TIMES.items()})
    expected = fold_incidents(story.events)
    for seed in range(5):
        shuffled = random.Random(seed).sample(story.events, len(story.events))
        assert fold_incidents(shuffled) == expected
    assert [incident.id for incident in expected] == ["i1", "i2"]


def test_a_corrected_record_counts_as_corrected():
    story = Story()
    first = story.tell(
        "incident.open", 10, incident="i1", class_="fail_stop", symptom="process_exit"
    )
    story.tell(
        "incident.open",
        10,
        class_="sdc",
        symptom="nonfinite",
        links={"supersedes": first.id, "incident": "i1"},
    )
    (incident,) = fold_incidents(story.events)
    assert (incident.class_, incident.symptom) == ("sdc", "nonfinite")


def test_a_planned_stop_is_an_incident_of_its_own_class():
    story = Story()
    begin = story.tell("planned.begin", 10, body={"reason": "maintenance"})
    story.tell("planned.end", 50)
    (incident,) = fold_incidents(story.events)
    assert (incident.id, incident.class_, incident.is_planned) == (
        f"planned:{begin.id}",
        "planned",
        True,
    )
    assert (incident.closed_us, incident.detect_us) == (us(50), None)


# --- rules --------------------------------------------------------------------------------------------


def observed(story: Story, at: float, host: str, **fields) -> None:
    fields = {"class_": "fail_stop", "symptom": "device_error"} | fields
    story.tell("observation", at, domain=[{"kind": "host", "id": host}], **fields)


def test_unlinked_events_are_left_out_unless_a_rule_takes_them():
    story = Story()
    observed(story, 0, "h1")
    assert fold_incidents(story.events) == []
    assert len(fold_incidents(story.events, by_gap(0))) == 1


def test_the_gap_rule_joins_what_follows_on_one_host_and_the_gap_moves_with_it():
    story = Story()
    for at in (0, 50, 100, 200):
        observed(story, at, "h1")
    observed(story, 60, "h2")
    count = lambda gap: len(fold_incidents(story.events, by_gap(round(gap * 1e6))))
    assert count(49) == 5
    assert count(50) == 3  # 0, 50 and 100 are one; 200; and h2
    assert count(100) == 2
    assert len(fold_incidents(story.events, by_gap(100_000_000, kind="rack"))) == 5


def test_context_and_cascades_are_no_incidents_of_their_own():
    story = Story()
    observed(story, 0, "h1", role="cascade")
    observed(story, 1, "h2", role="context")
    observed(story, 2, "h3", class_="planned")
    assert fold_incidents(story.events, by_gap(10)) == []


def test_a_declared_incident_goes_before_the_gap():
    story = Story()
    observed(story, 0, "h1", incident="i1")
    observed(story, 1, "h1")
    assert {incident.id for incident in fold_incidents(story.events, by_gap(10**7))} == {
        "i1",
        "gap:e0001",
    }


def test_a_rule_says_itself_in_words():
    assert str(LINKS) == "links: declared incidents; correlated within 5 s"
    assert "unlinked events of one host within 10 min" in str(by_gap(600_000_000))
    with pytest.raises(BadInput):
        Rule(gap_us=-1)


# --- correlated ---------------------------------------------------------------------------------------


def opened(story: Story, name: str, at: float, *domain: dict[str, str], **fields) -> None:
    story.tell(
        "incident.open", at, incident=name, class_="fail_stop", domain=list(domain), **fields
    )


def correlated(story: Story, rule: Rule = LINKS) -> dict[str, list[str]]:
    return {
        i.id: [d.id for d in i.correlated_by]
        for i in fold_incidents(story.events, rule)
        if i.correlated
    }


def test_one_rank_of_a_host_is_not_correlated():
    story = Story()
    opened(story, "i1", 0, rank(1), HOST)
    assert correlated(story) == {}


def test_two_ranks_of_one_host_in_one_incident_are():
    story = Story()
    opened(story, "i1", 0, rank(1), rank(2), HOST)
    assert correlated(story) == {"i1": ["h1"]}
    assert fold_incidents(story.events)[0].correlated_by == (Domain(kind="host", id="h1"),)


def test_two_incidents_of_one_host_within_the_window_are_and_later_ones_are_not():
    story = Story()
    opened(story, "i1", 0, rank(1), HOST)
    opened(story, "i2", 5, rank(2), HOST)
    opened(story, "i3", 11, rank(3), HOST)
    assert correlated(story) == {"i1": ["h1"], "i2": ["h1"]}
    assert set(correlated(story, Rule(correlated_us=6_000_000))) == {"i1", "i2", "i3"}


def test_the_same_rank_twice_is_one_member():
    story = Story()
    opened(story, "i1", 0, rank(1), HOST)
    opened(story, "i2", 1, rank(1), HOST)
    assert correlated(story) == {}


def test_two_hosts_of_one_rack_are_and_two_hosts_alone_are_not():
    story = Story()
    opened(story, "i1", 0, HOST)
    opened(story, "i2", 1, OTHER_HOST)
    assert correlated(story) == {}
    story = Story()
    opened(story, "i1", 0, HOST, RACK)
    opened(story, "i2", 1, OTHER_HOST, RACK)
    assert correlated(story) == {"i1": ["k1"], "i2": ["k1"]}


def test_nobody_guesses_which_of_two_hosts_a_rank_lies_on():
    story = Story()
    opened(story, "i1", 0, rank(1), rank(2), HOST, OTHER_HOST)
    assert correlated(story) == {}


def test_what_a_failure_drags_along_does_not_make_it_correlated():
    story = Story()
    opened(story, "i1", 0, rank(1), HOST)
    story.tell("observation", 1, incident="i1", domain=[rank(2), HOST], role="cascade")
    assert correlated(story) == {}
