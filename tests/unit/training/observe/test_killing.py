"""The kill of act mode: its isolation counts from the name of the culprit, as every report reads it."""

from types import SimpleNamespace

from lastgood.base.clock import ManualClock
from lastgood.training.observe.supervisor import ObserveSupervisor


def test_the_wait_for_the_last_words_of_the_peers_is_part_of_the_isolation():
    clock, told = ManualClock(0), []
    clock.sleep_us(5_000_000)
    rank = SimpleNamespace(name="r1a1", exit_code=None)
    rank.kill = lambda: setattr(rank, "exit_code", -9)
    supervisor = SimpleNamespace(
        clock=clock, ranks=[rank], recorder=SimpleNamespace(record=lambda kind, **f: told.append((kind, f)))
    )  # fmt: skip
    case = SimpleNamespace(id="act1/1.1", diagnosed_us=3_000_000)
    assert ObserveSupervisor._kill_all(supervisor, case) == []  # type: ignore[arg-type]
    ((kind, fields),) = told
    assert (kind, fields["incident"], fields["isolate_us"]) == ("isolate", "act1/1.1", 2_000_000)
    assert fields["body"]["killed"] == ["r1a1"]
