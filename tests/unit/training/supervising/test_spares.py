"""What becomes of a spare: admitted, refused for other bits, or lost, and what the ledger says of each."""

from types import SimpleNamespace

import pytest

from lastgood.recovery import messages as m
from lastgood.training.supervising.effects import Effects


class Supervisor:
    """Two ranks that computed the bits `aa`, and a loop that only listens."""

    def __init__(self, folder):
        self.run_dir = SimpleNamespace(progress=folder / "progress.bin")
        self.serving, self.spares = ("w0", "w1"), []
        self.workers = {name: self.worker(name, "aa") for name in self.serving}
        self.told, self.events, self.killed = [], [], []
        self.recorder = SimpleNamespace(
            record=lambda kind, **fields: self.events.append((kind, fields["body"]))
        )
        self.tell_loop = self.told.append

    def worker(self, name, golden):
        return SimpleNamespace(
            name=name,
            golden=golden,
            kill=lambda: self.killed.append(name),
            close=lambda: None,
            is_gone=True,
        )

    def launch(self, name, golden):
        self.workers[name] = self.worker(name, golden)
        return self.workers[name]


@pytest.fixture
def supervisor(tmp_path):
    return Supervisor(tmp_path)


@pytest.fixture
def effects(supervisor):
    made = Effects(supervisor)
    yield made
    made.close()


def test_a_spare_with_the_bits_of_its_peers_parks_and_is_announced(supervisor, effects):
    effects.admit_spare(supervisor.launch("w2", "aa"))
    assert supervisor.spares == ["w2"]
    assert supervisor.told == [m.SpareReady("w2")]
    assert supervisor.events == [("inventory", {"worker": "w2", "state": "parked"})]


def test_a_spare_that_computes_other_bits_is_refused_ended_and_never_announced(supervisor, effects):
    effects.admit_spare(supervisor.launch("w2", "ab"))
    assert (supervisor.spares, supervisor.told, supervisor.killed) == ([], [], ["w2"])
    assert supervisor.events == [
        ("inventory", {"worker": "w2", "state": "refused", "golden": "ab", "usual": "aa"})
    ]


def test_a_spare_that_ended_is_forgotten_and_a_rank_is_not(supervisor, effects):
    effects.admit_spare(supervisor.launch("w2", "aa"))
    effects.forget(supervisor.workers["w2"])
    effects.forget(supervisor.workers["w1"])
    assert supervisor.spares == []
    assert sorted(supervisor.workers) == ["w0", "w1"]
