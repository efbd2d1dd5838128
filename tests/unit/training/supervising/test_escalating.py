"""An owner who is called finds in the ledger, and on the terminal, what it is called for."""

from types import SimpleNamespace

from lastgood.recovery import messages
from lastgood.training.supervising import effects as module
from lastgood.training.supervising.effects import Effects


def test_what_the_turn_recorded_is_written_before_the_owner_is_called(tmp_path, monkeypatch):
    done = []
    supervisor = SimpleNamespace(
        run_dir=SimpleNamespace(progress=tmp_path / "progress"),
        recorder=SimpleNamespace(write_held=lambda: done.append("written")),
        contract=None,
        options=SimpleNamespace(ledger=tmp_path / "ledger"),
    )
    monkeypatch.setattr(module, "notify", lambda *_, **__: done.append("called"))
    effects = Effects(supervisor)
    effects.carry_out(messages.Escalate(reason="recurs", incident="i1", owner="storage team"))
    effects.close()
    assert done == ["written", "called"]
