"""Published tables: the counts as printed, and the one row of Llama 3 Table 5 that does not follow from its count."""

from __future__ import annotations

import msgspec
import pytest

from lastgood.budget.published.facts import published_digest, read_published
from lastgood.contract.taxonomy import AXES

TABLE = read_published("llama3_table5")
SHA256 = "6120c0a3d23bf8a5b783521801e2910aee74fecb4c401fb8f6ea46105a77ce7a"


def test_the_counts_of_table_5_add_up_to_what_the_text_says():
    """466 = 47 + 419 in 54 days: Llama Team (2024), section 3.3.4."""
    assert (TABLE.totals.all, TABLE.totals.planned, TABLE.totals.unexpected) == (466, 47, 419)
    assert TABLE.totals.planned + TABLE.totals.unexpected == TABLE.totals.all
    assert TABLE.counted == 419
    assert TABLE.window_hours == 54 * 24


def test_only_the_first_row_disagrees_with_its_own_count():
    """148 of 419 is 35.3 %, printed 30.1 %, which would be 126."""
    wrong = [row for row in TABLE.rows if not TABLE.agrees(row)]
    assert [(row.component, row.percent) for row in wrong] == [("Faulty GPU", "30.1")]
    assert round(TABLE.percent_of(wrong[0].count), 1) == 35.3
    assert TABLE.count_behind(wrong[0]) == 126
    assert TABLE.percent_printed_sum == pytest.approx(94.9)


def test_the_share_of_gpu_rows_is_printed_as_the_sum_of_printed_shares():
    """58.7 % follows the printed shares; the counts give 268 of 419, 64.0 %."""
    gpu = [row for row in TABLE.rows if row.category == "GPU"]
    assert sum(float(row.percent) for row in gpu) == pytest.approx(58.7)
    assert (TABLE.in_category("GPU"), round(TABLE.percent_of(268), 1)) == (268, 64.0)


def test_a_share_agrees_when_it_is_the_count_rounded_and_not_when_it_is_one_digit_off():
    row = next(r for r in TABLE.rows if r.count == 72)
    off = msgspec.structs.replace(row, percent="17.3")
    assert (TABLE.agrees(row), TABLE.agrees(off)) == (True, False)


@pytest.mark.parametrize("axis", ["cause", "class"])
def test_every_row_stands_in_the_taxonomy(axis):
    words = {member.value for member in AXES[axis]}
    attribute = "class_" if axis == "class" else axis
    assert {getattr(row, attribute) for row in TABLE.rows} <= words


def test_a_watchdog_is_a_symptom_and_no_cause():
    row = next(r for r in TABLE.rows if r.symptom)
    assert (row.component, row.cause) == ("NCCL watchdog timeouts", "unknown")


def test_the_typed_facts_are_pinned_by_their_hash():
    assert published_digest("llama3_table5") == SHA256
