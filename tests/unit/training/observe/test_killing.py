"""The end of an attempt in act mode: what its isolation counts, and what a person reads when no other one follows."""

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


def test_the_reason_to_give_up_says_what_the_error_was_and_where():
    seen = "rank 1 raised ValueError in step 3 (train.py:9 in main): no such label"
    case = SimpleNamespace(signature="exception:ValueError:", evidence=(seen,))
    supervisor = SimpleNamespace(
        watcher=SimpleNamespace(open_case=case, first_step=None),
        ranks=[],
        _restarting=SimpleNamespace(refusal=lambda *_, **__: "exception:ValueError: came back 3 times"),
        _kill_all=lambda _: [],
        _escalate=lambda _, reason: reason,
    )  # fmt: skip
    said = ObserveSupervisor._restart(supervisor, now_us=0)  # type: ignore[arg-type]
    assert said == f"exception:ValueError: came back 3 times; the last time: {seen}"
