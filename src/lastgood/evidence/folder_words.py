"""A folder where a file was meant: what it is, and what to type instead. Nothing heavy is loaded for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lastgood.base.errors import BadInput

NAMED_MAX = 3
MANIFEST_BYTES_MAX = 1 << 26
TAR_MARK_AT = 257
TAR_MARK = b"ustar"


def is_export(path: Path) -> bool:
    """True for a folder that an export wrote: Parquet files under a manifest."""
    return os.path.isfile(path / "manifest.json") and any(path.glob("**/*.parquet"))


def refuse_folder(path: Path) -> None:
    """Refuse a folder with what it is: an export, a bundle, or one with ledgers in it; and a bundle in one file.

    Any other file passes, and so does nothing.

    Raises:
        BadInput: it is a folder, or a bundle.
    """
    if os.path.isdir(path):
        found, following = what_folder(path)
    elif is_bundle_file(path):
        found, following = "a bundle", f"lastgood recompute {path}"
    else:
        return
    raise BadInput(
        "not a ledger", where=str(path), found=found, needs="a ledger file", next=following
    )


def what_folder(path: Path) -> tuple[str, str]:
    """What a folder is, and what to type instead."""
    if is_export(path):
        read = f"lastgood rates --ledger {path} (an export is checked whenever it is read)"
        return (
            "a folder that lastgood export wrote",
            f"{read}; to check the ledger that it came from: lastgood verify LEDGER",
        )
    if is_bundle(path):
        return "a bundle", f"lastgood recompute {path}"
    ledgers = sorted(path.glob("*.db"))[:NAMED_MAX]
    if ledgers:
        named = ", ".join(file.name for file in ledgers)
        return f"a folder with {named}", f"name the file: {ledgers[0]}"
    return (
        "a folder without a ledger (*.db)",
        "name the file, or make one with: lastgood import PATH... --ledger LEDGER",
    )


def is_bundle(path: Path) -> bool:
    """True for a folder with a manifest of a bundle; a broken one is none here, and recompute says why."""
    try:
        with open(path / "manifest.json", "rb") as file:
            told = json.loads(file.read(MANIFEST_BYTES_MAX))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and "bundle" in str(told.get("schema", ""))


def is_bundle_file(path: Path) -> bool:
    """True for a tar whose first file is the manifest: a bundle begins so."""
    try:
        with open(path, "rb") as file:
            head = file.read(TAR_MARK_AT + len(TAR_MARK))
    except OSError:
        return False
    return head[TAR_MARK_AT:] == TAR_MARK and head.startswith(b"manifest.json\0")
