import pytest

from lastgood.sim.kernel import EventBudgetExceededError, Kernel


def run(kernel: Kernel, until_us: int = 1000, **rules) -> int:
    return kernel.run(until_us=until_us, event_count_max=100, **rules)


def test_events_happen_in_the_order_of_their_time_and_then_of_their_making():
    kernel, seen = Kernel(1), []
    for name, delay_us in (("c", 20), ("a", 10), ("d", 20), ("b", 10)):
        kernel.after(delay_us, name, lambda n=name: seen.append((kernel.now_us, n)))
    assert run(kernel) == 1000
    assert seen == [(10, "a"), (10, "b"), (20, "c"), (20, "d")]


def test_what_an_event_schedules_for_now_happens_after_what_was_due():
    kernel, seen = Kernel(1), []

    def first():
        seen.append("first")
        kernel.after(0, "third", lambda: seen.append("third"))

    kernel.after(5, "first", first)
    kernel.after(5, "second", lambda: seen.append("second"))
    run(kernel)
    assert seen == ["first", "second", "third"]


def test_a_cancelled_event_does_not_happen():
    kernel, seen = Kernel(1), []
    event = kernel.after(5, "no", lambda: seen.append("no"))
    event.cancel()
    run(kernel)
    assert seen == []
    assert kernel.event_count == 0


def test_time_stops_where_it_was_told_to():
    kernel, seen = Kernel(1, start_us=7), []
    kernel.after(100, "late", lambda: seen.append(kernel.now_us))
    assert kernel.run(until_us=50, event_count_max=9) == 50
    assert seen == []
    assert kernel.run(until_us=107, event_count_max=9) == 107
    assert seen == [107]


def test_a_run_ends_when_it_is_over():
    kernel, seen = Kernel(1), []
    for delay_us in range(1, 9):
        kernel.after(delay_us, "tick", lambda: seen.append(kernel.now_us))
    assert run(kernel, is_over=lambda: len(seen) == 3) == 3


def test_a_livelock_is_an_error_and_not_a_long_run():
    kernel = Kernel(4)

    def again():
        kernel.after(0, "again", again)

    again()
    with pytest.raises(EventBudgetExceededError, match="seed 4: 100 events"):
        run(kernel)


def test_an_event_in_the_past_is_refused():
    with pytest.raises(ValueError, match="needs 0 or more"):
        Kernel(1).after(-1, "before", lambda: None)


def test_streams_depend_on_the_seed_and_their_name_only():
    one, other = Kernel(5), Kernel(5)
    one.stream("noise").random()
    drawn = [one.stream("delays").random() for _ in range(3)]
    assert [other.stream("delays").random() for _ in range(3)] == drawn
    assert [Kernel(6).stream("delays").random() for _ in range(3)] != drawn


def test_a_watcher_sees_every_event():
    kernel, seen = Kernel(1), []
    kernel.after(1, "a", lambda: None)
    kernel.after(2, "b", lambda: None)
    run(kernel, after_each=seen.append)
    assert seen == ["a", "b"]
