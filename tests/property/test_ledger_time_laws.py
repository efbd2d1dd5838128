"""Laws of time: whatever the records say, every microsecond has one state and nothing is counted twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from lastgood.base.clock import ManualClock
from lastgood.ledger.ettr import HOUR_US, measure_run, poisson_interval_us, sliding_ettr
from lastgood.ledger.event import Event, new_event
from lastgood.ledger.exposure import measure_exposure
from lastgood.ledger.grouping import by_gap
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.walltime import STATES, WallState, WallTimeRules, partition
from tests.unit.ledger.cases import START_US

LIMIT_US = 2_000
"""Times are small numbers of microseconds, so that edges often coincide."""

times = st.integers(0, LIMIT_US)
INCIDENT_KINDS = (
    "incident.open", "detect", "diagnose", "isolate", "restore.begin", "restore", "verify", "incident.close",
    "escalate", "annotation",
)  # fmt: skip
PLAIN_KINDS = (
    "run.start", "run.end", "attempt.start", "attempt.end", "planned.begin", "planned.end", "exposure.join",
    "exposure.leave", "checkpoint.begin", "checkpoint.commit", "inventory", "state.trust",
)  # fmt: skip


@st.composite
def steps(draw) -> dict:
    first, began = draw(st.integers(1, 12)), draw(times)
    ended = draw(st.lists(times, min_size=1, max_size=6))
    if draw(st.booleans()):
        ended = sorted(max(end, began) for end in ended)
    body = {
        "first": first, "last": first + len(ended) - 1, "began_us": START_US + began,
        "ended_us": [START_US + end for end in ended],
    }  # fmt: skip
    return {"kind": "step", "at": max(ended), "body": body}


@st.composite
def open_steps(draw) -> dict:
    """As a log tells them: the last of them has a start only."""
    told = draw(steps())
    return told | {"body": told["body"] | {"last": told["body"]["last"] + 1}}


@st.composite
def of_incident(draw) -> dict:
    kind = draw(st.sampled_from(INCIDENT_KINDS))
    fields: dict = {
        "kind": kind,
        "at": draw(times),
        "incident": draw(st.sampled_from(("i1", "i2"))),
    }
    if kind == "verify":
        fields["body"] = {"target": draw(st.integers(0, 12))}
        result = draw(st.sampled_from(("equal", "within_tolerance", "different")))
        fields["verification"] = {"test": "replay", "result": result}
    if kind in {"detect", "incident.open"}:
        fields["seen"] = draw(times)
        fields["domain"] = [
            {"kind": kind, "id": draw(st.sampled_from("ab"))}
            for kind in draw(st.sets(st.sampled_from(("rank", "host", "rack"))))
        ]
    return fields


@st.composite
def plain(draw) -> dict:
    fields: dict = {"kind": draw(st.sampled_from(PLAIN_KINDS)), "at": draw(times)}
    if fields["kind"].startswith("exposure"):
        fields |= {
            "devices": draw(st.integers(0, 4)),
            "body": {"worker": draw(st.sampled_from("ab"))},
        }
    return fields


@st.composite
def sections(draw) -> dict:
    state = draw(st.sampled_from(("warmup", "checkpoint.blocking", "productive", "planned", "odd")))
    kind = draw(st.sampled_from(("section.begin", "section.end")))
    return {
        "kind": kind,
        "at": draw(times),
        "body": {"name": draw(st.sampled_from("xy")), "state": state},
    }


@st.composite
def streams(draw) -> list[Event]:
    told = draw(st.lists(st.one_of(steps(), of_incident(), plain(), sections()), max_size=25))
    events = []
    for number, fields in enumerate(told):
        at_us = START_US + fields.pop("at")
        seen_us = START_US + fields.pop("seen", at_us - START_US)
        attempt = draw(st.integers(1, 3))
        events.append(
            new_event(
                fields.pop("kind"), clock=ManualClock(seen_us), id=f"e{number:03}", run="r1", attempt=attempt,
                t_occurred_us=at_us, **fields,
            )
        )  # fmt: skip
    return events


@st.composite
def logs(draw) -> list[Event]:
    """The records of an importer: open steps, starts that nothing numbers, a receiver's time, late verdicts."""
    told = draw(st.lists(st.one_of(steps(), open_steps(), plain(), sections()), max_size=25))
    is_numbered = draw(st.booleans())
    events = []
    for number, fields in enumerate(told):
        at_us = START_US + fields.pop("at")
        body = fields.pop("body", {})
        if not is_numbered:
            body = body | {"start_us": START_US + draw(st.sampled_from((0, 500, 1500)))}
        seen_us = draw(st.none() | times)
        event = new_event(
            fields.pop("kind"), clock=ManualClock(at_us), id=f"e{number:03}", run="r1", t_occurred_us=at_us,
            attempt=draw(st.integers(1, 3)) if is_numbered else None, body=body,
            source={"importer": "log", "version": "1", "locator": f"a#{number}"}, **fields,
        )  # fmt: skip
        observed_us = None if seen_us is None else START_US + seen_us
        events.append(structs.replace(event, t_observed_us=observed_us))
    if draw(st.booleans()):
        clock = ManualClock(START_US + draw(times))
        verdict = {"class_": "sdc", "first_divergent_step": draw(st.integers(0, 12))}
        events.append(new_event("observation", clock=clock, id="verdict", run="r1", **verdict))
    return events


histories = streams() | logs()
rules = st.builds(
    WallTimeRules,
    stall_us_min=st.integers(0, 50),
    stall_factor=st.sampled_from((1.5, 3.0)),
    degraded_factor=st.none() | st.just(1.2),
    liveness_us=st.integers(0, 300),
    skew_us_max=st.integers(0, 300),
    excluded=st.lists(st.tuples(times, times), max_size=2).map(
        lambda pairs: tuple((START_US + min(p), START_US + max(p)) for p in pairs)
    ),
)
windows = st.none() | st.tuples(times, times).map(
    lambda pair: (START_US + min(pair), START_US + max(pair))
)


@settings(max_examples=150)
@given(events=histories, as_of=times, window=windows, rules=rules)
def test_every_microsecond_of_the_window_has_exactly_one_state(events, as_of, window, rules):
    wall = partition(events, run="r1", as_of_us=START_US + as_of, window=window, rules=rules)
    assert sum(wall.totals_us.values()) == wall.window_us >= 0
    assert set(wall.totals_us) == set(STATES)
    at_us = wall.start_us
    for span in wall.spans:
        assert span.start_us == at_us < span.end_us
        at_us = span.end_us
    assert at_us == wall.end_us
    for state in STATES:
        total = sum(span.duration_us for span in wall.spans if span.state is state)
        assert total == wall.totals_us[state]
    if window:
        assert window[0] <= wall.start_us or wall.window_us == 0
    # Records that a wrong clock dated earlier were known by then, and reach behind it once they are put in order.
    is_late = wall.end_us > START_US + as_of and wall.window_us > 0
    assert not is_late or wall.skew.event_count


@settings(max_examples=80)
@given(events=histories, as_of=times, seed=st.randoms(use_true_random=False))
def test_arrival_order_changes_nothing(events, as_of, seed):
    shuffled = list(events)
    seed.shuffle(shuffled)
    told = {"run": "r1", "as_of_us": START_US + as_of}
    assert partition(events, **told) == partition(shuffled, **told)
    assert measure_exposure(events, as_of_us=START_US + as_of) == measure_exposure(
        shuffled, as_of_us=START_US + as_of
    )
    for rule in (by_gap(0), by_gap(100, kind="rack")):
        assert fold_incidents(events, rule) == fold_incidents(shuffled, rule)


@settings(max_examples=80)
@given(events=histories, as_of=times, cut=times)
def test_two_windows_side_by_side_are_the_whole(events, as_of, cut):
    """The partition is of time, so cutting the window anywhere moves no microsecond to another state."""
    told = {"run": "r1", "as_of_us": START_US + as_of}
    whole = partition(events, **told)
    left = partition(events, window=(0, START_US + cut), **told)
    right = partition(events, window=(START_US + cut, START_US + 10 * LIMIT_US), **told)
    for state in STATES:
        assert left.totals_us[state] + right.totals_us[state] == whole.totals_us[state]


@settings(max_examples=80)
@given(events=streams(), as_of=times)
def test_an_accepted_step_number_counts_once(events, as_of):
    wall = partition(events, run="r1", as_of_us=START_US + as_of)
    numbers = {
        event.body["first"] + offset
        for event in events
        if event.kind == "step"
        for offset in range(len(event.body["ended_us"]))
    }
    assert wall.accepted_steps <= len(numbers)


@settings(max_examples=80)
@given(events=logs(), as_of=times)
def test_a_log_has_each_step_at_most_once_and_only_between_its_first_and_last(events, as_of):
    wall = partition(events, run="r1", as_of_us=START_US + as_of)
    numbers = {
        event.body["first"] + offset
        for event in events
        if event.kind == "step"
        for offset in range(event.body["last"] - event.body["first"] + 1)
    }
    span = max(numbers) - min(numbers) + 1 if numbers else 0
    assert wall.accepted_steps <= span
    assert wall.inferred_steps <= wall.accepted_steps + wall.lost_executions


@settings(max_examples=80)
@given(events=logs(), as_of=times, later=st.integers(1, LIMIT_US), step=st.integers(0, 12))
def test_a_verdict_changes_nothing_that_was_known_before_it(events, as_of, later, step):
    known = [e for e in events if e.id != "verdict"]
    before = partition(known, run="r1", as_of_us=START_US + as_of)
    found_us = START_US + as_of + later
    verdict = new_event(
        "incident.open", clock=ManualClock(found_us), id="verdict", run="r1", class_="sdc",
        first_divergent_step=step, t_occurred_us=START_US, t_observed_us=found_us,
    )  # fmt: skip
    assert partition([*known, verdict], run="r1", as_of_us=START_US + as_of) == before


@settings(max_examples=80)
@given(events=histories, as_of=times)
def test_figures_stay_within_what_they_can_be(events, as_of):
    times_ = measure_run(events, run="r1", as_of_us=START_US + as_of)
    wall = times_.wall
    for figure in (times_.ettr, times_.ettr_counted):
        assert figure.value is None or 0 <= figure.value <= 1
    longest = times_.longest_unproductive.value
    assert (longest is None) == (not wall.is_work_recorded)
    assert longest is None or 0 <= longest <= wall.window_us
    if times_.lost_device_time.value is not None:
        assert (
            times_.lost_work.value
            <= times_.lost_device_time.value
            <= times_.exposure.device_us / 1e6
        )
    assert times_.mean_time_to_interruption.n == sum(not i.is_planned for i in times_.incidents)
    assert times_.exposure.inferred_device_us <= times_.exposure.device_us


@settings(max_examples=60)
@given(events=histories, as_of=times, width=st.integers(1, LIMIT_US), at=st.integers(0, LIMIT_US))
def test_no_window_is_worse_than_the_worst_that_was_found(events, as_of, width, at):
    wall = partition(events, run="r1", as_of_us=START_US + as_of)
    points = sliding_ettr(wall, width_us=width)
    if wall.window_us < width:
        assert points == []
        return
    end_us = min(wall.start_us + width + at, wall.end_us)
    inside = partition(events, run="r1", as_of_us=START_US + as_of, window=(end_us - width, end_us))
    ratio = inside.totals_us[WallState.PRODUCTIVE] / width
    assert min(p.ratio for p in points) - 1e-12 <= ratio <= max(p.ratio for p in points) + 1e-12


@settings(max_examples=60)
@given(events=streams())
def test_the_times_of_an_incident_that_went_straight_are_in_order(events):
    for incident in fold_incidents(events):
        for duration in (
            incident.detect_us, incident.diagnose_us, incident.isolate_us, incident.recover_us, incident.verify_us,
        ):  # fmt: skip
            assert duration is None or duration >= 0


@given(
    count=st.integers(1, 2000),
    more=st.integers(1, 100),
    level=st.sampled_from((0.5, 0.9, 0.95, 0.99)),
)
def test_more_interruptions_in_the_same_time_never_look_rarer(count, more, level):
    lo, hi = poisson_interval_us(count, HOUR_US, level=level)
    lo_more, hi_more = poisson_interval_us(count + more, HOUR_US, level=level)
    assert lo < HOUR_US / count < hi
    assert lo_more < lo
    assert hi_more < hi
