"""A bundle that was unpacked and held against its own manifest and tree head, before anybody reads from it."""

from __future__ import annotations

from pathlib import Path

from lastgood.base.errors import BadInput, LastgoodError, LedgerCorrupt
from lastgood.contract.load import contract_digest, parse_contract
from lastgood.evidence import archive
from lastgood.evidence.assemble import recorded_contract
from lastgood.evidence.manifest import Manifest, Mismatch, first_wrong_file, read_manifest
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead, parse_note
from lastgood.ledger.verify import OTHER_LEDGER, OnProgress, verify_ledger


def unpack_checked(
    bundle: Path, folder: Path, *, on_progress: OnProgress | None = None
) -> Manifest:
    """Unpacks the bundle into the folder; its files are those that were written, and its ledger verifies.

    Raises:
        LedgerCorrupt: something in it was changed; the message says what, and the first bad row of a ledger.
        BadInput: it is no bundle.
    """
    archive.unpack(bundle, folder)
    manifest = read_manifest(folder)
    wrong = first_wrong_file(manifest, folder) or ledger_mismatch(
        folder, read_head(folder), on_progress=on_progress
    )
    if wrong is not None:
        raise LedgerCorrupt(
            "the bundle was changed after it was written",
            where=f"{bundle}: {wrong.where}",
            found=wrong.recomputed,
            needs=wrong.stored,
            next=f"run: lastgood recompute {bundle}",
        )
    return manifest


def read_head(folder: Path) -> TreeHead:
    """The tree head that stands in the bundle."""
    try:
        return parse_note((folder / archive.HEAD).read_text(encoding="utf-8"), where=archive.HEAD)
    except UnicodeDecodeError as error:
        raise BadInput(
            "the tree head cannot be read", where=archive.HEAD, found=str(error)
        ) from error


def ledger_mismatch(
    folder: Path, head: TreeHead, *, on_progress: OnProgress | None = None
) -> Mismatch | None:
    """What is wrong with the bundled ledger; it must end exactly at the bundled head."""
    try:
        result = verify_ledger(folder / archive.LEDGER, head=head, on_progress=on_progress)
    except BadInput as error:
        if error.code != OTHER_LEDGER:
            raise
        return Mismatch(
            where=archive.LEDGER,
            stored=f"tree head of the ledger {head.origin}",
            recomputed=f"another ledger, {error.needs}",
        )
    if not result.ok:
        row = "" if result.first_bad_seq is None else f", first bad row {result.first_bad_seq}"
        return Mismatch(
            where=f"{archive.LEDGER}{row}",
            stored=f"tree head of {head.size} events, root {head.root_hex[:16]}...",
            recomputed=result.reason.replace(f"{folder}/", ""),
        )
    if result.size != head.size:
        return Mismatch(
            where=archive.LEDGER,
            stored=f"tree head of {head.size} events",
            recomputed=f"{result.size} events",
        )
    return None


def contract_note(folder: Path, run: str | None) -> str | None:
    """How the bundled contract stands to the one in the run's start, which the ledger's root covers; None without one.

    The figures follow from what a contract says. Its comments are for people, and no figure would show an edit of them.
    """
    with read_store(folder / archive.LEDGER) as store:
        recorded = recorded_contract(store.events(run=run, kinds=["run.start"])) if run else None
    if recorded is None:
        return None
    bundled = (folder / archive.CONTRACT).read_bytes()
    if bundled == recorded.encode():
        return "the contract is, byte for byte, the one that the run's start has in the ledger"
    try:
        is_same = contract_digest(parse_contract(bundled)) == contract_digest(
            parse_contract(recorded.encode())
        )
    except LastgoodError:
        is_same = False
    if is_same:
        return (
            "the contract says what the one in the run's start says, in other words: comments or layout differ, "
            "and nothing proves those of the bundle"
        )
    return (
        "the contract is another than the one in the run's start: somebody named it for this report"
    )
