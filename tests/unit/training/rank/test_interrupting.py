"""Where a step is ended by an exception out of nothing, and where it is not."""

import contextlib
import queue
import signal
import sys
import threading
import time

import pytest
import torch

from lastgood.training.rank.interrupting import (
    STEP_SIGNAL,
    Interruption,
    StepInterrupted,
    may_raise,
)

LONG_S = 600
"""Nobody waits for so long: a test that comes here hangs."""


@pytest.fixture
def interruption():
    before = signal.getsignal(STEP_SIGNAL)
    signal.signal(STEP_SIGNAL, signal.SIG_DFL)
    made = Interruption()
    made.set_up()
    yield made
    made.end_step()
    signal.signal(STEP_SIGNAL, before)


def ask_soon(interruption, until=lambda: True):
    """Ask from another thread, as the control thread does, once the step is where it should be."""

    def ask():
        while not until():
            time.sleep(0.001)
        interruption.ask()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def test_a_step_that_sleeps_is_ended(interruption):
    interruption.begin_step(sys._getframe())
    ask_soon(interruption)
    with pytest.raises(StepInterrupted):
        time.sleep(LONG_S)


class Slow(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        self.act()
        return x


def test_a_forward_pass_is_ended(interruption):
    interruption.begin_step(sys._getframe())
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Slow(lambda: time.sleep(LONG_S)))
    ask_soon(interruption)
    with pytest.raises(StepInterrupted):
        model(torch.ones(2))


def test_what_is_being_entered_is_entered(interruption):
    inside = []

    @contextlib.contextmanager
    def holding():
        inside.append("entering")
        ask_soon(interruption).join()
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            pass
        inside.append("entered")
        try:
            yield
        finally:
            inside.append("left")

    def step():
        with holding():
            time.sleep(LONG_S)

    interruption.begin_step(sys._getframe())
    with pytest.raises(StepInterrupted):
        step()
    assert inside == ["entering", "entered", "left"]


def test_a_wait_in_a_library_of_python_comes_to_its_end(interruption):
    waiting = queue.Queue()

    def step():
        waiting.get(timeout=LONG_S)
        time.sleep(LONG_S)

    interruption.begin_step(sys._getframe())
    ask_soon(interruption, lambda: waiting.not_empty._waiters)
    threading.Timer(0.3, waiting.put, ["came"]).start()
    with pytest.raises(StepInterrupted):
        step()
    assert waiting.empty()
    assert not waiting.mutex.locked()


def test_a_script_that_swallows_it_ends_its_step_by_itself(interruption):
    interruption.begin_step(sys._getframe())
    ask_soon(interruption)
    with contextlib.suppress(StepInterrupted):
        time.sleep(LONG_S)
    time.sleep(0.1)
    interruption.end_step()


def test_nobody_is_interrupted_outside_of_a_step(interruption):
    interruption.ask()
    interruption.begin_step(sys._getframe())
    interruption.end_step()
    interruption.ask()
    time.sleep(0.05)


def test_an_old_demand_does_not_end_a_later_step(interruption):
    def leave():
        interruption.ask()
        interruption.end_step()
        interruption.begin_step(sys._getframe(1))

    interruption.begin_step(sys._getframe())
    frame_of(contextlib.__file__, call=leave)()  # where nobody is interrupted
    time.sleep(0.1)


def test_a_signal_that_the_script_uses_stays_its_own(interruption):
    got = []
    signal.signal(STEP_SIGNAL, lambda number, _: got.append(number))
    other = Interruption()
    other.set_up()
    other.begin_step(sys._getframe())
    other.ask()
    signal.raise_signal(STEP_SIGNAL)
    assert got == [STEP_SIGNAL]


def test_a_signal_that_the_script_set_back_since_ends_nothing(interruption):
    signal.signal(STEP_SIGNAL, signal.SIG_DFL)
    interruption.begin_step(sys._getframe())
    interruption.ask()
    time.sleep(0.05)


def frame_of(path, name="work", call=None):
    """A frame of code that seems to come from a file; `call` runs inside it."""
    scope = {"call": call or (lambda: sys._getframe(1))}
    exec(compile(f"def {name}():\n    return call()", path, "exec"), scope)
    return scope[name]


SITE = f"{sys.prefix}/lib/python3.11/site-packages"
CASES = [
    ("/home/me/train.py", "work", True),
    ("train.py", "work", True),
    ("/home/me/train.py", "__enter__", False),
    ("/home/me/train.py", "__del__", False),
    (f"{SITE}/tqdm/std.py", "work", False),
    (torch.utils.checkpoint.__file__, "work", False),
    (torch.autograd.grad_mode.__file__, "__enter__", False),
    (torch.nn.functional.__file__, "work", False),
    (threading.__file__, "work", False),
    (contextlib.__file__, "work", False),
    ("<frozen importlib._bootstrap>", "work", False),
    ("<string>", "work", False),
    (sys.modules[Interruption.__module__].__file__, "work", False),
]


@pytest.mark.parametrize(("path", "name", "expected"), CASES)
def test_whose_code_is_interrupted(path, name, expected):
    assert may_raise(frame_of(path, name)(), sys._getframe()) is expected


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("/home/me/model.py", "work", True),
        (f"{SITE}/transformers/models/llama.py", "work", True),
        (torch.nn.functional.__file__, "work", True),
        (torch.autograd.grad_mode.__file__, "work", False),
        (threading.__file__, "work", False),
        (f"{SITE}/transformers/models/llama.py", "__exit__", False),
    ],
)
def test_whose_code_is_interrupted_in_a_forward_pass(path, name, expected):
    seen = []
    body = sys._getframe()
    Slow(frame_of(path, name, lambda: seen.append(may_raise(sys._getframe(1), body))))(None)
    assert seen == [expected]


def test_what_the_library_of_python_called_is_left_alone():
    seen = []
    body = sys._getframe()
    inner = frame_of(
        "/home/me/train.py", call=lambda: seen.append(may_raise(sys._getframe(1), body))
    )
    frame_of(contextlib.__file__, call=inner)()
    assert seen == [False]


def test_a_frame_that_the_block_did_not_call_is_left_alone():
    other = frame_of("/home/me/train.py")()
    assert may_raise(sys._getframe(), other) is False
