"""A bundle: all that a stranger needs to see what happened and to compute every number again.

The ledger goes in as a consistent copy, and the report is computed from that copy, never from the live
file, so that what is in the bundle agrees with itself however fast the run goes on writing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lastgood.base.canonical import canonical_bytes
from lastgood.base.errors import BadInput
from lastgood.base.utf8_text import utf8_text
from lastgood.contract.load import default_contract, parse_contract
from lastgood.contract.model import FailureContract, contract_text
from lastgood.evidence import archive
from lastgood.evidence.assemble import (
    Builders,
    Question,
    recorded_contract,
    reported_run,
    run_names,
)
from lastgood.evidence.computed import compute_report
from lastgood.evidence.html import render_html
from lastgood.evidence.manifest import SCHEMA, Manifest, Share, describe_files, write_manifest
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.report import Report, canonical_plain, figures_in
from lastgood.evidence.share_folder import SHARED_NAME, share_folder
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What was written and where."""

    path: Path
    report: Report
    head: TreeHead
    figure_count: int
    run_count: int
    """Runs in the ledger that was packed; the report is about one of them."""
    share: Share | None = None
    """What was pseudonymised; None when the ledger went in as it is."""


def write_bundle(
    ledger: Path,
    target: Path,
    *,
    contract: Path | None,
    run: str | None,
    now_us: int,
    version: str,
    builders: Builders,
    rates: RatesQuestion | None = None,
    share_key: bytes | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Write a bundle of one run at `target`: a tar when the name ends in `.tar`, else a folder.

    With a `share_key`, a secret that is used for nothing else, names become pseudonyms under it and the ledger in the
    bundle is one of its own, with another root.

    Unless shared, the contract goes in as it was written, byte for byte, because which of its values are assumed is part of the
    report; without one the defaults go in, marked as assumed.

    Raises:
        BadInput: the target exists or cannot be written, or the ledger has no such run.
        LedgerError: the ledger cannot be opened or copied.
    """
    archive.check_target(target)
    with tempfile.TemporaryDirectory(prefix="lastgood-bundle-") as name:
        folder = Path(name)
        _write_contract(contract, folder / archive.CONTRACT, recorded=_recorded(ledger, run))
        source = str(contract or archive.CONTRACT)
        declared = read_contract(folder / archive.CONTRACT, source=source)
        on_stage("copying the ledger")
        with read_store(ledger) as store:
            store.copy_to(folder / archive.LEDGER)
        share = None
        if share_key is not None:
            share, run = share_folder(folder, key=share_key, run=run, source=source)
            declared = read_contract(folder / archive.CONTRACT, source=source)
        on_stage("computing the report")
        question = _question(
            target, run=run, now_us=now_us, version=version, rates=rates, share=share
        )
        copy = folder / archive.LEDGER
        report, head, question = compute_report(copy, declared, question, builders)
        on_stage("drawing the page")
        _write_report(report, head, folder)
        write_manifest(_manifest(question, declared, folder, share), folder)
        on_stage("writing the bundle")
        write = archive.write_tar if target.suffix == ".tar" else archive.write_folder
        run_count = _run_count(copy)
        write(folder, target)
    return Bundle(
        path=target,
        report=report,
        head=head,
        figure_count=len(figures_in(report)),
        run_count=run_count,
        share=share,
    )


def _write_report(report: Report, head: TreeHead, folder: Path) -> None:
    (folder / archive.HEAD).write_text(head.to_note(), encoding="utf-8")
    (folder / archive.FIGURES).write_bytes(canonical_bytes(canonical_plain(report)) + b"\n")
    (folder / archive.PAGE).write_text(render_html(report), encoding="utf-8")


def _run_count(ledger: Path) -> int:
    with read_store(ledger) as store:
        return len(run_names(store))


def _question(
    target: Path,
    *,
    run: str | None,
    now_us: int,
    version: str,
    rates: RatesQuestion | None,
    share: Share | None,
) -> Question:
    """What the report is asked. A shared one does not say what the file is called here."""
    return Question(
        run=run,
        as_of_us=now_us,
        ledger=archive.LEDGER if share is None else SHARED_NAME,
        version=version,
        command=f"lastgood recompute {utf8_text(target.name) if share is None else 'BUNDLE'}",
        rates=rates or RatesQuestion(),
    )


def read_contract(path: Path, *, source: str) -> FailureContract:
    """The contract of a bundle. Both sides read it from the same bytes.

    Raises:
        Problems: what is wrong with it, with lines.
    """
    return parse_contract(path.read_bytes(), source=source)


def _recorded(ledger: Path, run: str | None) -> str | None:
    with read_store(ledger) as store:
        return recorded_contract(store.events(run=reported_run(store, run), kinds=["run.start"]))


def _write_contract(contract: Path | None, target: Path, *, recorded: str | None) -> None:
    try:
        raw = (
            contract.read_bytes()
            if contract is not None
            else (recorded or contract_text(default_contract())).encode()
        )
    except OSError as error:
        raise BadInput(
            "the contract cannot be read", where=str(contract), found=error.strerror or str(error)
        ) from error
    target.write_bytes(raw)


def _manifest(
    question: Question, contract: FailureContract, folder: Path, share: Share | None
) -> Manifest:
    return Manifest(
        schema=SCHEMA,
        version=question.version,
        command=question.command,
        run=question.run,
        as_of_us=question.as_of_us,
        ledger=question.ledger,
        contract_is_declared=not contract.is_assumed,
        files=describe_files(folder),
        rates=question.rates,
        share=share,
    )
