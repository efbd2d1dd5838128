"""The table of an import: sums, bounds against hostile files, and its plain form."""

import json

from lastgood.ledger.importers.quality import (
    EXAMPLE_COUNT_MAX,
    NOTE_COUNT_MAX,
    OTHER,
    REASON_COUNT_MAX,
    Quality,
    total,
)


def table(**counts) -> Quality:
    quality = Quality(**counts)
    quality.ignore("dull", 2)
    quality.reject("bad", locator="a#1", detail="why", raw="x")
    quality.lose(3, "repeats")
    quality.note("a sentence")
    return quality


def test_the_total_is_the_sum_of_its_parts():
    whole = total(
        [
            table(read=5, accepted=2, events_new=2),
            table(read=7, accepted=4, failures=4, unknown_causes=1),
        ]
    )
    assert (whole.read, whole.accepted, whole.ignored_count, whole.rejected_count) == (12, 6, 4, 2)
    assert (whole.events_new, whole.unknown_share) == (2, 0.25)
    assert whole.known_losses == {"repeats": 6}
    assert whole.notes == ["a sentence"]
    assert whole.rejected["bad"].count == 2


def test_without_failures_there_is_no_unknown_share():
    assert Quality(read=5).unknown_share is None


def test_a_hostile_file_cannot_fill_the_memory_with_reasons():
    quality = Quality()
    for n in range(1_000):
        quality.reject(f"reason {n}", locator="a#1", detail="d" * 10_000, raw="r" * 10_000)
        quality.ignore(f"why {n}")
        quality.lose(1, f"what {n}")
        quality.note(f"note {n}")
    assert quality.rejected_count == quality.ignored_count == 1_000
    assert (
        len(quality.rejected)
        == len(quality.ignored)
        == len(quality.known_losses)
        == REASON_COUNT_MAX + 1
    )
    assert quality.rejected[OTHER].count == 1_000 - REASON_COUNT_MAX
    assert len(quality.rejected[OTHER].examples) == EXAMPLE_COUNT_MAX
    assert len(quality.notes) == NOTE_COUNT_MAX
    assert len(json.dumps(quality.to_plain())) < 1_000_000


def test_the_plain_form_has_the_worst_reason_first():
    quality = table(read=4)
    for n in range(2):
        quality.reject("worse", locator=f"a#{n}", detail=None, raw="y")
    plain = quality.to_plain()
    assert [entry["reason"] for entry in plain["rejected"]] == ["worse", "bad"]
    assert plain["rejected"][1]["examples"] == [{"at": "a#1", "detail": "why", "begins": "x"}]
