"""The store through which a generation meets: what torch asks of a store, over a file that several write."""

import struct
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from lastgood.base.clock import ManualClock, SystemClock
from lastgood.training.rank import group as module
from lastgood.training.rank.group import Group, is_group_error
from lastgood.training.rank.meeting import Meeting

SECOND_US = 1_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gen1"


def meet(path, *, limit_s=50):
    made = Meeting(path)
    made.set_timeout(timedelta(seconds=limit_s))
    return made


@pytest.mark.parametrize("key", ["k", "default_pg/0//cpu//0/1", "", "ключ", "k" * 5000])
@pytest.mark.parametrize("value", [b"", b"\0\xff\n", bytes(range(256)) * 100])
def test_any_key_and_any_value_arrive_as_they_were_given(path, key, value):
    meet(path).set(key, value)
    assert meet(path).get(key) == value


def test_the_newest_value_holds(path):
    near, far = meet(path), meet(path)
    near.set("key", "one")
    assert far.get("key") == b"one"
    near.set("key", "two")
    assert far.get("key") == b"two"


def test_torch_reaches_every_operation_through_its_own_half_of_the_store(path):
    """A prefix store is C++ and calls the store below as gloo does."""
    below = meet(path)
    store = dist.PrefixStore("a/b", below)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert below.get("a/b/key") == b"value"
    assert [store.add("count", 2), store.add("count", -5)] == [2, -3]
    assert (store.check(["key"]), store.check(["key", "none"])) == (True, False)
    store.wait(["key", "count"], timedelta(seconds=50))
    assert store.compare_set("key", "other", "new") == b"value"
    assert store.compare_set("key", "value", "new") == b"new"
    assert store.compare_set("fresh", "", "first") == b"first"
    assert store.compare_set("none", "some", "first") == b"some"
    assert (store.delete_key("key"), store.delete_key("key")) == (True, False)
    assert not store.check(["key"])
    assert below.num_keys() == 2
    assert store.num_keys() == 2
    assert not store.has_extended_api()
    store.clone().set("key", "again")
    assert below.get("a/b/key") == b"again"


def test_what_is_not_there_ends_in_an_error_that_is_the_groups(path):
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after .* for key") as caught:
        meet(path).wait(["key"], timedelta(milliseconds=20))
    assert is_group_error(caught.value)
    with pytest.raises(dist.DistStoreError, match="for key"):
        meet(path, limit_s=0.02).get("key")


class Later(ManualClock):
    """A clock that lets a peer write a key at a time."""

    def __init__(self, path, at_us):
        super().__init__()
        self.path, self.at_us, self.sleeps = path, at_us, 0

    def sleep_us(self, duration_us):
        self.sleeps += 1
        super().sleep_us(duration_us)
        if self.monotonic_us() >= self.at_us and not self.path.exists():
            meet(self.path).set("key", "value")


@pytest.mark.parametrize("at_us", [50, 1_000, 5_000, 40_000, 2 * SECOND_US])
def test_a_peer_is_found_later_by_an_eighth_of_the_wait_at_most(path, at_us):
    clock = Later(path, at_us)
    Meeting(path, clock=clock).wait(["key"], timedelta(seconds=5))
    assert clock.monotonic_us() <= at_us * 9 / 8 + 100


def test_a_wait_for_nobody_takes_few_looks_and_not_longer_than_allowed(path):
    clock = Later(path, 10 * SECOND_US)
    with pytest.raises(dist.DistStoreError, match="after 5000 ms"):
        Meeting(path, clock=clock).wait(["key"], timedelta(seconds=5))
    assert clock.monotonic_us() == 5 * SECOND_US
    assert clock.sleeps < 600


CHILD = """
import sys
from pathlib import Path
from lastgood.training.rank.meeting import Meeting
store = Meeting(Path(sys.argv[1]))
store.set("ready", "yes")
for _ in range(1000):
    store.add("count", 1)
store.set("done", "yes")
"""


def test_two_processes_lose_no_addition_and_find_each_others_values(path):
    store = meet(path)
    with subprocess.Popen([sys.executable, "-c", CHILD, path]) as child:
        store.get("ready")
        for _ in range(1000):
            store.add("count", 1)
        assert store.get("done") == b"yes"
        assert child.wait() == 0
    assert store.add("count", 0) == 2000


def test_half_a_record_of_a_killed_writer_is_not_seen_and_hides_nothing(path):
    near = meet(path)
    near.set("before", "1")
    whole = path.read_bytes()
    near.set("torn", b"\0" * 100)
    path.write_bytes(path.read_bytes()[:-1])
    far = meet(path)
    assert (far.check(["before"]), far.check(["torn"])) == (True, False)
    far.set("after", "3")
    assert path.read_bytes().startswith(whole)
    assert meet(path).get("after") == b"3"
    assert meet(path).num_keys() == 2


def test_a_file_that_was_removed_is_made_anew_by_the_next_writer(path):
    near, far = meet(path), meet(path)
    near.set("long name", "one")
    assert far.get("long name") == b"one"
    path.rename(path.with_suffix(".gone"))
    near.set("key", "two")
    assert far.get("key") == b"two"


def test_a_file_that_cannot_be_written_is_an_error_of_the_group(path):
    with pytest.raises(dist.DistStoreError, match="No such file") as caught:
        meet(path / "below").set("key", "value")
    assert is_group_error(caught.value)


def test_a_writer_that_is_stopped_holds_nobody_for_longer_than_allowed(path):
    """Its lock stays with it: who waits for that gives up as for a key."""
    holder, other = meet(path), meet(path, limit_s=0.02)
    with (
        holder._writing(),
        pytest.raises(dist.DistStoreError, match="a peer that holds the file"),
    ):
        other.set("key", "value")
    other.set("key", "value")


# --- a group that is formed through it ------------------------------------------------------------


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    made = Group()
    yield made
    made.leave()


def test_a_group_and_its_subgroups_are_formed_and_the_next_one_after_it(group, tmp_path):
    for generation in (1, 2):
        group.join(generation=generation, rank=0, world=1, store=tmp_path / f"gen{generation}")
        dist.barrier(group=dist.new_group([0]))
        group.leave()
        assert not dist.is_initialized()


def test_a_missing_peer_ends_the_join_with_an_error_of_the_group(group, path, monkeypatch):
    monkeypatch.setattr(module, "JOIN_LIMIT", timedelta(milliseconds=100))
    with pytest.raises(RuntimeError, match="wait timeout after") as caught:
        group.join(generation=1, rank=0, world=2, store=path)
    assert is_group_error(caught.value)
    group.leave()
    group.join(generation=2, rank=0, world=1, store=path.with_name("gen2"))
    dist.barrier()


def test_a_cut_ends_the_wait_for_a_peer_that_never_comes(group, path, monkeypatch):
    """A peer died before it wrote its address: the others do not wait out the limit."""
    monkeypatch.setattr(module, "JOIN_LIMIT", timedelta(hours=1))

    def cut_once_it_waits():
        while not path.stat().st_size:  # it writes its own address before it waits for the other's
            SystemClock().sleep_us(1_000)
        group.cut(1)

    control = threading.Thread(target=cut_once_it_waits)
    path.touch()
    control.start()
    with pytest.raises(RuntimeError, match="given up") as caught:
        group.join(generation=1, rank=0, world=2, store=path)
    control.join()
    assert is_group_error(caught.value)


@pytest.mark.nightly
def test_a_peer_that_wrote_its_address_and_never_connects_is_waited_for_once(group, path):
    """gloo waits five times its own limit for a connection: 25 s, which no cut shortens."""

    def write_an_address_where_nobody_is():
        store = meet(path)
        own = bytearray(store.get("0//cpu//0/0"))
        (host_bytes,) = struct.unpack_from("=Q", own)
        port_at = 8 + host_bytes + 8 + 2
        own[port_at : port_at + 2] = b"\xff\xff"  # the higher port is the one that connects
        store.set("0//cpu//0/1", bytes(own))

    peer = threading.Thread(target=write_an_address_where_nobody_is)
    peer.start()
    began_us = SystemClock().monotonic_us()
    with pytest.raises(RuntimeError) as caught:
        group.join(generation=1, rank=0, world=2, store=path)
    assert SystemClock().monotonic_us() - began_us < 20 * SECOND_US
    assert is_group_error(caught.value)
    peer.join()
