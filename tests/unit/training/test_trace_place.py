"""The line of the user's own code in which an error arose, and what it says in the end."""

import traceback

import pytest

from lastgood.training.trace_place import deciding_words, innermost_place


def fetch():
    return int("x")


def test_the_innermost_frame_is_named_with_its_function():
    try:
        fetch()
    except ValueError as error:
        trace = "".join(traceback.format_exception(error))
    line = fetch.__code__.co_firstlineno + 1
    assert innermost_place(trace) == f"test_trace_place.py:{line} in fetch"


def test_frames_of_libraries_below_the_own_code_are_passed_over():
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 31, in step\n    loss = model(x)\n'
        '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 9, in _call_impl\n    f()\n'
        "RuntimeError: mat1 and mat2\n"
    )
    assert innermost_place(trace) == "train.py:31 in step"


def test_a_trace_of_libraries_alone_names_their_last_frame():
    trace = '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 9, in go\n'
    assert innermost_place(trace) == "x.py:9 in go"


def test_a_text_without_frames_names_nothing():
    assert innermost_place("RuntimeError: no trace") == ""


def carried(words: str) -> str:
    """A message as torch makes it of an error in a process of the loader."""
    return (
        "Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/job/train.py", line 16, in __getitem__\n'
        '    raise ValueError("no")\n'
        f"{words}\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ValueError: record 100 is broken", "record 100 is broken"),
        ("ValueError: record 100 is broken\n  in shard 7", "record 100 is broken\n  in shard 7"),
        ("job.data.Broken: record 100", "job.data.Broken: record 100"),
    ],
)
def test_a_message_that_carries_a_trace_says_what_that_trace_ends_with(words, told):
    assert deciding_words(ValueError(carried(words))) == told


def test_of_two_traces_in_a_message_the_last_one_decides():
    assert (
        deciding_words(ValueError(carried("KeyError: 7") + carried("ValueError: gone"))) == "gone"
    )


@pytest.mark.parametrize("message", ["", "a\nb", "see the Traceback (most recent call last): above", carried("")])  # fmt: skip
def test_any_other_message_stays_as_it_is(message):
    assert deciding_words(ValueError(message)) == message
