"""What every command does with a ledger before it computes anything from it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lastgood.evidence.folder_words import is_export, refuse_folder


def check_ledgers(paths: Iterable[Path]) -> None:
    """Refuse a ledger that does not verify, each file once; a folder is an export, which is checked as it is read.

    Raises:
        LedgerCorrupt: it does not hold.
        BadInput: it is no ledger.
    """
    from lastgood.cli.event_bar import event_bar
    from lastgood.ledger.verified import require_verified

    for path in dict.fromkeys(paths):
        if not is_export(path):
            refuse_folder(path)
        if path.is_dir():
            continue
        with event_bar(f"verifying {path.name}") as on_progress:
            require_verified(path, on_progress=on_progress)
