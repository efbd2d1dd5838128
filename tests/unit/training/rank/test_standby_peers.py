"""Groups that stand by, formed with a peer: whose sockets they are, and what becomes of them when a peer lets go."""

import os
import socket
import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest
import torch.distributed as dist

from lastgood.base.clock import SystemClock
from lastgood.training.control import FormStandby
from lastgood.training.rank.connections import Connections, new_sockets, open_sockets
from lastgood.training.rank.group import Group
from lastgood.training.rank.standby import Standby

SECOND_US = 1_000_000
LIMIT = timedelta(seconds=5)


def until(holds):
    clock = SystemClock()
    began_us = clock.monotonic_us()
    while not holds():
        assert clock.monotonic_us() - began_us < 30 * SECOND_US
        clock.sleep_us(1_000)


def is_forming():
    return any(thread.name == "lastgood-standby" for thread in threading.enumerate())


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with ExitStack() as stack:

        def made():
            standby = Standby(limit=LIMIT, patience=LIMIT)
            stack.callback(standby.close)
            return standby

        yield made


@pytest.fixture
def stores(tmp_path):
    return lambda lost_rank: tmp_path / f"standby.{lost_rank}"


@pytest.fixture
def pair(make, stores):
    """Rank 0 of two, and the spare: they have a group for the loss of rank 1."""
    return form_all(make, stores)


def form_all(make, stores):
    rank, other, spare = make(), make(), make()
    for standby, number in ((rank, 0), (other, 1), (spare, None)):
        standby.form(FormStandby(number=1, world=2, rank=number), stores)
    until(lambda: rank.has(1, 1) and spare.has(1, 1))
    return rank, spare


def test_a_group_whose_peer_let_go_of_it_is_not_there_any_more(pair):
    rank, spare = pair
    spare.drop()
    until(lambda: not rank.has(1, 1))


def test_a_connection_that_the_script_opens_between_the_ranks_meanwhile_is_not_cut(make, stores):
    server, opened = socket.create_server(("127.0.0.1", 0)), []
    barrier = threading.Barrier(2)
    real = dist.ProcessGroupGloo

    class Slow(real):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if barrier.wait(20) == 0:
                opened.append(socket.create_connection(server.getsockname()))
                opened.append(server.accept()[0])
            barrier.wait(20)

    dist.ProcessGroupGloo = Slow
    try:
        rank, spare = form_all(make, stores)
    finally:
        dist.ProcessGroupGloo = real
    users = {os.fstat(end.fileno()).st_ino for end in (server, *opened)}
    for standby in (rank, spare):
        connections = standby.take(1).connections
        assert connections.inodes
        assert not users & connections.inodes
    for end in (server, *opened):
        end.close()


def test_the_port_of_the_devices_is_known_for_as_long_as_they_listen(monkeypatch, stores):
    """A rank that seemed to hold a port of its script would be replaced only once the kernel has closed it."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    group, before = Group(), open_sockets()
    try:
        for number in (1, 2):
            group.standby.form(FormStandby(number=number, world=1), stores)
            until(lambda n=number: group.standby.has(n, 0))
        group.standby.take(0)
        opened = set(new_sockets(before).values())
        assert opened
        assert opened <= group.sockets
    finally:
        group.leave()


def test_nothing_comes_behind_a_halt_and_what_is_there_stays(pair, stores):
    rank, spare = pair
    rank.halt()
    assert rank.has(1, 1)
    spare.form(FormStandby(number=2, world=2), stores)
    until(is_forming)
    spare.halt()
    until(lambda: not is_forming())
    assert not spare.has(2, 0)
    assert not spare.has(2, 1)


def test_the_meeting_of_a_group_that_is_there_outlives_a_halt(pair):
    """Subgroups are formed through it."""
    rank, _ = pair
    rank.halt()
    meeting = rank.take(1).meeting
    meeting.set("key", "value")
    with pytest.raises(dist.DistStoreError, match="wait timeout"):
        meeting.wait(["never"], timedelta(milliseconds=1))


def test_the_end_of_the_process_waits_for_the_thread(make, stores):
    """It would come back into an interpreter that ends."""
    standby = make()
    standby.form(FormStandby(number=1, world=2), stores)
    until(stores(0).exists)
    standby.close()
    assert not is_forming()
    standby.form(FormStandby(number=2, world=1), stores)
    assert not is_forming()


def test_nothing_stands_by_where_torch_puts_a_second_group_beside_each(make, stores):
    standby = make()
    usual = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        standby.form(FormStandby(number=1, world=1), stores)
        assert not is_forming()
    finally:
        dist.set_debug_level(usual)
    assert not standby.has(1, 0)


def test_connections_are_whole_until_an_end_is_shut_down():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        connections = Connections()
        assert connections.are_whole()
        connections.take({near.fileno(): os.fstat(near.fileno()).st_ino})
        assert connections.are_whole()
        far.shutdown(socket.SHUT_WR)
        until(lambda: not connections.are_whole())
