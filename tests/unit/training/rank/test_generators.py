"""What a steady reader of a generator says is always what the generator itself says."""
# ruff: noqa: NPY002 - the global stream is what is read

import itertools
import pickle
import random
import threading

import numpy as np
import pytest

from lastgood.training.rank.generators import Memory, Steady, numpy_generator, python_generator


def same(left, right):
    """Equal states, NaN and signs too: by what pickle makes of them."""
    return pickle.dumps(as_plain(left)) == pickle.dumps(as_plain(right))


def as_plain(state):
    return tuple(p.tolist() if isinstance(p, np.ndarray) else p for p in state)


@pytest.fixture(autouse=True)
def _own_streams():
    numpy_before, python_before = np.random.get_state(), random.getstate()
    yield
    np.random.set_state(numpy_before)
    random.setstate(python_before)


def half_pair_set(gauss):
    """Change only the half pair that numpy keeps beside its words."""
    name, words, place, *_ = np.random.get_state()
    np.random.set_state((name, words, place, 1, gauss))


NUMPY_CHANGES = {
    "nothing": lambda: None,
    "uniform": np.random.random,
    "normal": np.random.standard_normal,
    "words": lambda: np.random.bytes(4),
    "many": lambda: np.random.random(1000),
    "seed": lambda: np.random.seed(5),
    "a half pair": lambda: half_pair_set(0.5),
    "another half pair": lambda: half_pair_set(-0.5),
    "zero": lambda: half_pair_set(0.0),
    "minus zero": lambda: half_pair_set(-0.0),
    "set back": lambda: np.random.set_state(np.random.RandomState(5).get_state()),
}
PYTHON_CHANGES = {
    "nothing": lambda: None,
    "uniform": random.random,
    "normal": lambda: random.gauss(0, 1),
    "bits": lambda: random.getrandbits(3),
    "many": lambda: [random.random() for _ in range(700)],
    "seed": lambda: random.seed(5),
    "set back": lambda: random.setstate(random.Random(5).getstate()),
    "a half pair": lambda: random.setstate((*random.getstate()[:2], 0.0)),
    "minus zero": lambda: random.setstate((*random.getstate()[:2], -0.0)),
    "no number": lambda: random.setstate((*random.getstate()[:2], float("nan"))),
}


@pytest.mark.parametrize(
    ("make", "read", "changes"),
    [
        (numpy_generator, np.random.get_state, NUMPY_CHANGES),
        (python_generator, random.getstate, PYTHON_CHANGES),
    ],
    ids=["numpy", "python"],
)
def test_every_change_shows_whatever_came_before_it(make, read, changes):
    """Each change after each other one, and twice: a draw may use up what the one before left over."""
    steady = make()
    for first, second in itertools.product(changes.values(), repeat=2):
        for change in (first, second, second):
            change()
            assert same(read(), steady.state())


@pytest.mark.parametrize("make", [numpy_generator, python_generator])
def test_a_generator_that_nobody_drew_from_is_read_once(make):
    steady = make()
    assert steady.state() is steady.state()


def test_a_generator_of_another_kind_is_read_every_time():
    """Its words lie elsewhere and are more: nothing is compared."""
    steady, before = numpy_generator(), np.random.get_bit_generator()
    steady.state()
    np.random.set_bit_generator(np.random.MT19937(3))
    try:
        assert same(np.random.get_state(), steady.state())
        np.random.set_bit_generator(np.random.PCG64(3))
        assert steady.state() is not steady.state()
        assert steady.state()["bit_generator"] == "PCG64"
    finally:
        np.random.set_bit_generator(before)
    assert same(np.random.get_state(), steady.state())


def test_a_state_that_was_read_cannot_be_written_to():
    """It is handed out again as long as nothing is drawn."""
    with pytest.raises(ValueError, match="read-only"):
        numpy_generator().state()[1][0] = 1


def test_a_draw_of_another_thread_while_the_state_is_read_is_not_kept():
    memory = [b"before"]

    def read():
        drawing = threading.Thread(target=lambda: memory.__setitem__(0, b"after"))
        drawing.start()
        drawing.join()
        return memory[0]

    steady = Steady(read, lambda: Memory(memory[0]))
    assert steady.state() == b"after"
    memory[0] = b"before"
    steady._read = lambda: memory[0]
    assert steady.state() == b"before"
