"""A verdict of silent corruption that a person records afterwards: named on top, on a card, and in what needs a look."""

from __future__ import annotations

import pytest

from lastgood.base.clock import ManualClock
from lastgood.contract.load import parse_contract
from lastgood.contract.starter import starter_text
from lastgood.ledger.event import new_event
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run

LAST_STEP = 200
WRONG_FROM = 151
LOST = LAST_STEP - WRONG_FROM + 1


def section_of(*, step=WRONG_FROM, runs=None, **fields):
    events = sample_run.undisturbed(last_step=LAST_STEP) if runs is None else runs
    run = next(e.run for e in events if e.kind == "run.start")
    end_us = max(e.t_observed_us or 0 for e in events)
    said = {"kind": "record", "class": "sdc", "body": {"record": "check", "reason": "a replay differs"}}  # fmt: skip
    said |= fields
    verdict = new_event(
        said.pop("kind"), clock=ManualClock(end_us + 60_000_000), run=run, first_divergent_step=step, **said
    )  # fmt: skip
    return build_section(
        [*events, verdict], parse_contract(starter_text()), as_of_us=end_us + 120_000_000, run=run
    )


def part(section, name):
    return next(p for p in section.parts if p.name == name)


def test_the_headline_names_it_and_does_not_say_that_all_held():
    head = section_of().headline
    assert head.state == "not_held"
    assert "0 of 1 fault" in head.sentence
    assert f"silent corruption was found afterwards, from step {WRONG_FROM} on" in head.sentence


def test_behind_verified_faults_it_takes_the_word_all_away():
    section = section_of(runs=sample_run.five_faults(), step=50)
    assert section.headline.sentence.startswith("5 of 6 injected faults were detected")
    assert "silent corruption was found afterwards, from step 50 on" in section.headline.sentence
    assert [c.is_injected for c in part(section, "incidents").cards].count(False) == 1


def test_it_has_a_card_with_the_steps_that_it_took_back():
    (card,) = part(section_of(), "incidents").cards
    values = {row.figure.name: row.figure.value for row in card.figures}
    assert (values["lost steps"], values["first divergent step"]) == (LOST, WRONG_FROM)
    assert values["detection"] is None
    assert "a replay differs" in card.evidence[0]
    assert dict(card.facts)["Class"] == "SDC"


def test_it_needs_a_look():
    (text,) = [n.text for n in part(section_of(), "incidents").notes if n.level == "warning"]
    assert f"Silent corruption from step {WRONG_FROM} on is on record. {LOST} steps" in text


def test_no_objective_about_corruption_or_lost_work_holds():
    (table, *_) = part(section_of(), "objectives").tables
    told = {row[0]: row for row in table.rows}
    at = [c.title for c in table.columns].index("Answer")
    assert "not held" in str(told["corruption"][at]).replace("_", " ")
    assert "not held" in str(told["lost-work"][at]).replace("_", " ")


def test_it_stopped_nothing_and_is_no_unexpected_stop():
    table = next(t for t in part(section_of(), "stops").tables if t.name == "planned-unexpected")
    assert [row[1].value for row in table.rows] == [0, 0]


@pytest.mark.parametrize("fields", [{"class": "fail_stop"}, {"links": {"incident": "x/1"}}, {"kind": "annotation", "step": None}])  # fmt: skip
def test_other_records_are_no_such_verdict(fields):
    fields = {"step": None} | fields
    assert "found afterwards" not in section_of(**fields).headline.sentence


def test_two_verdicts_take_each_step_once():
    events = sample_run.undisturbed(last_step=LAST_STEP)
    run = next(e.run for e in events if e.kind == "run.start")
    clock = ManualClock(max(e.t_observed_us or 0 for e in events) + 30_000_000)
    first = new_event("record", clock=clock, run=run, first_divergent_step=191, body={}, **{"class": "sdc"})  # fmt: skip
    cards = part(section_of(runs=[*events, first]), "incidents").cards
    lost = [r.figure.value for c in cards for r in c.figures if r.figure.name == "lost steps"]
    assert sorted(lost) == [10, LOST - 10]
