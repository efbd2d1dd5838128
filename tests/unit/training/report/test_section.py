"""The training section: what the records of a run say, and what they do not say."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lastgood.base.canonical import canonical_bytes
from lastgood.contract.load import default_contract, parse_contract
from lastgood.contract.starter import starter_text
from lastgood.evidence.report import Section, figures_in
from lastgood.ledger.ettr import measure_run
from lastgood.training.report.section import build_section, stopped_us
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS, START_US, STEP_US, WARMUP_US, WORLD
from tests.unit.ledger.story import Story, us

STARTER = parse_contract(starter_text())


def section_of(events, contract=None, *, as_of_us=None) -> Section:
    last_us = max((e.t_observed_us for e in events), default=START_US)
    return build_section(events, contract or default_contract(), as_of_us=as_of_us or last_us)


def part(section: Section, name: str) -> Section:
    return next(p for p in section.parts if p.name == name)


def table(section: Section, name: str, title: str | None = None):
    return next(t for t in part(section, name).tables if t.name == (title or name))


def cells(section: Section, name: str, title: str | None = None) -> dict[str, dict[str, object]]:
    """Row name -> column title -> value of the figure, or the words."""
    found = table(section, name, title)
    titles = [column.title for column in found.columns]
    return {
        row[0]: {t: getattr(c, "value", c) for t, c in zip(titles, row, strict=True)}
        for row in found.rows
    }


def figure(section: Section, label: str):
    rows = [*section.figures, *(row for p in section.parts for row in p.figures)]
    return next(row.figure for row in rows if row.label == label)


@pytest.fixture(scope="module")
def five() -> Section:
    return section_of(sample_run.five_faults(), STARTER)


# --- the answer at the top ----------------------------------------------------------------------------


def test_five_verified_faults_are_said_in_one_sentence(five):
    expected = (
        "All 5 injected faults were detected, contained, recovered and verified, bit for bit."
    )
    assert five.headline.sentence == expected
    answers = {check.question: (check.state, check.detail) for check in five.headline.checks}
    assert answers["Detected"] == ("held", "5 of 5")
    assert answers["Verified"] == ("held", "5 of 5, each bit for bit")


def test_weights_that_nobody_compared_are_unknown_and_so_is_the_whole(five):
    answers = {check.question: check.state for check in five.headline.checks}
    assert answers["Final weights"] == "unknown"
    assert five.headline.state == "unknown"


@pytest.mark.parametrize(("twin", "state"), [("equal", "held"), ("different", "not_held")])
def test_a_comparison_with_an_undisturbed_run_decides_the_whole(twin, state):
    record = sample_run.Recorder(events=sample_run.five_faults())
    record.now_us = record.events[-1].t_observed_us
    record.add("annotation", body={"twin": twin})
    assert section_of(record.events).headline.state == state


def test_a_state_within_tolerance_is_not_called_bit_for_bit():
    faults = (*FAULTS[:4], dataclasses.replace(FAULTS[4], result="within_tolerance"))
    said = section_of(sample_run.five_faults(faults=faults)).headline
    assert said.sentence.endswith("verified, 1 of them within tolerance.")
    assert "5 of 5, 4 of them bit for bit" in {check.detail for check in said.checks}


def test_a_fault_that_was_not_verified_breaks_the_answer():
    faults = (*FAULTS[:4], dataclasses.replace(FAULTS[4], result="different"))
    said = section_of(sample_run.five_faults(faults=faults)).headline
    assert said.state == "not_held"
    assert said.sentence.startswith("4 of 5 injected faults were detected")
    assert "1 closed without an accepted verification" in said.sentence


def test_an_injection_that_no_detector_saw_is_counted_against_detection():
    record = sample_run.Recorder(events=sample_run.five_faults())
    record.now_us = record.events[-1].t_observed_us
    record.add("annotation", body={"injected": True, "fault": "SIGSTOP of rank 3"})
    section = section_of(record.events)
    answers = {check.question: (check.state, check.detail) for check in section.headline.checks}
    assert answers["Detected"] == ("not_held", "5 of 6")
    assert "1 went undetected" in section.headline.sentence
    assert any("SIGSTOP of rank 3" in note.text for note in part(section, "incidents").notes)


def test_an_injection_on_record_gives_its_card_the_true_latency():
    record = sample_run.Recorder(events=sample_run.five_faults())
    record.now_us = record.events[-1].t_observed_us
    detected = next(e for e in record.events if e.kind == "detect")
    record.add(
        "annotation", links={"incident": detected.incident},
        body={"injected": True, "fault": "kill-2", "fault_kind": "process_kill", "culprit_right": True,
              "injected_wall_us": detected.t_observed_us - 70_000},
    )  # fmt: skip
    card = part(section_of(record.events), "incidents").cards[0]
    assert dict(card.facts)["Injected fault"] == "kill-2 (process kill)"
    assert dict(card.facts)["Right rank named"] == "yes"
    assert {r.label: r.figure.value for r in card.figures}["Detected after the injection"] == 70_000


def test_a_run_without_faults_says_so_and_claims_nothing():
    said = section_of(sample_run.undisturbed()).headline
    assert said.state == "nothing"
    assert said.sentence.startswith("No fault was recorded; the run ended after")
    assert said.checks == ()


def test_an_open_incident_is_unknown_and_not_lost():
    section = section_of(sample_run.still_running())
    assert section.headline.state == "unknown"
    assert section.headline.sentence.startswith("1 of 2 faults was detected")
    assert "1 is still open" in section.headline.sentence
    assert part(section, "incidents").cards[1].outcome == "still open"


def test_no_events_give_an_empty_section():
    section = build_section([], default_contract(), as_of_us=START_US)
    assert section.headline.state == "nothing"
    assert section.parts == ()


# --- the tables ---------------------------------------------------------------------------------------


def test_the_class_table_counts_each_class_with_its_medians(five):
    rows = cells(five, "stops", "classes")
    assert {name: row["Count"] for name, row in rows.items()} == {
        "planned": 0, "fail-stop": 2, "fail-slow": 1, "SDC": 2,
    }  # fmt: skip
    # Median of 52 and 48 ms by nearest rank; the only hang; sums and the largest of the two SDC incidents.
    assert rows["fail-stop"]["Detect"] == 48_000
    assert rows["fail-slow"]["Detect"] == 1_350_000
    assert rows["fail-slow"]["Diagnose"] == 640_000
    assert rows["fail-stop"]["Recover"] == min(240_000 + 180_000, 260_000 + 175_000)
    assert [rows["fail-slow"][t] for t in ("Isolate", "Verify")] == [95_000, 420_000]
    # The whole of the only hang: its phases one after the other, and the step behind them.
    phases = 1_350_000 + 640_000 + 95_000 + (280_000 + 190_000) + 420_000
    assert rows["fail-slow"]["To next step"] == phases + STEP_US
    assert rows["SDC"]["Lost steps"] == 2
    assert rows["SDC"]["Ranks hit"] == 2
    assert rows["SDC"]["Blast radius"] == WORLD


def test_an_attempt_of_a_run_that_is_started_again_ends_with_its_own_end():
    recorder = sample_run.Recorder(is_injected=False)
    for step_count in (3, 5):
        recorder.begin()
        recorder.steps(1, step_count)
        recorder.end()
        recorder.now_us += 60_000_000
    sections = section_of(recorder.events).parts
    (attempts,) = (t for s in sections for t in s.tables if t.name == "attempts")
    assert [row[0] for row in attempts.rows] == ["1", "1"]
    lasted = [row[2].value for row in attempts.rows]
    assert lasted == [WARMUP_US + n * STEP_US for n in (3, 5)]


def test_the_unexpected_stops_of_a_drill_are_not_planned_ones(five):
    rows = cells(five, "stops", "planned-unexpected")
    assert (rows["planned"]["Count"], rows["unexpected"]["Count"]) == (0, 5)


def test_a_class_without_incidents_has_no_medians(five):
    planned = cells(five, "stops", "classes")["planned"]
    assert [planned[t] for t in ("Detect", "To next step", "Lost steps")] == [None, None, None]


def test_exposure_is_device_time_at_risk(five):
    last_us = sample_run.five_faults()[-1].t_observed_us
    expected_h = WORLD * (last_us - START_US) / 3_600_000_000
    assert cells(five, "stops", "classes")["fail-stop"]["At risk"] == pytest.approx(expected_h)


def test_planned_and_unexpected_stops_stand_apart():
    record = sample_run.Recorder(is_injected=False)
    record.begin()
    record.steps(1, 20)
    record.add("planned.begin", body={"reason": "maintenance"})
    record.now_us += 5_000_000
    record.add("planned.end")
    resumed = record.incident(dataclasses.replace(FAULTS[0], at_step=20), 1)
    record.steps(resumed + 1, 60)
    record.end()
    rows = cells(section_of(record.events), "stops", "planned-unexpected")
    assert rows["planned"]["Count"] == 1
    assert rows["planned"]["Time stopped"] == 5_000_000
    assert rows["unexpected"]["Count"] == 1
    stopped_us = sum(
        getattr(FAULTS[0], f"{phase}_us")
        for phase in ("detect", "diagnose", "isolate", "restart", "restore", "verify")
    )
    assert rows["unexpected"]["Time stopped"] == stopped_us


def test_two_ranks_of_one_host_within_the_window_also_show_as_correlated():
    near = (FAULTS[0], dataclasses.replace(FAULTS[1], at_step=62))
    record = sample_run.Recorder(events=sample_run.five_faults(faults=near, last_step=90))
    assert "correlated" not in cells(
        section_of(record.events), "stops", "classes"
    )  # on one host all ranks share it
    record.add("annotation", domain=[{"kind": "host", "id": "host-b"}])
    rows = cells(section_of(record.events), "stops", "classes")
    assert (rows["fail-stop"]["Count"], rows["correlated"]["Count"]) == (2, 2)


# --- injected faults are never field incidence --------------------------------------------------------


def test_an_injected_run_is_labelled_and_gets_no_rate(five):
    assert five.is_injected
    assert all(card.is_injected for card in part(five, "incidents").cards)
    assert "mean time to interruption" not in {f.name for _, f in figures_in_section(five)}
    assert (
        cells(five, "stops", "planned-unexpected")["unexpected"]["Mean time between"]
        == "none, injected"
    )


def test_an_injected_run_is_judged_by_no_objective_of_the_field(five):
    objectives, budgets = cells(five, "objectives"), cells(five, "objectives", "budgets")
    assert "not judged" in objectives["useful-time"]["Answer"]
    assert {row["Answer"] for row in budgets.values()} == {"· not judged"}
    assert "held" in objectives["detection"]["Answer"]


def test_a_run_from_the_field_has_its_rate_and_no_label():
    section = section_of(sample_run.five_faults(is_injected=False))
    assert not section.is_injected
    assert not any(card.is_injected for card in part(section, "incidents").cards)
    assert figure(section, "Mean time to interruption").n == 5


def figures_in_section(section: Section):
    import msgspec

    from tests.unit.evidence.made_reports import full_report

    return figures_in(msgspec.structs.replace(full_report(), sections=(section,)))


# --- time, steps, cards -------------------------------------------------------------------------------


def test_the_states_of_wall_time_sum_to_the_run(five):
    rows = cells(five, "time", "states")
    whole_us = sample_run.five_faults()[-1].t_observed_us - START_US
    assert rows["sum"]["Time"] == whole_us
    assert sum(row["Time"] for name, row in rows.items() if name != "sum") == whole_us


def test_time_goes_where_the_faults_took_it(five):
    rows = cells(five, "time", "states")
    assert rows["warmup"]["Time"] == WARMUP_US
    assert rows["down.detect"]["Time"] == sum(f.detect_us for f in FAULTS)
    assert rows["restore"]["Time"] == sum(f.restore_us for f in FAULTS)
    assert rows["productive"]["Time"] == 400 * STEP_US
    assert rows["lost"]["Time"] == 2 * STEP_US


def test_accepted_and_lost_steps_are_counted_once(five):
    assert figure(five, "Accepted steps").value == 400
    assert figure(five, "Lost steps").value == 2


def test_each_incident_has_a_card_with_its_times_in_order(five):
    cards = part(five, "incidents").cards
    assert [card.title for card in cards] == [
        "Rank 2 ended", "Rank 0 ended", "Rank 1 stopped moving",
        "A snapshot of rank 3 did not hash to its digest", "Rank 1 diverged from its replicas",
    ]  # fmt: skip
    for card, fault in zip(cards, FAULTS, strict=True):
        stamps = [moment.since_onset_us for moment in card.moments]
        assert stamps == sorted(stamps)
        assert stamps[1] == fault.detect_us
        assert card.verification.result == "equal"
    assert {row.label: row.figure.value for row in cards[4].figures}["First divergent step"] == 331


def test_the_strip_marks_each_incident_at_its_onset(five):
    (strip,) = five.charts
    assert [mark.label for mark in strip.marks] == ["1", "2", "3", "4", "5"]
    # The first fault strikes after 60 steps.
    assert strip.marks[0].at == pytest.approx((WARMUP_US + 60 * STEP_US) / 1e6)


def test_lost_executions_are_a_series_of_their_own(five):
    rows = next(c for c in part(five, "steps").charts if c.name == "step-time").data.rows
    assert sorted(row[0] for row in rows if row[2] == "lost") == [270, 331]


def test_losses_are_drawn_where_the_steps_carry_them():
    record = sample_run.Recorder(is_injected=False)
    record.begin()
    ended = [record.now_us + STEP_US, record.now_us + 2 * STEP_US]
    body = {
        "first": 1,
        "last": 2,
        "began_us": record.now_us,
        "ended_us": ended,
        "loss": [(2.5).hex(), "nan"],
    }
    record.now_us = ended[-1]
    record.add("step", body=body)
    record.end()
    chart = next(c for c in part(section_of(record.events), "steps").charts if c.name == "loss")
    assert chart.data.rows == ((1, 2.5),)


@pytest.mark.parametrize(
    ("is_bitwise", "noise", "note"),
    [(True, 0.0, "bit for bit"), (False, 1e-7, "within this noise")],
)
def test_the_noise_of_a_repeated_step_is_printed(is_bitwise, noise, note):
    record = sample_run.Recorder(events=sample_run.undisturbed(), run="quiet-1")
    record.add(
        "annotation",
        body={
            "is_bitwise": is_bitwise,
            "noise": noise.hex(),
            "step": 2,
            "text": "one step run twice",
        },
    )
    row = next(
        r
        for r in part(section_of(record.events), "steps").figures
        if r.label == "Noise of a repeated step"
    )
    assert row.figure.value == noise
    assert note in row.note


def test_the_versions_are_those_that_the_run_knew_last():
    events = sample_run.five_faults()
    import msgspec

    events[0] = msgspec.structs.replace(events[0], versions={})
    words = {w.title: w.sentences for w in part(section_of(events), "run").words}
    assert words["Versions"] == ("lastgood 0.1.0, python 3.11.7, torch 2.13.0+cpu",)


def test_numerical_alerts_are_counted_by_symptom(five):
    rows = cells(five, "integrity", "alerts")
    assert (
        rows["replica divergence"]["Stopped the run"],
        rows["snapshot mismatch"]["Stopped the run"],
        rows["nonfinite"]["Stopped the run"],
    ) == (1, 1, 0)


# --- contract and duties ------------------------------------------------------------------------------


def test_without_a_contract_everything_reads_assumed_not_declared_and_missing():
    section = section_of(sample_run.five_faults())
    assert "assumptions, not agreements" in part(section, "contract").lead
    assert [note.level for note in part(section, "objectives").notes] == ["missing"]
    assert {row[1] for row in table(section, "duties").rows} == {"missing"}
    assert [note.level for note in part(section, "duties").notes] == ["missing"]


def test_a_declared_contract_prints_its_duties_and_names_what_is_still_assumed(five):
    assert table(five, "duties").rows[3] == ("owner of failed evidence", "training-platform")
    assert part(five, "duties").notes == ()
    assert "minCount" in part(five, "contract").notes[0].text


def test_a_run_that_was_started_under_another_contract_is_flagged(five):
    notes = part(five, "run").notes
    assert [note.level for note in notes] == ["warning"]
    assert "started under contract 000000000000" in notes[0].text


# --- purity -------------------------------------------------------------------------------------------


def test_the_order_of_arrival_does_not_matter():
    events = sample_run.five_faults()
    shuffled = [*events[::2], *events[1::2]]
    assert section_of(shuffled, STARTER) == section_of(events, STARTER)


def test_records_after_as_of_are_not_read():
    events = sample_run.five_faults()
    third = next(e for e in events if e.kind == "detect" and e.attempt == 3)
    section = section_of(events, as_of_us=third.t_observed_us - 1)
    assert len(part(section, "incidents").cards) == 2
    assert section.headline.sentence.startswith("Both injected faults were")


def test_an_incident_that_closed_after_as_of_is_still_open_on_its_card():
    events = sample_run.five_faults()
    third = next(e for e in events if e.kind == "diagnose" and e.attempt == 3)
    cards = part(section_of(events, as_of_us=third.t_observed_us), "incidents").cards
    assert [card.outcome for card in cards] == ["recovered", "recovered", "still open"]


def test_only_a_state_that_was_verified_is_the_newest_verified_state():
    record = sample_run.Recorder(events=sample_run.five_faults())
    record.now_us = record.events[-1].t_observed_us
    record.add(
        "state.trust",
        body={"step": 390, "tier": "slot", "state": "suspect", "reason": "wrong digest"},
    )
    section = section_of(record.events)
    assert figure(section, "Newest verified state").value == 330
    assert figure(section, "States found wrong and not built upon").value == 1
    assert table(section, "integrity", "refused").rows[-1][:3] == ("state 390", "slot", "suspect")
    assert table(section, "integrity", "refused").rows[-1][4] == "wrong digest"


def test_the_newest_run_is_taken_and_another_one_can_be_named():
    old = sample_run.undisturbed(last_step=5)
    record = sample_run.Recorder(run="later", now_us=old[-1].t_observed_us + 1)
    record.begin()
    record.steps(1, 3)
    record.end()
    both = [*old, *record.events]
    as_of_us = record.events[-1].t_observed_us
    assert figure(build_section(both, STARTER, as_of_us=as_of_us), "Accepted steps").value == 3
    assert (
        figure(
            build_section(both, STARTER, as_of_us=as_of_us, run="quiet-1"), "Accepted steps"
        ).value
        == 5
    )


def test_a_section_can_be_stored_in_canonical_form(five):
    from lastgood.base.canonical import with_hex_floats
    from lastgood.evidence.report import _plain

    assert json.loads(canonical_bytes(with_hex_floats(_plain(five))))["name"] == "training"


@pytest.mark.parametrize(
    "drop",
    [
        "detect",
        "diagnose",
        "isolate",
        "restore.begin",
        "restore",
        "verify",
        "incident.close",
        "run.start",
        "run.end",
        "attempt.start",
        "exposure.join",
        "step",
    ],
)
def test_a_missing_kind_of_record_never_stops_the_report(drop):
    events = [e for e in sample_run.five_faults() if e.kind != drop]
    section = build_section(
        events, STARTER, as_of_us=sample_run.five_faults()[-1].t_observed_us, run=sample_run.RUN
    )
    assert section.headline is not None
    if drop in {"verify", "incident.close", "isolate", "restore"}:
        assert section.headline.state != "held"


def test_a_watched_hang_is_stopped_until_its_incident_closes():
    """Nobody acts behind the diagnosis, and the rank stands all the same: 70 s, of which the diagnosis ends at 34."""
    story = Story().start().steps(1, 10, 0)
    story.tell(
        "incident.open",
        130,
        incident="i",
        t_occurred_us=us(100),
        symptom="hang",
        class_="fail_slow",
    )
    story.tell("detect", 130, incident="i", t_occurred_us=us(100))
    story.tell("diagnose", 134, incident="i")
    story.tell("incident.close", 170, incident="i", body={"outcome": "resolved"})
    times = measure_run(story.steps(11, 12, 170).end(190).events, run="r1", as_of_us=us(190))
    assert stopped_us(times) == us(70) - us(0)
