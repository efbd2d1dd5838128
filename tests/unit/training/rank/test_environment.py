"""Before there is a rank, asking for one is refused with the fix; afterwards the script sees what torchrun gives."""

import os

import pytest
import torch.distributed as dist

from lastgood.base.errors import Refused
from lastgood.training.rank import environment

ASK = {
    "environ[]": lambda name: os.environ[name],
    "environ.get": os.environ.get,
    "environ.get with a default": lambda name: os.environ.get(name, "0"),
    "getenv": os.getenv,
    "in": lambda name: name in os.environ,
}


@pytest.fixture
def guarded(monkeypatch):
    """Guard this very process, and put everything back."""
    kind, join, variables = type(os.environ), dist.init_process_group, dict(os.environ)
    for name in environment.RANK_VARIABLES:
        os.environ.pop(name, None)
    environment.guard()
    yield
    os.environ.__class__ = kind
    dist.init_process_group = join
    os.environ.clear()
    os.environ.update(variables)


@pytest.mark.parametrize("name", sorted(environment.RANK_VARIABLES))
@pytest.mark.parametrize("ask", list(ASK.values()), ids=list(ASK))
def test_a_read_of_the_rank_before_start_is_refused_with_the_fix(guarded, ask, name):
    with pytest.raises(Refused, match=r"lastgood\.start.*run\.rank") as refused:
        ask(name)
    assert name in str(refused.value)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("ask", list(ASK.values()), ids=list(ASK))
def test_after_release_the_rank_is_there(guarded, ask):
    environment.release(rank=2, world=4, generation=3)
    assert ask("RANK") in {"2", True}


def test_release_gives_what_torchrun_gives_and_again_for_the_next_generation(guarded):
    for rank, generation in ((2, 3), (1, 4)):
        environment.release(rank=rank, world=4, generation=generation)
        found = {
            name: os.environ[name]
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        }
        assert found == {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0",
        }  # fmt: skip
        assert os.environ["TORCHELASTIC_RESTART_COUNT"] == str(generation - 1)


def test_everything_else_in_the_environment_is_as_ever(guarded, monkeypatch):
    monkeypatch.setenv("LASTGOOD_X", "1")
    assert os.environ["LASTGOOD_X"] == os.environ.get("LASTGOOD_X") == "1"
    assert os.environ.get("LASTGOOD_Y") is None
    assert "LASTGOOD_X" in dict(os.environ)
    with pytest.raises(KeyError):
        os.environ["LASTGOOD_Y"]


def test_a_process_group_before_start_is_refused_and_works_after_it(guarded, tmp_path):
    with pytest.raises(Refused, match="before lastgood"):
        dist.init_process_group("gloo")
    environment.release(rank=0, world=1, generation=1)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert dist.is_initialized()
    dist.destroy_process_group()
