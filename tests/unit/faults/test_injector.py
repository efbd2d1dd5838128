"""The player of a tape, against a run that only says what it is told to say."""

from types import SimpleNamespace

import pytest

from lastgood.base.clock import ManualClock
from lastgood.base.figures import FigureKind
from lastgood.faults import injector
from lastgood.faults.live_run import RunState
from lastgood.faults.process import Injected
from lastgood.faults.spec import Fault, FaultKind, Target, When
from lastgood.faults.tape import Provenance, Tape

LASTS_US = 2_000
"""A recovery of small steps is not longer in a phase."""


@pytest.mark.parametrize("begins_us", range(9_000, 12_000, 500))
def test_a_phase_that_is_over_in_two_milliseconds_is_not_missed(begins_us, monkeypatch, tmp_path):
    clock = ManualClock()

    def state():
        is_in_it = begins_us <= clock.monotonic_us() < begins_us + LASTS_US
        return RunState(
            generation=2, phase="verifying" if is_in_it else "running", spares_parked=0, ranks={}
        )

    def inject(_fault, **_):
        return Injected(wall_us=0, monotonic_us=clock.monotonic_us(), detail={})

    monkeypatch.setattr(injector, "inject", inject)
    fault = Fault(
        id="f1",
        kind=FaultKind.SIGKILL,
        target=Target(rank=0),
        when=When(t_us=0, phase="verifying"),
    )
    tape = Tape(
        faults=(fault,), seed=1, provenance=Provenance(kind=FigureKind.ASSUMED, source="a test")
    )
    run = SimpleNamespace(state=state, published_step=lambda _rank: 12)
    with (tmp_path / "log.jsonl").open("wb") as log:
        player = injector.Player(tape, run=run, log=log, clock=clock, limit_us=50_000)
        assert player.play() == 0
    assert begins_us <= clock.monotonic_us() < begins_us + LASTS_US
