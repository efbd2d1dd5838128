"""What did not end, was not seen or is not on record never looks like an improvement."""

import msgspec
import pytest

from lastgood.evidence.claim import judge_claims
from lastgood.evidence.claim_records import Asked, ClaimName
from lastgood.evidence.claim_sides import side_of
from tests.unit.evidence.claim_cases import TEN, side_events

LATENCY, RECOVERY, LOST, ETTR = (
    ClaimName.DETECTION_LATENCY,
    ClaimName.RECOVERY_TIME,
    ClaimName.LOST_WORK,
    ClaimName.ETTR,
)
FORTY = TEN * 4


def judged(claim, before, after, **asked):
    sides = side_of(before, name="before"), side_of(after, name="after")
    (result,) = judge_claims([claim], *sides, Asked(**asked))
    return result


def number(event):
    return int(event.incident.rpartition("-")[2]) if event.incident else 0


def without(events, kinds, last):
    """The events without those kinds of the last incidents."""
    first = max(map(number, events)) - last
    return [e for e in events if not (e.kind in kinds and number(e) > first)]


@pytest.mark.parametrize("open_count", [30, 5])
def test_incidents_that_never_closed_are_no_fast_recoveries(open_count):
    before = side_events("a", FORTY, recovery_s=0.3)
    after = without(side_events("b", FORTY, recovery_s=0.1), {"incident.close"}, open_count)
    result = judged(RECOVERY, before, after)
    assert result.answer == "cannot tell"
    assert result.reasons == (
        f"{open_count} of 40 incidents after are without this on record, and more than 10% unknown could be anything",
    )
    assert result.needed == ""


def test_a_few_open_incidents_count_as_the_slowest_after_and_the_fastest_before():
    fast, slow = side_events("b", FORTY, recovery_s=0.1), side_events("a", FORTY, recovery_s=0.3)
    few_after = judged(RECOVERY, slow, without(fast, {"incident.close"}, 4))
    whole = judged(RECOVERY, slow, fast)
    assert (whole.answer, few_after.answer) == ("shown", "shown")
    assert few_after.p > whole.p
    assert few_after.strata[0].unknown_after == 4
    few_before = judged(RECOVERY, without(slow, {"incident.close"}, 4), fast)
    assert few_before.p > whole.p
    worse = judged(RECOVERY, without(fast, {"incident.close"}, 4), slow)
    assert worse.answer == "worse"


def test_an_answer_that_hangs_on_the_unknown_ones_is_not_given():
    """Ten against ten that only just differ: with one of them unknown they no longer do."""
    before, after = side_events("a", TEN), side_events("b", TEN, recovery_s=0.29)
    assert judged(RECOVERY, before, after).answer == "shown"
    result = judged(RECOVERY, before, without(after, {"incident.close"}, 1))
    assert result.answer == "not shown"
    assert result.effect > 1
    assert result.left_out[0].startswith("1 incidents after without this on record")


def test_an_incident_without_fault_or_symptom_is_no_kind_of_its_own():
    after = without(side_events("b", [v / 5 for v in TEN]), {"detect", "incident.open"}, 2)
    after = [e for e in after if not (e.kind == "annotation" and number(e) > 8)]
    result = judged(LATENCY, side_events("a", TEN), after)
    assert result.answer == "cannot tell"
    assert result.reasons[0].startswith(
        "2 of 10 after: neither a fault nor a symptom on record, and more than 10%"
    )


def test_an_injected_fault_with_a_record_and_no_detection_stands_behind_every_time():
    before = side_events("a", TEN)
    after = without(
        side_events("b", [v / 5 for v in TEN] * 3), {"detect", "incident.open"}, last=20
    )
    result = judged(LATENCY, before, after)
    assert result.answer == "not shown"
    assert (result.after.n, result.after.never) == (30, 20)
    assert result.measure == "from the injection to the detection"


def stripped(events):
    """Escalated incidents without the steps that they lost."""
    made = []
    for event in events:
        body = dict(event.body)
        if event.kind == "incident.close" and body["outcome"] == "escalated":
            del body["lost_steps"]
        made.append(msgspec.structs.replace(event, body=body))
    return made


@pytest.mark.parametrize("change", [stripped, list])
def test_an_escalation_lost_more_than_any_other_incident(change):
    """Half of them ended the job: whatever the others lost, the sides cannot be told apart by it."""
    before = side_events("a", TEN * 2, lost=[3, 4, 5, 6, 7] * 4)
    after = change(side_events("b", TEN * 2, lost=[0] * 20, escalated=range(10, 20)))
    result = judged(LOST, before, after)
    assert result.answer == "cannot tell"
    assert result.reasons == (
        "0 of 20 incidents before and 10 of 20 after ended the job, and what that lost is not on record",
    )
    assert (result.after.n, result.after.never) == (20, 10)
    assert result.after.value == pytest.approx(4.0)


def test_more_escalations_and_no_less_lost_is_worse():
    lost = [3, 4, 5, 6, 7] * 4
    before, after = (
        side_events("a", TEN * 2, lost=lost),
        side_events("b", TEN * 2, lost=lost, escalated=range(12)),
    )
    assert judged(LOST, before, after).answer == "worse"
    assert judged(LOST, after, before).answer == "shown"


def test_lost_steps_that_nobody_recorded_are_no_saving():
    before = side_events("a", TEN, lost=[5] * 10)
    after = [
        msgspec.structs.replace(e, body={"outcome": "recovered"})
        if e.kind == "incident.close" and number(e) > 6
        else e
        for e in side_events("b", TEN, lost=[0] * 10)
    ]
    result = judged(LOST, before, after)
    assert result.answer == "cannot tell"
    assert "4 of 10 incidents after are without this on record" in result.reasons[0]


def test_a_field_incident_without_a_detection_is_unknown_and_not_left_out():
    def field(run, detect_s):
        return [e for e in side_events(run, detect_s, mode="run") if e.kind != "annotation"]

    after = without(field("b", [v / 5 for v in TEN]), {"detect", "incident.open"}, 4)
    after = [
        msgspec.structs.replace(e, symptom="hang") if e.kind == "incident.close" else e for e in after
    ]  # fmt: skip
    result = judged(LATENCY, field("a", TEN), after)
    assert result.answer == "cannot tell"
    assert "4 of 10 incidents after are without this on record" in result.reasons[0]


def test_unknown_time_before_is_no_improvement_after():
    """The first side was as useful; a fifth of its steps is not on record."""
    before = [
        e for e in side_events("a", TEN) if not (e.kind == "step" and e.body["first"] in {61, 361})
    ]
    result = judged(ETTR, before, side_events("b", TEN))
    assert result.effect > 0.1
    assert result.answer == "cannot tell"
    assert "of the time before is unknown" in result.reasons[0]


def test_a_run_without_an_accepted_step_is_unknown_time():
    crashed = [
        msgspec.structs.replace(e, run="c") for e in side_events("c", []) if e.kind != "step"
    ]
    late = [*side_events("b", TEN), *crashed, *crashed_again()]
    result = judged(ETTR, side_events("a", TEN), late)
    assert result.answer == "cannot tell"
    assert any("of the time after is unknown" in reason for reason in result.reasons)


def crashed_again():
    return [e for e in side_events("d", []) if e.kind != "step"]
