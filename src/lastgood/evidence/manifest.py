"""What a bundle says about itself: every file with its hash, and the question that its report answers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from lastgood.base.canonical import canonical_bytes
from lastgood.base.errors import BadInput
from lastgood.evidence.archive import COPY_BYTES, MANIFEST, NAMES
from lastgood.evidence.assemble import Question
from lastgood.evidence.rates_records import RatesQuestion

SCHEMA = "lastgood.bundle/1"


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the bundle."""

    sha256: str
    bytes: int


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """The tree head of the ledger that a shared one was made from: stated by whoever shared it, not proved."""

    origin: str
    size: int
    root: str


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a ledger before it was shared. It holds no name, only how many there were."""

    note: str
    original: Original
    replaced: dict[str, int]
    """Kind of name -> how many places got a pseudonym."""
    distinct: dict[str, int]
    """Kind of name -> how many different ones there are."""
    removed: dict[str, int]
    """What was left out -> how many times."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole manifest. Everything that the report depends on is here or in a file that is listed here."""

    schema: str
    version: str
    """Of lastgood, as it wrote the bundle."""
    command: str
    run: str | None
    as_of_us: int
    ledger: str
    contract_is_declared: bool
    """False when nobody passed a contract and the file holds the defaults."""
    files: dict[str, FileEntry]
    rates: RatesQuestion | None = None
    """How the statistics of imported failures were made; None for a ledger without any."""
    share: Share | None = None
    """What was pseudonymised; None for a bundle that holds the ledger as it is."""

    @property
    def question(self) -> Question:
        """The question that the bundled report answers."""
        return Question(
            run=self.run,
            as_of_us=self.as_of_us,
            ledger=self.ledger,
            command=self.command,
            version=self.version,
            rates=self.rates,
        )


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the bundle states and that does not hold."""

    where: str
    stored: str
    recomputed: str


def describe_files(folder: Path) -> dict[str, FileEntry]:
    """Hash and size of every file of the bundle except the manifest itself."""
    return {name: _describe(folder / name) for name in sorted(NAMES) if name != MANIFEST}


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest in canonical form, with a newline at its end."""
    plain = msgspec.to_builtins(manifest)
    if manifest.share is None:
        del plain["share"]  # bundles of a ledger as it is keep their form
    (folder / MANIFEST).write_bytes(canonical_bytes(plain) + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an unpacked bundle.

    Raises:
        BadInput: not JSON, not of this form, or of a newer one.
    """
    where = MANIFEST
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("the manifest cannot be read", where=where, found=str(error)) from error
    if manifest.schema != SCHEMA:
        raise BadInput(
            "a bundle of another form",
            where=where,
            found=repr(manifest.schema),
            needs=SCHEMA,
            next="recompute it with the lastgood that wrote it",
        )
    return manifest


def first_wrong_file(manifest: Manifest, folder: Path) -> Mismatch | None:
    """The first file whose bytes are not those that the manifest lists; None when all hold."""
    for name in (name for name in NAMES if name != MANIFEST):
        entry = manifest.files.get(name)
        found = _describe(folder / name)
        if entry is None or entry != found:
            stored = (
                "not listed"
                if entry is None
                else f"sha256 {entry.sha256[:16]}..., {entry.bytes:,} bytes"
            )
            return Mismatch(
                where=name,
                stored=stored,
                recomputed=f"sha256 {found.sha256[:16]}..., {found.bytes:,} bytes",
            )
    extra = sorted(manifest.files.keys() - set(NAMES))
    if extra:
        return Mismatch(where=extra[0], stored="listed", recomputed="not in the bundle")
    return None


def _describe(path: Path) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as read:
        while piece := read.read(COPY_BYTES):
            digest.update(piece)
            size += len(piece)
    return FileEntry(sha256=digest.hexdigest(), bytes=size)
