"""The first screen of a run's report: short on a clean run, and nothing that a reader must know is left out."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from lastgood.contract.load import default_contract
from lastgood.evidence.brief import CARD_COUNT_MAX, is_brief, print_brief
from lastgood.evidence.report import Note, Report, Reproduction, Section
from lastgood.evidence.terminal import print_report
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run
from tests.unit.evidence.made_reports import full_report
from tests.unit.ledger.story import Story

LINES_MAX = 60


def report_of(events, **changes) -> Report:
    section = build_section(events, default_contract("training"), as_of_us=2**62)
    section = msgspec.structs.replace(section, **changes)
    proof = Reproduction(
        ledger="l.db",
        root="ab" * 32,
        size=len(events),
        origin="lastgood.dev/ledger/1",
        version="1",
        command="lastgood report l.db",
    )
    return Report(title="Lastgood report, training run", subject="r", as_of_us=0, sections=(section,), reproduction=proof)  # fmt: skip


def printed(report: Report, draw=print_brief) -> list[str]:
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False, emoji=False, color_system=None)  # fmt: skip
    draw(report, console)
    return console.file.getvalue().splitlines()


def test_a_clean_run_takes_one_screen_and_its_full_text_says_more():
    report = report_of(sample_run.undisturbed())
    assert len(printed(report)) <= LINES_MAX < len(printed(report, print_report))


def test_the_first_screen_has_the_verdict_the_figures_the_time_and_where_the_rest_is():
    text = "\n".join(printed(report_of(sample_run.undisturbed())))
    words = ("No fault was recorded", "ETTR", "Unknown share", "Lost steps", "warmup")
    assert [word for word in words if word not in text] == []
    assert "- Objectives are not declared, so nothing here was held or broken." in text
    assert "everything  lastgood report l.db --full" in text
    assert "check it    lastgood verify l.db" in text


def test_the_time_behind_the_last_step_is_called_the_ending_under_its_lane():
    story = Story().start().steps(1, 10, 30)
    story.tell("run.end", 150, body={"exit_code": 0})
    lines = printed(report_of(story.events))
    at = next(n for n, line in enumerate(lines) if line.startswith("stall "))
    assert lines[at + 1] == "20 s of the stall is the ending: the last step to the end of the run."


def test_a_remark_on_a_rank_is_on_the_first_screen():
    story = Story().start().steps(1, 10, 30)
    story.tell("annotation", 140, ranks=[1], body={"text": "rank 1 does not end"})
    story.tell("annotation", 141, body={"text": "something else"})
    story.tell("run.end", 150, body={"exit_code": 0})
    assert "- Remark: rank 1 does not end (1 more remark: --full)." in printed(report_of(story.events))  # fmt: skip


def test_each_incident_says_who_what_when_how_long_and_how_it_ended():
    lines = printed(report_of(sample_run.five_faults()))
    at = lines.index("1. Rank 2 ended (injected, recovered)")
    assert "   seen: rank 2 (w2) ended by signal 9" in lines[at:]
    told = " ".join(line.strip() for line in lines[at : at + 7])
    assert "began 02:00:13.000; detection 52 ms; diagnosis 3 ms; isolation 61 ms; recovery 420 ms; verification 410 ms" in told  # fmt: skip
    assert "fault to next accepted step 1.1 s" in told
    assert "lost steps 0" in told
    assert "verified by replay step 60 on every rank: equal" in told
    assert "ranks at fault: rank 2; fault domain: host host-a; cause: not known" in told


def test_of_many_incidents_the_newest_are_shown_and_the_others_counted():
    cards = full_report().sections[0].parts[1].cards
    many = tuple(msgspec.structs.replace(cards[0], number=n) for n in range(1, CARD_COUNT_MAX + 4))
    part = Section(name="incidents", title="Incidents", cards=many)
    lines = printed(report_of(sample_run.undisturbed(), parts=(part,)))
    assert "3 earlier ones: --full" in lines
    assert not any(line.startswith("3. ") for line in lines)
    assert any(line.startswith(f"{CARD_COUNT_MAX + 3}. ") for line in lines)


def test_where_an_odd_rank_stood_is_told_with_its_incident():
    faults = (sample_run.FAULTS[2],)
    events = sample_run.five_faults(faults=faults, last_step=210)
    groups = [
        {"role": "trainer", "ranks": [0, 2, 3], "pids": [1, 2, 3], "is_usual": True, "is_outlier": False, "stack": ["all_reduce (torch/distributed/c10d.py:9)"]},
        {"role": "trainer", "ranks": [1], "pids": [4], "is_usual": False, "is_outlier": True, "stack": ["wait (threading.py:3)", "load (job/data.py:31)"]},
    ]  # fmt: skip
    events = [
        msgspec.structs.replace(e, body={**e.body, "stack_groups": groups})
        if e.kind == "diagnose"
        else e
        for e in events
    ]
    text = " ".join(" ".join(printed(report_of(events))).split())
    assert "rank 1 stood in load (job/data.py:31), apart from the others" in text


@pytest.mark.parametrize("events", [sample_run.five_faults(), sample_run.still_running()])
def test_no_line_is_wider_than_80_columns(events):
    assert max(map(len, printed(report_of(events)))) <= 80


def test_a_fleet_alone_has_no_short_form():
    fleet = msgspec.structs.replace(full_report(), sections=(Section(name="fleet", title="Fleet"),))
    assert not is_brief(fleet)


def test_a_planned_stop_has_no_culprit_and_owes_no_lost_steps():
    story = Story().start(0).steps(1, 4, 10)
    story.tell("planned.begin", 52, class_="planned", body={"reason": "SIGTERM"})
    lines = printed(report_of(story.end(60).events))
    at = lines.index("1. Planned stop (the run ended with it)")
    assert [line.split()[0] for line in lines[at + 1 : at + 3]] == ["seen:", "began"]
    assert not any("at fault" in line or "lost steps not" in line for line in lines)


def test_a_lane_that_is_longer_than_the_detection_is_explained_where_the_detection_stands():
    story = Story().start().steps(1, 5, 0)
    story.incident("i", onset=52, detect=53, diagnose=53, isolate=54, begin=54, restore=55, verify=56, close=56)  # fmt: skip
    lines = printed(report_of(story.new_attempt(56).steps(6, 7, 56).end(76).events))
    assert any("detection 1 s" in line for line in lines)
    assert "   last step 2 s before the onset; down.detect counts from here" in lines


def test_a_rate_of_few_incidents_shows_its_interval_and_their_number():
    story = Story().start().steps(1, 5, 0)
    story.incident("i", onset=52, detect=53, diagnose=53, isolate=54, begin=54, restore=55, verify=56, close=56)  # fmt: skip
    lines = printed(report_of(story.new_attempt(56).steps(6, 7, 56).end(76).events))
    at = next(n for n, line in enumerate(lines) if line.startswith("Mean time to interruption"))
    # One event in 76 s: the exact 95 % bounds of its mean are 76 s / 5.572 and 76 s / 0.02532.
    assert lines[at].split()[-3:] == ["1.27", "min", "measured"]
    assert lines[at + 1] == "    13.6 s to 50 min, 95 %; n = 1"


@pytest.mark.parametrize(("code", "is_told"), [(93, True), (1, False)])
def test_a_run_that_gave_up_says_so_with_the_code_and_what_to_do(code, is_told):
    story = Story().start().steps(1, 5, 0)
    story.tell("escalate", 55, body={"reason": "the same failure came back 3 times"})
    story.tell("run.end", 60, body={"exit_code": code})
    text = " ".join(" ".join(printed(report_of(story.events))).split())
    told = (
        "The run gave up (the same failure came back 3 times) and ended with exit code 93, which says: do not requeue. "
        "Mend the cause that its last incident names"
    )
    assert (told in text) is is_told


def test_a_name_in_a_point_is_not_cut_at_its_hyphens():
    name = "the-ledger-of-a-cluster-with-a-long-name.db"
    text = f"Count and compare what was recorded in it with: lastgood rates --ledger {name}"
    part = Section(name="incidents", title="Incidents", notes=(Note(level="warning", text=text),))
    lines = printed(report_of(sample_run.undisturbed(), parts=(part,)))
    assert any(name in line for line in lines)
