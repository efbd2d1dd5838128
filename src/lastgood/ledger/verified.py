"""The gate in front of everything that computes: figures come from a ledger that verifies, or not at all.

The check reads and hashes every event once more, which costs less than making events of them. An export has its own:
the hashes of its files stand in its manifest, and are compared whenever it is read.
"""

from __future__ import annotations

import os
from pathlib import Path

from lastgood.base.errors import LedgerCorrupt, LedgerError
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead
from lastgood.ledger.verify import OnProgress, Verdict, VerifyResult, verify_ledger


def require_verified(
    path: str | os.PathLike[str],
    *,
    head: TreeHead | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyResult:
    """What the check of this ledger found, when it holds.

    Raises:
        LedgerCorrupt: it does not hold; the message names the first bad row.
        LedgerError: that could not be told, such as for a ledger of a newer lastgood.
        BadInput: there is no such ledger.
    """
    result = verify_ledger(path, head=head, on_progress=on_progress)
    if result.ok:
        return result
    if result.verdict is Verdict.FAILED:
        raise LedgerCorrupt(
            "the ledger does not verify, and no figure is made from it",
            where=f"{path}",
            found=result.reason,
            next=f"run: lastgood verify {path}; {result.next}",
        )
    with read_store(Path(path)):  # says itself what is in the way
        pass
    raise LedgerError(
        "whether the ledger holds could not be told",
        where=f"{path}",
        found=result.reason,
        next=f"run: lastgood verify {path}",
    )
