"""From a ledger file to its report: the one way for bundles, for the Python API, and whoever else has a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from lastgood.base.errors import BadInput
from lastgood.contract.load import default_contract
from lastgood.contract.model import FailureContract
from lastgood.evidence.assemble import (
    Builders,
    Question,
    build_report,
    events_of_run,
    report_instant_us,
    reported_run,
)
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part
from lastgood.evidence.report import Note, Report, Section
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead

QUALITY = "data-quality"
"""Name of the part that says how good the records are."""


class Computed(NamedTuple):
    """A report, the head of the ledger that it was computed from, and the question with everything filled in."""

    report: Report
    head: TreeHead
    question: Question


def compute_report(
    ledger: Path, contract: FailureContract, question: Question, builders: Builders
) -> Computed:
    """The report that answers the question. Its `as_of_us` is now; a run that ended is reported as of its end.

    Raises:
        BadInput: the ledger has no such run.
        LedgerError: it cannot be read.
    """
    with read_store(ledger) as store:
        head = store.head()
        question = replace(question, run=reported_run(store, question.run))
        events = events_of_run(store, question.run)
    fleet = fleet_part(ledger, question.rates)
    # A ledger without imported failures has no such question: its bundles stay as they were.
    question = replace(question, rates=question.rates if fleet else None)
    as_of_us = report_instant_us(
        events,
        question.run,
        now_us=question.as_of_us,
        records_end_us=fleet.end_us if fleet else None,
    )
    question = replace(question, as_of_us=as_of_us)
    report = build_report(
        events,
        contract,
        question=question,
        head=head,
        builders=builders,
        fleet=fleet.section if fleet else None,
    )
    return Computed(report, head, question)


def compute_export(
    folder: Path,
    question: Question,
    rates: RatesQuestion,
    mappings: Mapping[str, Path] | None = None,
) -> Report:
    """The fleet's report from an export, which holds columns of all runs, the contract of none, and no bodies.

    Raises:
        BadInput: nothing was imported into the ledger that it came from.
    """
    from lastgood.ledger.parquet import read_manifest

    fleet = fleet_part(folder, rates, mappings or {})
    if fleet is None:
        raise BadInput(
            "this export holds no imported records",
            where=str(folder),
            needs="an export of a ledger into which logs were imported",
            next="for a run: lastgood report LEDGER",
        )
    told = read_manifest(folder)
    head = TreeHead(origin=told.origin, size=told.size, root=bytes.fromhex(told.root))
    asked = replace(question, run=None, as_of_us=fleet.end_us)
    section = _with_export_note(fleet.section)
    return build_report(
        [], default_contract(), question=asked, head=head, builders={"training": _no_section}, fleet=section
    )  # fmt: skip


def _with_export_note(section: Section) -> Section:
    """The section with what a ledger's has no need to say: its events were hashed before anything was computed."""
    note = Note(
        text="Read from an export: its files hash to its manifest. The events behind them were not verified now; "
        "lastgood verify LEDGER does that."
    )
    parts = tuple(
        msgspec.structs.replace(part, notes=(*part.notes, note)) if part.name == QUALITY else part
        for part in section.parts
    )
    return msgspec.structs.replace(section, parts=parts)


def _no_section(*_: object, **__: object) -> Section:
    raise AssertionError("a fleet has no section of a run")
