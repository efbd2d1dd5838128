"""The section of a run that was read from logs."""

from __future__ import annotations

import pytest
from msgspec import structs

from lastgood.contract.load import default_contract
from lastgood.evidence.imported_run_part import build_imported_run, is_run_imported
from lastgood.evidence.report import Report, Reproduction, Section, plain
from lastgood.evidence.terminal import print_report
from lastgood.training.report.section import build_section
from tests.unit.evidence.sample_run import undisturbed
from tests.unit.ledger.story import Story, us
from tests.unit.ledger.test_imported_walltime import Log, behind, from_line, job, log, without


def section_of(story: Story, *, as_of: float = 1_000_000) -> Section:
    return build_imported_run(story.events, run="r1", as_of_us=us(as_of))


def figures(section: Section) -> dict[str, float | None]:
    found = {row.label: row.figure.value for row in section.figures}
    for part in section.parts:
        found |= {row.label: row.figure.value for row in part.figures}
    return found


def part(section: Section, name: str) -> Section:
    return next(p for p in section.parts if p.name == name)


def sentences(section: Section, name: str) -> str:
    return " ".join(note.text for note in part(section, name).notes)


def outage() -> Log:
    return log().starts(1, 50, 0).new_attempt(2900).starts(51, 100, 2900).end(3400)


def test_the_headline_says_how_much_counts_and_how_often_it_started():
    section = section_of(outage())
    assert section.headline
    assert section.headline.sentence == (
        "29.4 % of 56.7 min of wall time produced work that counts, with 1 restart."
    )


def test_every_figure_carries_as_of():
    section = section_of(outage(), as_of=4000)
    rows = [*section.figures, *(row for p in section.parts for row in p.figures)]
    assert {row.figure.as_of_us for row in rows} == {us(4000)}
    found = figures(section)
    assert found["ETTR (productive over wall time)"] == pytest.approx(1000 / 3400)
    assert found["Progress efficiency"] == pytest.approx(1000 / 3400)
    assert found["Longest unproductive stretch"] == 2_400_000_000
    assert found["Mean time between restarts"] == 3_400_000_000
    assert found["Accepted steps"] == 100
    assert found["Time that rests on a rule"] == 2_410_000_000


def test_lost_accelerator_time_needs_the_devices():
    assert "Lost device time" not in figures(section_of(outage()))
    assert "lost device time" in sentences(section_of(outage()), "time")
    story = outage()
    story.attempt = 1
    story.tell("exposure.join", 0, devices=8)
    story.tell("exposure.leave", 3400, devices=8)
    assert figures(section_of(story))["Lost device time"] == 8 * 2400


def test_devices_that_a_person_names_give_a_loss_that_is_no_measurement():
    section = build_imported_run(outage().events, run="r1", as_of_us=us(4000), devices=1024)
    (row,) = [r for r in part(section, "time").figures if r.label == "Lost device time"]
    assert row.figure.value == 1024 * 2400
    assert row.figure.kind == "assumed"
    assert row.figure.assumptions == ("1,024 devices at risk all of the time",)
    recorded = outage()
    recorded.attempt = 1
    recorded.tell("exposure.join", 0, devices=8)
    recorded.tell("exposure.leave", 3400, devices=8)
    section = build_imported_run(recorded.events, run="r1", as_of_us=us(4000), devices=1024)
    assert (
        figures(section)["Lost device time"] == 8 * 2400
    )  # a record stands before what a person says


def test_each_stop_has_its_begin_its_length_and_its_states():
    table = part(section_of(outage()), "stops").tables[0]
    (row,) = table.rows
    after, lasted = row[1], row[2]
    assert (after.value, lasted.value) == (500_000_000, 2_400_000_000)
    assert row[3:] == ("down.detect 40 min", "100 %")


def test_a_run_that_never_stopped_has_no_table_of_stops():
    section = section_of(log().starts(1, 100, 0).end(1000))
    assert part(section, "stops").tables == ()
    assert sentences(section, "rules") == (
        "Nothing: every begin and end that the numbers need is on record."
    )


def test_unknown_time_gives_a_range_and_an_end_by_rule_is_said():
    section = section_of(log().starts(1, 50, 0))
    assert section.headline
    assert section.headline.sentence.endswith(
        "10 min are unknown, so it may have been up to 100.0 %; the end of the run is not on record."
    )
    assert "10 min after its last sign of life" in sentences(section, "rules")


def test_a_log_that_stops_in_the_middle_says_so_even_when_asked_at_its_last_row():
    section = section_of(log().starts(1, 50, 0), as_of=490)
    assert section.headline
    assert section.headline.sentence == (
        "100.0 % of 8.17 min of wall time produced work that counts, with 0 restarts; the end of the run is not on record."
    )
    assert "up to the last moment that its logs cover" in sentences(section, "rules")


def test_a_clock_that_nothing_can_correct_makes_the_ratio_an_upper_bound():
    story = behind(600, has_receiver=False)
    story.events = [structs.replace(event, t_observed_us=None) for event in story.events]
    section = section_of(story)
    assert section.headline
    assert section.headline.sentence.startswith("At most 100.0 % of 16.5 min of wall time")
    assert section.figures[0].figure.source.endswith(
        "skew corrected: 3 events, 6.5 min at least, so the wait before a start is not known"
    )
    assert "so the wait before them is not known" in sentences(section, "rules")


def test_steps_without_a_record_are_counted_in_words():
    section = section_of(without({5, 6, 40}))
    assert sentences(section, "rules").startswith("5 steps have no record of their own or of their end")  # fmt: skip


def test_a_corrected_clock_is_said_with_its_size():
    section = section_of(behind(600, has_receiver=True))
    assert "Skew corrected: 3 events, 600 s, by the receiver's clock." in sentences(section, "rules")  # fmt: skip


def test_a_log_without_steps_shows_no_ratio_at_all():
    story = job()
    story.tell("attempt.start", 0)
    story.tell("attempt.end", 7200, body={"state": "NODE_FAIL"})
    story.new_attempt(7800).tell("attempt.end", 9000, body={"state": "COMPLETED"})
    section = section_of(story.end(9000))
    assert section.headline
    assert section.headline.sentence == (
        "2.5 h of wall time with 1 restart; no record tells work from waiting, so at most 93.3 % of it was productive."
    )
    found = figures(section)
    assert found["ETTR (productive over wall time)"] is None
    assert "Longest unproductive stretch" not in found
    states = [row[0] for row in part(section, "time").tables[0].rows]
    assert states == ["down.schedule", "unknown", "sum"]
    assert part(section, "time").charts == ()
    assert all(p.name != "stops" for p in section.parts)
    ended = [row[-1] for row in part(section, "attempts").tables[0].rows]
    assert ended == ["node fail", "completed"]


def test_only_a_run_without_records_of_its_supervisor_is_an_imported_one():
    assert is_run_imported(outage().events, "r1")
    assert not is_run_imported(outage().events, "another")
    assert not is_run_imported(Story().start().steps(1, 2, 0).events, "r1")
    mixed = outage()
    mixed.events += Story().new_attempt(50).events
    assert not is_run_imported(mixed.events, "r1")


def test_the_builder_of_training_reports_hands_an_imported_run_over():
    given = {"as_of_us": us(4000), "run": "r1"}
    section = build_section(outage().events, default_contract(), **given)
    assert section == build_imported_run(outage().events, run="r1", as_of_us=us(4000))
    own = undisturbed()
    assert build_section(own, default_contract(), as_of_us=max(e.t_occurred_us or 0 for e in own)).name == "training"  # fmt: skip


def test_it_can_be_printed_stored_and_drawn():
    from rich.console import Console

    from lastgood.evidence.html import render_html

    report = Report(
        title="Lastgood report", subject="r1", as_of_us=us(4000), sections=(section_of(outage()),),
        reproduction=Reproduction(ledger="x", root="00", size=1, origin="o", version="1", command="c"),
    )  # fmt: skip
    console = Console(record=True, width=80)
    print_report(report, console)
    text = console.export_text()
    assert "What rests on a rule" in text
    assert "down.detect 40 min" in text
    assert plain(report)["sections"][0]["name"] == "run"
    assert "29.4 % of 56.7 min" in render_html(report)


def test_states_that_touch_are_one_stop():
    story = log().starts(1, 50, 0).new_attempt(2500)
    story.tell("section.begin", 2500, body={"name": "init", "state": "warmup"})
    story.tell("section.end", 2900, body={"name": "init", "state": "warmup"})
    section = section_of(story.starts(51, 100, 2900).end(3400))
    (row,) = part(section, "stops").tables[0].rows
    assert row[3] == "down.detect 33.3 min, warmup 6.67 min"


def test_a_start_without_an_end_does_not_take_that_of_the_next_one():
    rows = part(section_of(outage()), "attempts").tables[0].rows
    assert [row[-1] for row in rows] == ["no end on record", "ended"]
    story = job()
    story.tell("attempt.start", 0)
    story.new_attempt(50).tell("attempt.end", 80)
    rows = part(section_of(story.end(80)), "attempts").tables[0].rows
    assert [row[-1] for row in rows] == ["no end on record", "ended"]


def test_starts_that_come_later_are_not_shown():
    section = section_of(outage(), as_of=1000)
    assert len(part(section, "attempts").tables[0].rows) == 1
    assert figures(section)["Restarts on record"] == 0


def test_the_mean_time_between_restarts_has_the_exact_poisson_interval():
    """Garwood's limits of one event at 95 %: 0.02532 and 5.57164 (chi-square quantiles over two)."""
    (row,) = [
        r for r in part(section_of(outage()), "time").figures if r.label.startswith("Mean time")
    ]
    interval = row.figure.interval
    assert interval is not None
    assert interval.lo == pytest.approx(3_400_000_000 / 5.57164, rel=1e-5)
    assert interval.hi == pytest.approx(3_400_000_000 / 0.0253178, rel=1e-5)
    assert "exact Poisson" in interval.method
    assert row.figure.name == "mean time between restarts"


def test_an_end_before_the_start_is_said_in_the_headline_and_as_missing():
    story = Log()
    story.tell("run.end", 0, source=from_line(2))
    story.tell("run.start", 1000, source=from_line(1))
    section = section_of(story, as_of=1000)
    assert section.headline
    assert section.headline.sentence == (
        "The end of the run is recorded before its start, so it is not believed. "
        "The records of this run span no time."
    )
    assert figures(section)["Wall time"] == 0
    (note,) = [n for n in part(section, "rules").notes if "not believed" in n.text]
    assert note.level == "missing"
    assert "One record contradicted others in time" in sentences(section, "time")


def test_corruption_that_was_found_afterwards_stands_in_front_and_has_a_card():
    story = outage()
    story.tell("record", 4000, class_="sdc", first_divergent_step=91, body={"reason": "a replay differs"})  # fmt: skip
    section = section_of(story, as_of=5000)
    assert section.headline
    assert section.headline.sentence.startswith(
        "Silent corruption was found afterwards, from step 91 on. "
    )
    (card,) = part(section, "incidents").cards
    assert {r.figure.name: r.figure.value for r in card.figures}["lost steps"] == 10
    assert "10 steps that had been accepted count as lost" in sentences(section, "incidents")
