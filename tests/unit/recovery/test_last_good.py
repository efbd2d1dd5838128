import pytest

from lastgood.recovery.last_good import Trust, TrustBook, choose, key_of
from lastgood.recovery.messages import Tier, VerifyMode
from tests.unit.recovery.scene import checkpoint, slot, usual_states


def target(*candidates, book: TrustBook | None = None, published_step: int = 99, **rules):
    choice = choose(book or TrustBook(), candidates, published_step=published_step, **rules)
    return None if choice is None else (choice.plan.target_step, choice.plan.tier, choice.plan.mode)


def test_the_newest_state_is_taken_and_its_predecessor_restored():
    choice = choose(TrustBook(), usual_states(), published_step=10)
    assert (choice.plan.target_step, choice.plan.restore_step) == (10, 9)
    assert (choice.plan.mode, choice.plan.digest) == (VerifyMode.PREDECESSOR, "d10")


def test_a_state_without_a_predecessor_is_run_twice():
    assert target(slot(0, has_predecessor=False)) == (0, Tier.SLOT, VerifyMode.REPEAT)


def test_of_two_equal_steps_the_snapshot_is_taken():
    assert target(checkpoint(10), slot(10))[1] is Tier.SLOT


def test_order_in_the_catalogue_does_not_matter():
    assert target(*reversed(usual_states())) == target(*usual_states())


@pytest.mark.parametrize(("below", "expected"), [(11, 10), (10, 9), (9, 8), (8, 4), (4, None)])
def test_only_states_strictly_older_than_the_first_divergent_step_count(below, expected):
    found = target(*usual_states(), below_step=below)
    assert (found[0] if found else None) == expected


@pytest.mark.parametrize("trust", [Trust.SUSPECT, Trust.TAINTED, Trust.WRITTEN])
def test_a_state_that_is_not_trusted_is_passed_over(trust):
    book = TrustBook().marked(key_of(slot(10)), trust)
    assert target(*usual_states(), book=book)[0] == 9


@pytest.mark.parametrize("trust", [Trust.COMPLETE, Trust.VERIFIED])
def test_a_state_that_is_trusted_is_taken(trust):
    assert target(*usual_states(), book=TrustBook().marked(key_of(slot(10)), trust))[0] == 10


def test_a_bad_judgement_is_never_taken_back():
    key = key_of(slot(10))
    book = TrustBook().marked(key, Trust.SUSPECT).marked(key, Trust.VERIFIED)
    assert book.trust_of(slot(10)) is Trust.SUSPECT


def test_a_predecessor_that_is_not_trusted_is_not_built_on():
    book = TrustBook().marked(key_of(slot(9)), Trust.SUSPECT)
    assert target(*usual_states(), book=book) == (10, Tier.SLOT, VerifyMode.REPEAT)


def test_a_state_without_a_digest_was_only_written():
    assert TrustBook().trust_of(slot(10, digest="")) is Trust.WRITTEN
    assert target(slot(10, digest=""), slot(9))[0] == 9


def test_a_state_that_failed_in_this_incident_is_not_tried_again_but_another_copy_may_be():
    states = (slot(10), checkpoint(10), slot(9))
    assert target(*states, failed={(10, Tier.SLOT)})[:2] == (10, Tier.CHECKPOINT)
    assert target(*states, failed={(10, Tier.SLOT), (10, Tier.CHECKPOINT)})[0] == 9


def test_nothing_left_is_none():
    assert target() is None


# --- abandoned histories --------------------------------------------------------------------------


def resumed(step: int, generation: int = 2, at_us: int = 1000) -> TrustBook:
    return TrustBook().resumed(generation=generation, step=step, at_us=at_us)


def test_what_an_older_generation_wrote_behind_the_resumed_step_is_abandoned():
    states = (slot(12, generation=1), slot(11, generation=1), slot(10, generation=1))
    assert target(*states, book=resumed(10))[0] == 10
    assert target(slot(12, generation=2), *states, book=resumed(10))[0] == 12


def test_every_later_resumption_counts():
    book = resumed(10).resumed(generation=3, step=20, at_us=2000)
    assert target(slot(15, generation=1), slot(9, generation=1), book=book)[0] == 9
    assert target(slot(15, generation=2), book=book)[0] == 15
    assert target(slot(25, generation=2), book=book) is None


def test_a_lower_resumption_makes_the_higher_ones_pointless():
    book = resumed(10).resumed(generation=3, step=4, at_us=2000)
    assert [r.step for r in book.resumptions] == [4]
    assert target(slot(8, generation=1), slot(3, generation=1), book=book)[0] == 3


def test_time_stands_in_for_an_unknown_generation():
    def state(step, us):
        return checkpoint(step, generation=None, published_us=us)

    assert target(state(12, 999), state(8, 500), book=resumed(10))[0] == 8
    assert target(state(12, 1001), state(8, 500), book=resumed(10))[0] == 12


def test_of_an_unknown_slot_progress_is_the_proof():
    states = (slot(12, generation=None), slot(11, generation=None))
    assert target(*states, book=resumed(10), published_step=11)[0] == 11


def test_an_unknown_checkpoint_is_taken_for_older_than_every_resumption():
    states = (checkpoint(12, generation=None), checkpoint(8, generation=None))
    assert target(*states, book=resumed(10), published_step=50)[0] == 8


def test_before_any_incident_everything_is_current():
    assert target(slot(12, generation=None), published_step=3)[0] == 12


def test_publishing_a_step_again_replaces_the_suspect_copy_of_unknown_generation():
    state = slot(10, generation=None)
    book = TrustBook().marked(key_of(state), Trust.SUSPECT)
    assert book.republished(9).trust_of(state) is Trust.SUSPECT
    assert book.republished(10).trust_of(state) is Trust.COMPLETE


def test_resuming_forgets_marks_of_abandoned_states_only():
    book = (
        TrustBook().marked(key_of(slot(12)), Trust.SUSPECT).marked(key_of(slot(3)), Trust.SUSPECT)
    )
    assert list(book.resumed(generation=2, step=10, at_us=0).marks) == [key_of(slot(3))]


@pytest.mark.parametrize(("below", "expected"), [(None, 10), (10, 7), (7, None)])
def test_the_newest_verified_state_is_told_without_a_list_of_states(below, expected):
    book = TrustBook()
    for step, trust in ((7, Trust.VERIFIED), (10, Trust.VERIFIED), (11, Trust.COMPLETE)):
        book = book.marked(key_of(slot(step)), trust)
    assert book.newest_verified(below_step=below) == expected


def test_a_verified_state_of_which_a_copy_turned_ill_is_not_called_the_last_good_one():
    book = TrustBook().marked(key_of(slot(7)), Trust.VERIFIED)
    for copy, trust in ((slot(10), Trust.VERIFIED), (checkpoint(10), Trust.TAINTED)):
        book = book.marked(key_of(copy), trust)
    assert book.newest_verified() == 7
