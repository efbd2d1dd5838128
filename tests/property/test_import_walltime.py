"""Whatever a mutated log says, the wall time of its runs has one state for each microsecond, and a section is built."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.base.errors import BadInput
from lastgood.evidence.imported_run_part import build_imported_run, is_run_imported
from lastgood.ledger.importers import registry
from lastgood.ledger.importers.clean import Cleaner
from lastgood.ledger.importers.driver import read_events
from lastgood.ledger.importers.importer import Context, Options
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.importers.source import Source
from lastgood.ledger.walltime import partition
from tests.property.test_import_fuzz import EXAMPLE_COUNT, MASKER, NOW_US, mutated


def events_of(name: str, file: str, data: bytes) -> list:
    source = Source(file, stream=io.BytesIO(data))
    importer = registry.importer(name)
    given_options = Options(year=2026, zone="UTC")
    context = Context(
        importer, source, options=given_options, cleaner=Cleaner(MASKER), quality=Quality()
    )
    try:
        return list(read_events(importer, source, context))
    except BadInput:
        return []


@pytest.mark.parametrize("name", ["goodput", "mlperf", "slurm_jobs"])
def test_the_time_of_every_run_of_a_mutated_log_has_one_state(name):
    @settings(max_examples=EXAMPLE_COUNT, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=mutated(name), ago=st.integers(0, 10**12))
    def check(case, ago):
        events = events_of(name, *case)
        for run in sorted({event.run for event in events if event.run}):
            wall = partition(events, run=run, as_of_us=NOW_US - ago)
            assert sum(wall.totals_us.values()) == wall.window_us
            assert all(a.end_us == b.start_us for a, b in pairwise(wall.spans))  # fmt: skip
            if is_run_imported(events, run):
                section = build_imported_run(events, run=run, as_of_us=NOW_US - ago)
                assert section.headline

    check()
