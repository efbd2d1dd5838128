"""A generation that is over leaves no threads and no connections of its group, however often ranks come and go."""

import gc
import os
import threading
import weakref
from contextlib import suppress
from unittest.mock import MagicMock

import pytest
import torch

from lastgood.training.rank.build import Blueprint
from lastgood.training.rank.group import Group
from lastgood.training.rank.reductions import Reductions
from lastgood.training.rank.replica import Replica
from lastgood.training.slot import StatusSlot
from tests.fault.training_drill import wait_until

LIMIT_S = 40


def loops() -> int:
    """The event loops of gloo in this process: one for each group that lives."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{thread}/comm") as name:
            count += name.read().startswith("gloo_tcp")
    return count


@pytest.fixture
def replica(tmp_path):
    model = torch.nn.Linear(4, 4)
    blueprint = Blueprint(model, torch.optim.AdamW(model.parameters()), None, None)
    injection = MagicMock()
    return Replica(
        blueprint,
        blueprint.make_trainable(None, {}),
        StatusSlot(tmp_path / "w0", create=True),
        ddp={},
        hook=None,
        hook_state=None,
        injection=injection,
        reductions=Reductions(),
    )


def test_a_wrapper_is_gone_with_its_generation_without_a_collection(replica, tmp_path):
    """What was left out of collections would keep it, and with it a model that is made anew."""
    group = Group()
    group.join(generation=1, rank=0, world=1, store=tmp_path / "gen1")
    gc.disable()
    try:
        replica.wrap(is_synced=True)
        replica.hook.begin_step()
        replica(torch.randn(2, 4)).sum().backward()
        wrapper = weakref.ref(replica._wrapper)
        replica.unwrap()
        assert wrapper() is None
    finally:
        gc.enable()
        group.leave()


@pytest.mark.parametrize("waits", [True, False])
def test_a_group_ends_with_its_generation(replica, tmp_path, waits):
    before, group = loops(), Group()
    for generation in (1, 2, 3):
        group.join(generation=generation, rank=0, world=1, store=tmp_path / f"gen{generation}")
        replica.wrap(is_synced=True)
        replica.hook.begin_step()
        replica(torch.randn(2, 4)).sum().backward()
        # It has a loop, which gives itself its name: else this test would see nothing.
        wait_until(lambda: loops() > before, limit_s=LIMIT_S)
        replica.unwrap()
        if not waits:
            group.revoke(generation)
        group.leave(waits=waits)
        if waits:
            assert loops() == before
        else:
            wait_until(lambda: loops() == before, limit_s=LIMIT_S)
    wait_until(
        lambda: not any(t.name == "lastgood-leave" for t in threading.enumerate()),
        limit_s=LIMIT_S,
    )
