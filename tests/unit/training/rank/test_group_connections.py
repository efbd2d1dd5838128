"""Connections that a user's build opens belong to the generation: they are cut with it, and with no other."""

import os
import socket
import threading
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


class Meanwhile:
    """A clock in whose pauses something is sent, so many times."""

    def __init__(self, near, far, count):
        self.near, self.far, self.count, self.looks = near, far, count, 0

    def sleep_us(self, _us):
        self.looks += 1
        assert not is_cut_now(self.far)
        if self.looks <= self.count:
            self.far.sendall(b"part")
            assert self.near.recv(4) == b"part"


def is_cut_now(far):
    far.setblocking(False)
    try:
        return far.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize(("sent", "looks"), [(0, 4), (7, 11), (1000, 50)])
def test_a_revocation_cuts_once_nothing_comes_any_more_and_waits_no_longer_than_it_must(
    group, sent, looks
):
    with group.noting():
        inside = connection()
        near, far = inside.__enter__()
    group._clock = clock = Meanwhile(near, far, sent)
    group.revoke(3)
    assert is_cut(far)
    assert clock.looks == looks
    inside.__exit__(None, None, None)


def test_a_revocation_of_another_generation_does_nothing(group):
    with group.noting():
        inside = connection()
        _, far = inside.__enter__()
    group.revoke(2)
    group.reductions.refuse_revoked()
    assert not is_cut(far)
    inside.__exit__(None, None, None)


def test_a_revocation_does_not_wait_while_the_group_is_formed_or_once_it_is_cut(group):
    group._clock = clock = Meanwhile(None, None, 0)
    with group.noting():
        group.revoke(3)
    group.revoke(3)
    assert clock.looks == 0


class EndsMeanwhile(Meanwhile):
    """A peer leaves after one pause, another one after two."""

    def __init__(self, ends):
        self.ends, self.looks = list(ends), 0

    def sleep_us(self, _us):
        self.looks += 1
        if self.ends:
            self.ends.pop(0).close()


def test_peers_that_leave_one_after_the_other_do_not_keep_the_last_one_waiting(group):
    with group.noting():
        inside = [connection() for _ in range(3)]
        ends = [pair.__enter__() for pair in inside]
    group._clock = clock = EndsMeanwhile(far for _, far in ends[:2])
    group.revoke(3)
    assert clock.looks == 4
    assert is_cut(ends[2][1])
    for pair in inside:
        pair.__exit__(None, None, None)


def test_who_leaves_does_not_cut_before_the_revocation_has_looked(group, monkeypatch):
    monkeypatch.setattr("lastgood.training.rank.group._REVOKED_WITHIN_S", 60)
    with group.noting():
        inside = connection()
        near, far = inside.__enter__()
    group._clock = Meanwhile(near, far, 7)  # looks itself that nobody has cut
    leaving = threading.Thread(target=lambda: group.leave(waits=False))
    leaving.start()
    assert not is_cut(far)
    group.revoke(3)
    leaving.join()
    assert is_cut(far)
    inside.__exit__(None, None, None)


def test_a_number_that_a_file_got_meanwhile_is_looked_at_and_stays_the_only_one(group, tmp_path):
    """gloo closes the connection to a dead peer by itself, and what is opened next gets its number."""
    with group.noting():
        inside = connection()
        near, _ = inside.__enter__()
    with open(tmp_path / "other", "wb") as other:
        os.dup2(other.fileno(), near.fileno())
        before = len(os.listdir("/proc/self/fd"))
        group._clock = Meanwhile(None, None, 0)
        group._clock.sleep_us = lambda _us: None
        group.revoke(3)
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(near.detach())
    inside.__exit__(None, None, None)
