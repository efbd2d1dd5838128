"""The fleet's section of a report: from a ledger, or an export of one, to everything that its failures say.

The one door for the command line, for bundles and for their recomputation: the same ledger and the same question give
the same section. A ledger without imported records has no such section, so the report of a supervised run is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lastgood.evidence.drilled_runs import drilled_runs
from lastgood.evidence.exposure_basis import one_exposure, refuse_contradiction, with_source
from lastgood.evidence.rates_answers import fleet_answers, fleet_headline
from lastgood.evidence.rates_charts import (
    cumulative_chart,
    gap_chart,
    mean_cumulative_chart,
    weekly_chart,
)
from lastgood.evidence.rates_nodes_part import (
    bursts_section,
    durations_section,
    nodes_section,
    repairs_section,
)
from lastgood.evidence.rates_part import counts_section, trend_section
from lastgood.evidence.rates_quality_part import (
    ImportedFile,
    imported_files,
    quality_gaps,
    quality_section,
)
from lastgood.evidence.rates_records import FleetRecords, RatesQuestion, fleet_records
from lastgood.evidence.rates_study import FleetStudies, study_fleet
from lastgood.evidence.report import Chart, Section
from lastgood.ledger.table import Coverage

CURVES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPart:
    """The section, and until when the records speak."""

    section: Section
    end_us: int
    studies: FleetStudies


def fleet_part(
    path: Path, question: RatesQuestion | None, mappings: Mapping[str, Path] | None = None
) -> FleetPart | None:
    """The section of the failures that were imported into this ledger; None when none were, or nobody asks.

    Raises:
        BadInput: nothing is observed in the window of the question.
        LedgerError: the ledger cannot be read.
    """
    if question is None:
        return None
    if path.is_dir():
        records = read_records(path, question, mappings)
        files = covered_files(records.coverage, path.name)
    else:
        files = files_of(path)
        if not files:
            return None
        records = read_records(path, question, mappings)
    if not files:
        return None
    studies = study_fleet(records)
    return FleetPart(
        section=fleet_section(studies, files), end_us=studies.records.end_us, studies=studies
    )


def files_of(path: Path) -> list[ImportedFile]:
    """The files that were imported into a ledger; none for one that holds only what it recorded itself."""
    from lastgood.ledger.store import read_store

    with read_store(path) as store:
        return imported_files(store.events(kinds=["annotation"]))


def covered_files(coverage: Sequence[Coverage], name: str) -> list[ImportedFile]:
    """The files that an export speaks about: what they cover is in its table, their names and rows are not."""
    return [
        ImportedFile(
            name=name,
            format=c.format or "not named",
            begin_us=c.begin_us,
            end_us=c.end_us,
            is_declared=c.is_declared,
            quality=None,
        )
        for c in coverage
    ]


def read_records(
    path: Path, question: RatesQuestion, mappings: Mapping[str, Path] | None = None
) -> FleetRecords:
    """The records of a ledger or an export, as the question wants them counted.

    `mappings` (name -> file) reads the codes of the events through other tables than those of their import; nothing is
    written.

    Raises:
        BadInput: the question names devices or nodes that the records contradict.
    """
    from lastgood.ledger.columns import read_events
    from lastgood.ledger.columns_remap import remap_table
    from lastgood.ledger.importers.mapping import load_mapping

    table = read_events(path)
    for name, file in (mappings or {}).items():
        table = remap_table(table, load_mapping(name, file))
    stored = None if path.is_dir() else path
    drilled = drilled_runs(table, stored)
    one = one_exposure(table, drilled=drilled)
    records = fleet_records(one.table, question, drilled=drilled)
    refuse_contradiction(records, one)
    return with_source(records, one)


def fleet_section(studies: FleetStudies, files: Sequence[ImportedFile]) -> Section:
    """The whole section: the answers at the top, the parts that carry them below."""
    counts, trend = counts_section(studies), trend_section(studies)
    keys = tuple(row for row in counts.figures if row.is_key)
    parts = [
        _without_keys(counts),
        _with_charts(trend, _trend_charts(studies)),
        repairs_section(studies),
        nodes_section(studies),
        bursts_section(studies),
        durations_section(studies),
        quality_section(studies, files),
    ]
    return Section(
        name="fleet",
        title="Fleet",
        headline=fleet_headline(studies),
        answers=fleet_answers(studies, quality_gaps=quality_gaps(files)),
        figures=keys,
        parts=tuple(part for part in parts if part is not None),
    )


def _without_keys(section: Section) -> Section:
    """The section with the figures that stand at the top of the page left to the top."""
    import msgspec

    kept = tuple(row for row in section.figures if not row.is_key)
    return msgspec.structs.replace(section, figures=kept)


def _with_charts(section: Section, charts: Sequence[Chart]) -> Section:
    import msgspec

    return msgspec.structs.replace(section, charts=tuple(charts))


def _trend_charts(studies: FleetStudies) -> list[Chart]:
    """Growth, weeks and gaps; a picture without data behind it is left out."""
    import numpy as np

    whole, records = studies.all, studies.records
    if not whole.sample.count:
        return []
    clock = records.clock
    at = np.sort(clock.until(records.hours))
    charts: list[Chart | None] = [cumulative_chart(at, clock.total, unit=clock.unit)]
    charts.append(_curves(studies))
    charts.append(
        weekly_chart(
            whole.changes,
            is_operational=whole.is_operational,
            has_holes=len(records.windows) > 1,
        )
        if whole.changes
        else None
    )
    charts.append(gap_chart(np.diff(np.sort(whole.sample.begin_h)), whole.gaps))
    return [chart for chart in charts if chart is not None]


def _curves(studies: FleetStudies) -> Chart | None:
    """Incidents per node of the largest branches; without the number of nodes there is no mean per node."""
    if studies.all.mcf is None:
        return None
    primary = studies.primary
    rows = [row for row in primary.rows if row.group.depth == 0] if primary else []
    curves = [(row.group.name, row.study.mcf) for row in rows if row.study.mcf is not None]
    shown = curves[:CURVES_MAX] or [("all", studies.all.mcf)]
    return mean_cumulative_chart(shown, has_holes=len(studies.records.windows) > 1)
