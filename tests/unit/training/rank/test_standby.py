"""Groups that stand by: formed ahead for the loss of each rank, entered when that very rank is lost, dropped otherwise."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from lastgood.base.clock import SystemClock
from lastgood.training.control import FormStandby
from lastgood.training.rank import standby as module
from lastgood.training.rank.group import Group
from lastgood.training.rank.standby import Standby

SECOND_US = 1_000_000


def until(holds):
    clock = SystemClock()
    began_us = clock.monotonic_us()
    while not holds():
        assert clock.monotonic_us() - began_us < 20 * SECOND_US
        clock.sleep_us(1_000)


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    made = Group()
    yield made
    made.leave()


@pytest.fixture
def stores(tmp_path):
    return lambda lost_rank: tmp_path / f"standby.{lost_rank}"


def form(group, stores, number=1):
    """A spare's order in a world of one: it would serve alone."""
    group.standby.form(FormStandby(number=number, world=1), stores)
    until(lambda: group.standby.has(number, 0))


def test_a_group_that_stands_by_is_entered_without_forming_another(group, stores, tmp_path):
    form(group, stores)
    unused = tmp_path / "gen2"
    group.join(generation=2, rank=0, world=1, store=unused, lost_rank=0)
    value = torch.ones(1)
    dist.all_reduce(value)
    dist.barrier(group=dist.new_group([0]))
    assert (dist.get_rank(), dist.get_world_size(), float(value)) == (0, 1, 1.0)
    assert not unused.exists()
    assert stores(0).exists()


def test_it_is_entered_once_and_the_next_generation_forms_its_own(group, stores, tmp_path):
    form(group, stores)
    group.join(generation=2, rank=0, world=1, store=tmp_path / "gen2", lost_rank=0)
    assert not group.standby.has(1, 0)
    group.revoke(2)
    group.leave(waits=False)
    group.join(generation=3, rank=0, world=1, store=tmp_path / "gen3")
    dist.barrier()
    assert (tmp_path / "gen3").exists()


def test_torch_has_its_own_class_back_afterwards(group, stores, tmp_path):
    real = distributed_c10d.ProcessGroupGloo
    form(group, stores)
    group.join(generation=2, rank=0, world=1, store=tmp_path / "gen2", lost_rank=0)
    assert distributed_c10d.ProcessGroupGloo is real


def test_a_newer_order_replaces_what_stood_by(group, stores):
    form(group, stores, number=1)
    form(group, stores, number=2)
    assert not group.standby.has(1, 0)


def test_what_is_dropped_is_not_there_any_more(group, stores):
    form(group, stores)
    group.standby.drop()
    assert not group.standby.has(1, 0)


def test_a_rank_forms_nothing_for_its_own_loss(group, stores):
    """The others do that, with the spare."""
    group.standby.form(FormStandby(number=1, world=1, rank=0), stores)
    until(lambda: not any(t.name == "lastgood-standby" for t in threading.enumerate()))
    assert not group.standby.has(1, 0)
    assert not stores(0).exists()


def test_a_peer_that_never_comes_costs_nobody_anything(stores, tmp_path):
    standby = Standby(limit=timedelta(seconds=1), patience=timedelta(hours=1))
    standby.form(FormStandby(number=1, world=2), stores)
    until(lambda: stores(0).exists())
    assert not standby.has(1, 0)
    standby.close()
    until(lambda: not any(t.name == "lastgood-standby" for t in threading.enumerate()))
    assert not stores(1).exists(), "it went on to the next case behind the end"


def test_its_devices_are_those_that_torch_would_take(monkeypatch):
    asked = []

    class Gloo:
        @staticmethod
        def create_device(interface):
            asked.append(interface)
            return interface

        @staticmethod
        def create_default_device():
            return "default"

    monkeypatch.setattr(module.dist, "ProcessGroupGloo", Gloo)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo,eth1")
    assert module._devices() == ["lo", "eth1"]
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert module._devices() == ["default"]
