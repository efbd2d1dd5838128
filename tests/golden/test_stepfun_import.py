"""The published fault trace gives the numbers that were worked out from it by other means (reference note, 1.4)."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from lastgood.ledger.importers.stepfun import DAY_ZERO_US
from tests.unit.ledger.importers.import_cases import Imported, import_one

SHARED = Path(os.environ.get("LASTGOOD_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACE = SHARED / "stepfun" / "fault_trace.json"
DAY_US = 86_400_000_000

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"the published trace is not at {TRACE}")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return import_one(tmp_path_factory.mktemp("stepfun"), TRACE)


def test_1168_records_are_584_faults_on_231_nodes(trace):
    assert (trace.quality.read, trace.quality.accepted, trace.quality.rejected_count) == (
        1168,
        1168,
        0,
    )
    assert (len(trace.incidents), len({i.domain for i in trace.incidents})) == (584, 231)
    assert not any(i.is_open for i in trace.incidents)


def test_the_levels_are_298_24_and_262(trace):
    labels = [e.body["label"].split("/") for e in trace.events if e.kind == "incident.open"]

    assert Counter(level for level, _, _ in labels) == {
        "Hardware Failure": 298, "Software Failure": 24, "Other Failure": 262,
    }  # fmt: skip
    assert Counter(part for _, part, _ in labels)["GPU"] == 158


def test_the_causes_agree_with_the_words_of_the_trace(trace):
    causes = Counter(i.cause for i in trace.incidents)

    assert sum(count for cause, count in causes.items() if cause.startswith("gpu.")) == 158
    assert (causes["network.cable"], causes["network.nic"], causes["host.power"]) == (40, 30, 26)
    # 144 + 97 + 12 + 1 rows say no more than *Unknown Error*.
    assert causes["unknown"] == trace.quality.unknown_causes == 254
    assert Counter(i.class_ for i in trace.incidents)["sdc"] == 1
    assert not any(i.is_planned for i in trace.incidents)


def test_the_shape_of_the_gaps_and_lengths_is_that_of_the_trace(trace):
    starts = [i.onset_us for i in trace.incidents]

    assert sum(a == b for a, b in pairwise(starts)) == 55
    assert sum(i.onset_us == i.closed_us for i in trace.incidents) == 14
    assert trace.file.coverage_begin_us == DAY_ZERO_US
    assert (trace.file.coverage_end_us - DAY_ZERO_US) / DAY_US == 348.9798


def test_importing_it_again_adds_nothing(trace):
    again = import_one(trace.ledger.parent, TRACE)

    assert (again.quality.events_new, again.quality.events_merged) == (0, 1169)
