"""What a person reads while a run goes on, for the moments in which nothing goes well."""

import pytest

from lastgood.base.clock import ManualClock
from lastgood.cli.live import LineView, describe
from lastgood.ledger.event import new_event


def said(kind="annotation", **body):
    return describe(new_event(kind, clock=ManualClock(0), run="r", body=body))


def test_that_a_spare_is_waited_for_is_said_with_the_limit():
    words = said(text="waiting for a spare", missing=2, launching=2, limit_us=120_000_000)
    assert words == "waiting for a spare: 2 ranks without a worker, for 2 min at most"


def test_a_script_that_fails_before_start_is_shown_as_python_would_show_it():
    trace = "File \"train.py\", line 3\n    x = (\nSyntaxError: '(' was never closed\n"
    words = said(text="the script failed before lastgood.start", worker="w0", error=trace)
    assert words == f"the script failed before lastgood.start:\n{trace.rstrip()}"


def test_a_section_without_a_limit_is_said_with_what_to_write():
    words = said(
        text="a section without a limit",
        section="eval",
        limit_us=600_000_000,
        next='run.section("eval", limit="1min")',
    )
    assert words == (
        "section eval has no limit: a hang in it counts after 10 min; "
        'write run.section("eval", limit="1min")'
    )


@pytest.mark.parametrize(
    "text",
    [
        "no more spares are started: 5 in a row ended before they were ready",
        "every rank raised KeyError in the same step: a bug of the script, not of a host",
    ],
)
def test_what_a_person_has_to_know_is_said_as_it_is(text):
    assert said(text=text) == text


def test_what_a_loader_should_not_do_is_said_with_what_to_write():
    told = said(text="the loader function called a collective", next="read it from a file")
    assert told == "the loader function called a collective; read it from a file"


def test_a_rank_that_does_not_end_behind_its_script_is_said_with_where_it_stands():
    group = {"role": "trainer", "ranks": [1], "stack": ["close (train.py:9)"], "is_outlier": False}
    text = "behind the end of its script rank 1 (r1a1) has not ended for 30 s"
    assert said(text=text, stack_groups=[group], dumped=1).splitlines() == [
        text,
        "stacks of 1 processes:",
        "  trainer of rank 1: close (train.py:9)",
    ]


def fatal(worker, trace, **ranks):
    body = {"what": "fatal error", "worker": worker, "error": "Aborted", "trace": trace}
    return new_event("observation", clock=ManualClock(0), run="r", body=body, **ranks)


def test_where_a_fatal_error_came_from_is_shown_once(tmp_path, capsys):
    view, frame = LineView(tmp_path / "ledger.db"), '  File "train.py", line 9 in step'
    for event in (fatal("w0", frame, ranks=(0,)), fatal("w1", frame, ranks=(1,)), fatal("w2", "")):
        view.show(event)
    said, kept = "lastgood:", "the stacks of all threads are in the ledger, and it came"
    assert capsys.readouterr().err.splitlines() == [
        f"{said} rank 0 (w0): fatal error: Aborted; {kept} in this thread:",
        frame,
        f"{said} rank 1 (w1): fatal error: Aborted, at the place that was shown above",
        f"{said} worker w2: fatal error: Aborted; {kept} in no thread of Python's",
    ]


def test_a_remark_for_the_ledger_alone_is_not_said():
    assert said(text="one step was run twice from the same state") == ""


def raised(rank, message="'lr'"):
    body = {"type": "KeyError", "message": message, "trace": f"Traceback\nKeyError: {message}\n"}
    return new_event(
        "observation", clock=ManualClock(0), run="r", ranks=(rank,), symptom="exception", body=body
    )


def test_the_trace_of_an_error_is_shown_once_however_many_ranks_raise_it(tmp_path, capsys):
    view = LineView(tmp_path / "ledger.db")
    for event in (raised(2), raised(0), raised(1, "'other'"), raised(2)):
        view.show(event)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("lastgood")] == [
        "lastgood: rank 2 raised in its step:",
        "lastgood: rank 0 raised it too: KeyError: 'lr'",
        "lastgood: rank 1 raised in its step:",
        "lastgood: rank 2 raised it again: KeyError: 'lr'",
    ]
    assert said.count("Traceback") == 2


def test_where_an_error_was_raised_is_said():
    event = raised(1)
    event.body["where"] = "in its loader, for step 7"
    assert describe(event).startswith("rank 1 raised in its loader, for step 7:\nTraceback")


def closed():
    return new_event("incident.close", clock=ManualClock(0), run="r", body={"outcome": "recovered"})


def test_an_error_of_an_earlier_incident_is_not_raised_too_by_whoever_is_alone_with_it(tmp_path, capsys):  # fmt: skip
    view = LineView(tmp_path / "ledger.db")
    for event in (raised(0), closed(), raised(1)):
        view.show(event)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "lastgood: rank 1 raised the error that was shown above again: KeyError: 'lr'"
    )


def test_the_death_of_a_second_rank_is_said_as_that_of_the_first():
    told = ["rank 2 (w2) ended: signal 9"]
    assert said(text="another fault in the same incident", evidence=told) == (
        "another fault: rank 2 (w2) ended: signal 9"
    )
    event = new_event(
        "observation", clock=ManualClock(0), run="r", role="cascade", body={"evidence": told}
    )
    assert describe(event) == "then: rank 2 (w2) ended: signal 9"


@pytest.mark.parametrize(
    ("owner", "who"), [("supervisor", "a person"), (None, "a person"), ("ml-oncall", "ml-oncall")]
)
def test_who_must_act_is_said_when_the_loop_gives_up(owner, who):
    event = new_event(
        "escalate", clock=ManualClock(0), run="r", body={"owner": owner, "reason": "no spare left"}
    )
    assert describe(event) == f"gave up: no spare left; {who} must act now"


@pytest.mark.parametrize(
    ("signature", "is_told"),
    [("exception/KeyError", True), ("exception:KeyError:", True), ("hang/ranks 1", False), (None, False)],
)  # fmt: skip
def test_a_run_that_gives_up_for_an_error_says_what_to_type_for_its_trace(
    capsys, tmp_path, signature, is_told
):
    ledger = tmp_path / "ledger.db"
    body = {"reason": "the same error came back in 3 recoveries", "signature": signature}
    LineView(ledger).show(new_event("escalate", clock=ManualClock(0), run="r7", body=body))
    said = capsys.readouterr().err
    assert said.startswith("lastgood: gave up: the same error came back in 3 recoveries; a person")
    command = f"For the trace type: lastgood report {ledger} --run r7 --full\n"
    assert said.endswith(command) is is_told
