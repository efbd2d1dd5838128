"""When ranks share their snapshots: never alone, and by default only from a size on that is worth it."""

import pytest

from lastgood.training.states.striping import STRIPED_STATE_BYTES_MIN, SnapshotForm, stripe_count


@pytest.mark.parametrize(
    ("form", "ranks", "state_bytes", "expected"),
    [
        ("auto", 4, STRIPED_STATE_BYTES_MIN, 4),
        ("auto", 4, STRIPED_STATE_BYTES_MIN - 1, 1),
        ("auto", 1, 10**9, 1),
        ("whole", 4, 10**9, 1),
        ("striped", 3, 10, 3),
        ("striped", 1, 10**9, 1),
    ],
)
def test_the_form_of_snapshots_follows_from_what_was_asked_the_ranks_and_the_size(
    form, ranks, state_bytes, expected
):
    assert expected == stripe_count(SnapshotForm(form), ranks=ranks, state_bytes=state_bytes)
