import pytest

from lastgood.recovery.crew import Standing, first_crew


def crew(spares: int = 1):
    return first_crew(["a", "b", "c"], spare_count=spares)


def test_the_first_spares_are_being_started_by_the_caller():
    assert (crew().launching_count, crew().spare_deficit, crew().spares) == (1, 0, ())


def test_a_lost_rank_needs_a_worker_and_the_pool_needs_its_spare():
    after = crew().spare_ready("s").moved(["b"], Standing.DOOMED)
    assert (after.vacant_ranks, after.spare_deficit) == ((1,), 1)
    assert after.ordered(1).spare_deficit == 0


def test_parked_workers_keep_their_ranks_and_spares_fill_the_vacant_ones():
    after = (
        crew()
        .spare_ready("s")
        .moved(["b"], Standing.GONE)
        .moved(["a", "c"], Standing.PARKED)
        .reassigned()
    )
    assert after.serving == ("a", "s", "c")
    assert after.serving_with(Standing.ACTIVE) == ("a", "s", "c")
    assert after.spares == ()


def test_a_generation_is_refused_while_the_old_one_is_still_served():
    with pytest.raises(ValueError, match="a is active"):
        crew().spare_ready("s").moved(["b"], Standing.GONE).reassigned()


def test_a_generation_is_refused_while_a_killed_process_may_still_live():
    parked = crew().spare_ready("s").moved(["a", "c"], Standing.PARKED)
    with pytest.raises(ValueError, match="b is doomed"):
        parked.moved(["b"], Standing.DOOMED).reassigned()
    assert parked.moved(["b"], Standing.UNKILLABLE).reassigned().serving == ("a", "s", "c")


def test_a_generation_is_refused_without_a_spare():
    with pytest.raises(ValueError, match="0 spares"):
        crew().moved(["b"], Standing.GONE).moved(["a", "c"], Standing.PARKED).reassigned()


@pytest.mark.parametrize("end", [Standing.GONE, Standing.UNKILLABLE])
def test_what_has_ended_never_comes_back(end):
    after = crew().moved(["b"], end)
    assert after.moved(["b"], Standing.PARKED).of("b") is end
    assert after.spare_ready("b").spares == ()


def test_a_serving_worker_cannot_become_a_spare():
    assert crew().spare_ready("a").spares == ()


def test_a_ready_spare_that_ends_is_not_a_failed_launch():
    after = crew().spare_ready("s").spare_lost("s")
    assert (after.spares, after.launch_failure_count, after.spare_deficit) == ((), 0, 1)


def test_a_spare_that_never_came_up_is_a_failed_launch():
    after = crew().spare_lost("s")
    assert (after.launch_failure_count, after.launching_count, after.spare_deficit) == (1, 0, 1)
    assert after.spare_lost("s").launch_failure_count == 1
    assert after.spare_ready("t").launch_failure_count == 0
