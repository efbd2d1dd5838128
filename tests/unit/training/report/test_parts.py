"""The parts of a run's report about checkpoints, integrity, stacks, spares and budgets, and the report of a watched job."""

from __future__ import annotations

import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.poisson import poisson_tail
from lastgood.contract.load import default_contract, parse_contract
from lastgood.contract.starter import starter_text
from lastgood.evidence.charts import FORMS, chart_spec
from lastgood.evidence.time_part import WIDTHS_US
from lastgood.evidence.wording import value_text
from lastgood.ledger.ettr import measure_run, sliding_ettr
from lastgood.ledger.event import new_event
from lastgood.ledger.incident import Incident
from lastgood.training.report.section import build_section
from lastgood.training.report.spares import standings
from lastgood.training.report.stacks import groups_of
from lastgood.training.states.checkpointing import LATE
from lastgood.training.watching.job_code import own_frame
from tests.unit.evidence import sample_full_run as full
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS, STEP_US

STARTER = parse_contract(starter_text())


def section_of(events, contract=None):
    last_us = max(e.t_observed_us for e in events)
    return build_section(events, contract or default_contract(), as_of_us=last_us)


def part(section, name):
    return next(p for p in section.parts if p.name == name)


def figures(section, name):
    return {row.label: row.figure for row in part(section, name).figures}


def rows(section, name, table):
    return next(t for t in part(section, name).tables if t.name == table).rows


@pytest.fixture(scope="module")
def report():
    return section_of(full.full(), STARTER)


@pytest.fixture(scope="module")
def observed():
    return section_of(full.observed(), STARTER)


# --- checkpoints ------------------------------------------------------------------------------------------


def test_checkpoints_are_counted_by_their_end(report):
    found = figures(report, "checkpoints")
    assert found["Checkpoints committed"].value == len(full.CHECKPOINT_US)
    assert found["Checkpoints failed"].value == 1
    assert found["Begun without an end on record"].value == 1
    assert {found[f"Checkpoints {end}"].n for end in ("committed", "failed")} == {6}


def test_an_interval_that_was_not_kept_is_said_with_its_reasons(report):
    assert part(report, "checkpoints").notes == ()
    events = full.full()
    late = new_event(
        "annotation",
        clock=ManualClock(events[-1].t_observed_us),
        run=events[-1].run,
        body={"text": LATE, "reason": "the helper is not ready yet", "every_us": 2_000_000},
    )
    (note,) = part(section_of([*events, late]), "checkpoints").notes
    assert note.text == (
        "The interval of 2 s was not kept: a checkpoint that was due had to wait for more than half of it "
        "(the helper is not ready yet), and was not begun."
    )


def test_the_time_of_a_write_is_from_its_begin_to_its_commit(report):
    found = figures(report, "checkpoints")
    assert found["Time of a write (median)"].value == sorted(full.CHECKPOINT_US)[1]
    assert found["Time of a write (p90)"].value == max(full.CHECKPOINT_US)
    assert found["Time of a write (median)"].n == len(full.CHECKPOINT_US)
    # Four values cannot enclose a median at 95 %: 2 x 0.5^4 = 12.5 % lies outside of them.
    assert found["Time of a write (median)"].interval is None
    spacing = sorted(full.CHECKPOINT_US[1:])[1] + STEP_US
    assert found["Time between commits (median)"].value == spacing
    assert found["Size of the last one"].value == full.BYTES


def test_only_what_the_job_waited_for_is_overhead(report):
    found = figures(report, "checkpoints")
    assert found["Time blocked by checkpoints"].value == full.BLOCKED_US
    assert found["Time of a blocking checkpoint (median)"].value == full.BLOCKED_US
    assert found["Time of a blocking checkpoint (median)"].n == 1
    events = full.full()
    window_us = events[-1].t_observed_us - events[0].t_observed_us
    assert found["Wall time blocked by checkpoints"].value == pytest.approx(100 * full.BLOCKED_US / window_us)  # fmt: skip


def test_a_failed_checkpoint_is_named_with_its_reason(report):
    ((step, _, why),) = rows(report, "checkpoints", "checkpoint-failures")
    assert (step, why) == ("30", "[Errno 28] No space left on device")
    ends = [row[2] for row in part(report, "checkpoints").charts[0].data.rows]
    assert ends == ["committed"] * 4 + ["failed"]


def test_a_run_without_checkpoints_observed_none_and_prints_no_zero():
    found = part(section_of(sample_run.undisturbed()), "checkpoints")
    assert found.figures == ()
    assert "not observed" in found.notes[0].text


# --- integrity --------------------------------------------------------------------------------------------


def test_what_stopped_the_run_is_kept_apart_from_a_remark(report):
    by_symptom = {row[0]: [getattr(c, "value", c) for c in row[1:]] for row in rows(report, "integrity", "alerts")}  # fmt: skip
    assert by_symptom["replica divergence"] == [1, 1, 0, "1"]
    assert by_symptom["numeric jump"] == [0, 0, 1, "1"]
    ((_, _, ranks, seen),) = rows(report, "integrity", "remarks")
    assert (ranks, seen) == ("1", "loss of rank 1 is 9.1 times the median")


def test_refused_snapshots_and_checkpoints_are_told_apart(report):
    found = figures(report, "integrity")
    assert found["States found wrong and not built upon"].value == 2
    assert (found["Snapshots among them"].value, found["Checkpoints among them"].value) == (1, 1)
    refused = {(row[0], row[1], row[2]) for row in rows(report, "integrity", "refused")}
    assert refused == {("state 331", "slot", "tainted"), ("state 328", "checkpoint", "suspect")}


def test_where_no_state_was_checked_trust_is_not_observed(observed):
    found = part(observed, "integrity")
    assert (found.figures, found.tables) == (
        (),
        (),
    )  # a table of zeros would say that somebody looked
    assert "not observed" in found.notes[0].text


# --- stacks -----------------------------------------------------------------------------------------------


def test_dumps_of_a_hang_are_grouped_and_the_odd_rank_is_named(report):
    groups = rows(report, "stacks", "stacks-2")
    assert [(row[2].value, row[3], row[4]) for row in groups] == [(3, "0, 2-3", "usual"), (1, "1", "outlier")]  # fmt: skip
    table = next(t for t in part(report, "stacks").tables if t.name == "stacks-2")
    assert table.note == "Outlier: rank 1."


def test_the_ranks_of_a_dump_are_those_that_the_workers_held_then(report):
    """w4 was a spare and took rank 2 before the hang."""
    assert "2" in rows(report, "stacks", "stacks-2")[0][3]
    assert rows(report, "stacks", "stacks-2")[0][3] == "0, 2-3"


def test_the_frame_of_the_jobs_own_code_stands_beside_the_innermost_one(report):
    usual, odd = rows(report, "stacks", "stacks-2")
    assert usual[5:] == ("DistributedDataParallel.forward (parallel/distributed.py:1886)", "train_step (train.py:86)")  # fmt: skip
    assert odd[5:] == (full.ODD[0], "fetch (data.py:41)")


@pytest.mark.parametrize(
    "library",
    [
        "wait (threading.py:327)",
        "_commit_removals (weakref.py:110)",
        "default (json/encoder.py:180)",
        "forward (torch/nn/parallel/distributed.py:1886)",
        "read (pyarrow/parquet/core.py:9)",
        "run (/opt/py/lib/python3.12/runpy.py:88)",
        "<frozen runpy>:198 in x",
    ],
)
def test_the_innermost_own_frame_is_of_nobody_elses_library(library):
    own = "load (/home/me/job/data.py:31)"
    assert own_frame((library, own, "main (train.py:9)")) == own
    assert own_frame((library, "load (job/data.py:31)")) == "load (job/data.py:31)"
    assert own_frame((library,)) is None


def test_one_group_alone_is_neither_usual_nor_odd():
    group = {"role": "trainer", "ranks": [0, 1], "pids": [1, 2], "is_usual": True, "is_outlier": False, "stack": ["f (train.py:1)"]}  # fmt: skip
    own = [
        new_event("diagnose", clock=ManualClock(0), incident="i1", body={"stack_groups": [group]})
    ]
    assert [g.standing for g in groups_of(own, Incident(id="i1"))] == [""]


def test_the_groups_that_an_observer_wrote_read_like_those_of_a_supervisor(report, observed):
    mine, theirs = rows(report, "stacks", "stacks-2"), rows(observed, "stacks", "stacks-1")
    assert [row[1:2] + row[3:] for row in mine] == [row[1:2] + row[3:] for row in theirs]


def test_a_hang_without_stacks_says_that_they_are_missing():
    found = part(section_of(sample_run.five_faults()), "stacks")
    assert (found.tables, found.notes[0].level) == ((), "missing")
    assert "incident 3" in found.notes[0].text
    quiet = part(section_of(sample_run.undisturbed()), "stacks")
    assert (quiet.notes[0].level, quiet.tables) == ("info", ())


# --- spares -----------------------------------------------------------------------------------------------


def test_spares_are_counted_over_time(report):
    found = figures(report, "spares")
    assert found["Spares wanted"].value == 1
    assert found["Fewest parked"].value == 0
    assert found["Workers launched"].value == 7
    assert found["Time until a worker is ready (median)"].value == full.LAUNCH_US
    events = full.full()
    window_us = events[-1].t_observed_us - events[0].t_observed_us
    # Twice a spare took a rank, and each time the next one was ready one launch later.
    assert found["Share of the run without a parked spare"].value == pytest.approx(100 * 2 * full.LAUNCH_US / window_us)  # fmt: skip


def test_the_stairs_show_the_crew_at_every_change():
    stands = standings(full.full())
    assert [s.counts for s in stands[5:7]] == [{"active": 4, "launching": 1}, {"active": 4, "parked": 1}]  # fmt: skip
    assert max(s.counts.get("active", 0) for s in stands) == 4
    assert stands[-1].counts == {}


def test_the_chart_of_spares_is_drawn_for_both_widths(report):
    (chart,) = part(report, "spares").charts
    assert chart.form in FORMS
    for width_px in (800, 330):
        spec = chart_spec(chart, width_px=width_px, validate=True)
        assert spec["layer"][0]["mark"]["interpolate"] == "step-after"
    assert {row[2] for row in chart.data.rows} == {"active", "parked", "launching"}


def test_without_inventory_spares_are_not_observed():
    found = part(section_of(sample_run.five_faults()), "spares")
    assert (found.figures, found.charts, found.notes[0].level) == ((), (), "missing")


def test_a_watched_job_misses_no_spares(observed):
    found = part(observed, "spares")
    assert (found.figures, found.notes[0].level) == ((), "info")


# --- sliding ETTR -----------------------------------------------------------------------------------------


def test_a_short_run_says_that_its_window_is_shorter_than_the_usual_hour(report):
    chart = next(c for c in part(report, "time").charts if c.name == "sliding")
    assert "The usual window is 1 h" in chart.caption
    assert chart.title == "ETTR of the last 10 s"
    events = full.full()
    wall = measure_run(events, run="full-1", as_of_us=events[-1].t_observed_us).wall
    lowest = min(point.ratio for point in sliding_ettr(wall, width_us=WIDTHS_US[-1]))
    assert figures(report, "time")["Lowest ETTR of any 10 s"].value == lowest
    assert figures(report, "time")["Lowest ETTR of any hour"].value is None


def test_a_run_of_hours_has_the_usual_window_and_no_excuse():
    record = sample_run.Recorder(is_injected=False, run="long")
    record.begin()
    record.steps(1, 80_000)
    record.end()
    found = part(section_of(record.events), "time")
    chart = next(c for c in found.charts if c.name == "sliding")
    assert chart.title == "ETTR of the last 1 h"
    assert "usual" not in chart.caption
    assert [r.label for r in found.figures if r.label.startswith("Lowest")] == ["Lowest ETTR of any hour"]  # fmt: skip


def test_a_run_of_seconds_has_no_window_at_all_and_says_so():
    found = part(section_of(sample_run.undisturbed(last_step=20)), "time")
    assert not any(c.name == "sliding" for c in found.charts)
    assert any("Sliding ETTR is not observed" in note.text for note in found.notes)


# --- budgets ----------------------------------------------------------------------------------------------


def test_the_use_of_a_budget_has_its_exact_tail_and_the_interval_of_the_mean(report):
    """Two interruptions in 81 s under 10 in 28 days; the interval of a count of 2 is 0.242 to 7.22 (Garwood)."""
    (row,) = rows(report, "objectives", "budgets")
    _, allows, seen, interval, expected, tail, answer, _ = row
    assert allows == "10 in 28 d of run time"
    assert (seen.value, seen.interval.level, interval) == (2, 0.95, "0.242 to 7.22")
    events = full.full()
    mean = 10 * (events[-1].t_observed_us - events[0].t_observed_us) / (28 * 86_400_000_000)
    assert expected.value == pytest.approx(mean)
    assert tail.value == pytest.approx(poisson_tail(2, mean)) == pytest.approx(mean**2 / 2, rel=1e-3)  # fmt: skip
    assert answer == "✗ not held"
    assert tail.assumptions
    assert value_text(tail) == f"{tail.value:.1e}"


def test_faults_on_purpose_use_up_no_budget():
    (row,) = rows(section_of(full.full(is_injected=True), STARTER), "objectives", "budgets")
    assert (row[3], row[5], row[6]) == (None, None, "· not judged")


def test_without_a_budget_there_is_no_row_and_no_zero():
    text = starter_text()
    begin, end = text.index("  budgets:"), text.index("  noData:")
    bare = parse_contract(text[:begin] + text[end:])
    found = part(section_of(full.full(), bare), "objectives")
    assert [t.name for t in found.tables] == ["objectives"]
    assert "No budget is declared" in found.notes[0].text


# --- a watched job ----------------------------------------------------------------------------------------


def test_a_watched_job_is_judged_by_what_was_seen_and_named(observed):
    said = observed.headline
    assert said.sentence == "2 faults were seen, and nothing was touched: 1 went on by itself, 1 ended with the job."  # fmt: skip
    assert {c.question: c.state for c in said.checks} == {
        "Detected": "held", "Culprit named": "held", "Recovered": "nothing",
    }  # fmt: skip
    assert said.state == "held"


def test_a_card_of_a_watched_job_asks_for_nothing_that_nobody_could_do(observed):
    first, second = part(observed, "incidents").cards
    assert [m.name for m in first.moments] == ["onset", "detect", "diagnose", "close"]
    assert {r.label for r in second.figures} == {"Detection", "Diagnosis", "Blast radius", "Lost steps"}  # fmt: skip
    assert {note.level for card in (first, second) for note in card.notes} == {"info"}
    assert "moved again by themselves" in first.notes[0].text
    assert "No state was compared" in first.notes[0].text
    assert first.verification is None


def test_time_after_the_diagnosis_of_a_watched_hang_is_a_stall(observed):
    """Nobody isolates anything, so the 9 s after the name are not the time of an isolation."""
    totals = {row[0]: row[1].value for row in rows(observed, "time", "states")}
    assert totals["stall"] == 9_000_000 + 1_000_000
    assert totals["down.diagnose"] == FAULTS[2].diagnose_us + FAULTS[0].diagnose_us
    assert "down.isolate" not in totals


def test_a_job_that_was_started_again_as_a_whole_is_not_called_verified():
    events = full.observed(outcome="restarted", last_outcome="escalated")
    events[0].body["mode"] = "act"
    said = section_of(events).headline
    assert said.sentence == "2 faults were seen: 1 was started again from the job's own checkpoints, 1 was handed to a person."  # fmt: skip
    states = {c.question: c.state for c in said.checks}
    assert (states["Going again"], states["Verified"]) == ("not_held", "nothing")
    assert said.state == "not_held"


def test_a_watched_job_without_faults_claims_nothing():
    events = sample_run.undisturbed()
    events[0].body["mode"] = "observe"
    said = section_of(events).headline
    assert (said.state, said.checks) == ("nothing", ())
    assert said.sentence.startswith("No fault was seen; the run ended after")
