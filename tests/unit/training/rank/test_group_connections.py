"""Connections that a user's build opens belong to the generation: they are cut with it, and with no other."""

import socket
from contextlib import contextmanager, suppress

import pytest

from lastgood.training.rank.group import Group


@contextmanager
def connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            far.settimeout(5)
            yield near, far


def is_cut(far):
    try:
        far.settimeout(0.1)
        return far.recv(1) == b""
    except TimeoutError:
        return False


@pytest.fixture
def group():
    made = Group()
    made.generation = 3
    return made


def test_what_is_opened_inside_is_cut_with_the_generation(group):
    with connection() as before:
        with group.noting():
            inside = connection()
            _, far = inside.__enter__()
        assert not is_cut(far)
        group.cut(3)
        assert is_cut(far)
        assert not is_cut(before[1])
        inside.__exit__(None, None, None)


def test_another_generation_cuts_nothing(group):
    with group.noting():
        inside = connection()
        _, far = inside.__enter__()
    assert group.cut(2) == 0
    assert not is_cut(far)
    inside.__exit__(None, None, None)


def test_a_cut_while_build_runs_takes_what_it_opens_afterwards(group):
    """A peer died meanwhile: nobody will cut again, and build must not wait for the dead."""
    with group.noting():
        group.cut(3)
        inside = connection()
        _, far = inside.__enter__()
    assert is_cut(far)
    inside.__exit__(None, None, None)


def test_what_was_noted_stays_noted_when_build_raises(group):
    with suppress(RuntimeError), group.noting():
        inside = connection()
        _, far = inside.__enter__()
        raise RuntimeError("closed by peer")
    group.cut(3)
    assert is_cut(far)
    inside.__exit__(None, None, None)
