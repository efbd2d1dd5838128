"""Turns the copied ledger and the contract of an unfinished bundle into shared ones, in their place."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lastgood.contract.load import contract_digest, parse_contract
from lastgood.evidence import archive
from lastgood.evidence.manifest import Original, Share
from lastgood.evidence.pseudonyms import Pseudonyms
from lastgood.evidence.share import Sharer
from lastgood.evidence.share_contract import share_contract
from lastgood.ledger.store import read_store

SHARED_NAME = "ledger.db (pseudonymised: its root is not that of the original)"
NOTE = (
    "shared copy: names are pseudonyms under a key that was thrown away, and the ledger was written anew; "
    "its root is its own and not that of the original, which the manifest states and nothing here proves"
)


def share_folder(
    folder: Path, *, key: bytes, run: str | None, source: str
) -> tuple[Share, str | None]:
    """What was replaced, and the pseudonym of the run. `source` names the contract in problems.

    Raises:
        Refused: the contract does not read any more once its names are replaced.
    """
    ledger, contract = folder / archive.LEDGER, folder / archive.CONTRACT
    names = Pseudonyms(key)
    with tempfile.TemporaryDirectory(prefix="lastgood-share-") as name:
        written, compact = Path(name) / archive.LEDGER, Path(name) / "compact.db"
        with read_store(ledger) as store:
            sharer, head = Sharer(store, names), store.head()
            raw = contract.read_bytes()
            shared = share_contract(raw, names, source=source)
            sharer.knows_digest(_digest(raw), _digest(shared))
            sharer.write(written)
        with read_store(written) as store:
            store.copy_to(compact)
        contract.write_bytes(shared)
        ledger.unlink()
        shutil.move(compact, ledger)
    return (
        Share(
            note=NOTE,
            original=Original(origin=head.origin, size=head.size, root=head.root_hex),
            replaced=dict(sorted(names.counts.items())),
            distinct={kind: len(given) for kind, given in sorted(names.names.items())},
            removed=dict(sorted(sharer.removed.items())),
        ),
        None if run is None else sharer.run(run),
    )


def _digest(contract: bytes) -> str:
    return contract_digest(parse_contract(contract))
