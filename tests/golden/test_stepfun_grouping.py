"""How much the grouping rule alone moves a count: 584 faults of a published trace are 284 under a wide enough gap.

The counts are those of the reference note (incidents by the gap of their starts, 5, 30, 60 and 360 minutes). The trace
is Apache-2.0 and not carried here: the test reads it where LASTGOOD_SHARED_DATA points, and is skipped without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.ledger.columns import EventTable, fold_table, observed_windows, read_events
from lastgood.ledger.grouping import parse_rule
from lastgood.ledger.incident import fold_incidents
from lastgood.ledger.store import read_store
from tests.unit.ledger.importers.import_cases import import_one

SHARED = Path(os.environ.get("LASTGOOD_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACE = SHARED / "stepfun" / "fault_trace.json"

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"the published trace is not at {TRACE}")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_one(tmp_path_factory.mktemp("stepfun"), TRACE).ledger


@pytest.fixture(scope="module")
def table(ledger: Path) -> EventTable:
    return read_events(ledger)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("links", 584),
        ("merge:5min@site", 496),
        ("merge:30min@site", 455),
        ("merge:60min@site", 425),
        ("merge:360min@site", 284),
        ("gap:10min@host", 584),
    ],
)
def test_the_rule_decides_how_many_incidents_there_are(ledger, table, rule, count):
    assert len(fold_table(table, parse_rule(rule))) == count
    with read_store(ledger) as store:
        assert len(fold_incidents(store.events(), parse_rule(rule))) == count


def test_the_trace_says_what_it_covers(table):
    (window,) = observed_windows(table)
    assert not window.is_inferred
    assert window.begin_us <= table.t_us[0]


def test_the_nodes_and_levels_are_there_as_columns(table):
    folded = fold_table(table)
    assert len(folded.host.counts()) == 231
    levels = {"Hardware Failure": 0, "Software Failure": 0, "Other Failure": 0}
    for label, count in folded.label.counts().items():
        levels[label.split("/")[0]] += count
    assert levels == {"Hardware Failure": 298, "Software Failure": 24, "Other Failure": 262}
