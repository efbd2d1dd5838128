"""The line of the user's own code in which an error arose."""

import traceback

from lastgood.training.trace_place import innermost_place


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
