"""What the script raised has its place in a report, with a trace: the line with which a run gives up points there."""

from lastgood.contract.load import default_contract
from lastgood.training.report.section import build_section
from tests.unit.ledger.story import Story, us

TRACE = """Traceback (most recent call last):
  File "/home/me/train.py", line 31, in fetch
    return batch["labels"]
KeyError: 'labels'
"""


def raised(rank, *, message="'labels'", trace=TRACE, **body):
    """An error as the supervisor records it, of a script that calls lastgood.start."""
    return [rank], {
        "type": "KeyError",
        "message": message,
        "trace": trace,
        "where": "in step 7",
    } | body


def report_of(*errors, code=93):
    story = Story().start().steps(1, 10, 30)
    for at, (ranks, body) in enumerate(errors, start=140):
        story.tell("observation", at, ranks=ranks, body=body)
    story.tell("escalate", 180, body={"reason": "the same failure came back 3 times"})
    story.tell("run.end", 200, body={"exit_code": code})
    section = build_section(story.events, default_contract(), as_of_us=us(1000))
    return {part.name: part for part in section.parts}


def test_equal_errors_are_one_row_with_their_ranks_step_line_and_words():
    table, trace = report_of(raised(2), raised(0), raised(2))["errors"].tables
    ((number, count, ranks, _, where, what),) = table.rows
    assert (number, count.value, ranks) == ("error\u00a01", 3, "0, 2")
    assert (where, what) == ("in step 7, train.py:31 in fetch", "KeyError: 'labels'")
    assert [line for _, line in trace.rows] == TRACE.splitlines()


def test_the_newest_error_is_first_and_old_traces_are_counted():
    errors = [raised(0, message=f"'{n}'") for n in range(7)]
    part = report_of(*errors)["errors"]
    assert [row[5] for row in part.tables[0].rows][:2] == ["KeyError: '6'", "KeyError: '5'"]
    assert len(part.tables) == 1 + 5
    assert part.notes[0].text == "The traces of 2 older ones are in the ledger only."


def test_of_a_long_trace_the_last_lines_are_shown():
    frames = "".join(f"  frame {n}\n" for n in range(100)) + "KeyError: 'labels'"
    _, trace = report_of(raised(0, trace=frames))["errors"].tables
    assert trace.rows[-1] == ("101", "KeyError: 'labels'")
    assert trace.note == "61 lines before these are in the ledger."


def test_an_error_of_the_group_is_none_of_the_script():
    assert "errors" not in report_of(raised(0, raised="group_error"))
    assert "errors" not in report_of()


def test_the_note_that_the_run_gave_up_says_where_the_trace_stands():
    def told(*errors):
        return " ".join(note.text for note in report_of(*errors)["incidents"].notes)

    assert 'The trace stands in the part "What the script raised": --full shows it.' in told(
        raised(0)
    )
    assert "trace" not in told()
