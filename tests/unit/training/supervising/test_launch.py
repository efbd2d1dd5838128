"""The first crew: who serves, who is a spare, and that the ledger knows both from the start."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from lastgood.training.supervising import launch
from lastgood.training.supervising.launch import _choose_ranks


def supervisor_of(*goldens, ranks):
    events: list[tuple[str, dict]] = []
    recorder = SimpleNamespace(
        versions={}, record=lambda kind, **fields: events.append((kind, fields["body"]))
    )
    workers = {
        f"w{n}": SimpleNamespace(name=f"w{n}", golden=golden, versions={"torch": "2"}, kill=lambda: None)
        for n, golden in enumerate(goldens)
    }  # fmt: skip
    made = SimpleNamespace(workers=workers, recorder=recorder, options=SimpleNamespace(ranks=ranks), serving=(), spares=[])  # fmt: skip
    return made, events


def test_a_spare_of_the_first_crew_is_parked_on_record():
    """Without it a report could not tell a spare that waits from a worker that is still starting."""
    supervisor, events = supervisor_of("aa", "aa", "aa", ranks=2)
    _choose_ranks(supervisor)
    assert (supervisor.serving, supervisor.spares) == (("w0", "w1"), ["w2"])
    assert events == [("inventory", {"worker": "w2", "state": "parked"})]


def test_a_worker_with_other_bits_is_refused_and_parks_nowhere():
    supervisor, events = supervisor_of("aa", "ab", "aa", "aa", ranks=2)
    _choose_ranks(supervisor)
    assert (supervisor.serving, supervisor.spares) == (("w0", "w2"), ["w3"])
    assert [(body["worker"], body["state"]) for _, body in events] == [("w1", "refused"), ("w3", "parked")]  # fmt: skip


def test_one_that_was_killed_before_it_was_ready_is_reaped_before_another_is_started(monkeypatch):
    """Its end is known before the kernel is through with it: whoever is forgotten then stays a zombie."""
    order = MagicMock()
    worker = SimpleNamespace(name="w0", process=order.process, close=order.close)
    supervisor = MagicMock(workers={"w0": worker})
    monkeypatch.setattr(launch, "start_worker", order.start)
    launch._replace_killed(supervisor, worker, -9, replaced_count=1)
    assert [call[0] for call in order.mock_calls] == ["process.wait", "close", "start"]
    assert not supervisor.workers
