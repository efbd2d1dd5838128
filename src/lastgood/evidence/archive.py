"""A bundle on disk: a folder or one tar file with six named files, written at once and read with distrust.

Writing is atomic (a temporary neighbour, then one rename) and gives the same bytes for the same content:
fixed order, time 0, no owner. Reading believes nothing: only the known names, only plain files, nothing
outside the folder, nothing larger than stated, and no compression that could unpack to more than is there.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO, Final

from lastgood.base.errors import BadInput, LastgoodError
from lastgood.evidence.folder_words import what_folder

MANIFEST, LEDGER, CONTRACT, HEAD, FIGURES, PAGE = (
    "manifest.json", "ledger.db", "contract.yaml", "tree-head.txt", "figures.json", "report.html",
)  # fmt: skip
NAMES: Final = (MANIFEST, CONTRACT, HEAD, FIGURES, PAGE, LEDGER)
"""Every file of a bundle, in the order in which they lie in the tar: the small ones first."""
BYTES_MAX: Final = {
    MANIFEST: 1 << 20,
    CONTRACT: 4 << 20,
    HEAD: 1 << 16,
    FIGURES: 256 << 20,
    PAGE: 256 << 20,
}
"""Bounds of the files that are read into memory; the ledger is bounded only by the bundle's own size."""
COPY_BYTES: Final = 1 << 20


def write_folder(source: Path, target: Path) -> None:
    """Put the six files of `source` at `target` as a folder, all or nothing."""
    part = _neighbour(target)
    try:
        part.mkdir(mode=0o700)
        for name in NAMES:
            with (source / name).open("rb") as read, (part / name).open("xb") as write:
                shutil.copyfileobj(read, write, COPY_BYTES)
                _settle(write)
        _refuse_existing(target)
        part.rename(target)
        _settle_folder(target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_tar(source: Path, target: Path) -> None:
    """Put the six files of `source` into one uncompressed tar at `target`, all or nothing."""
    part = _neighbour(target)
    try:
        with part.open("xb") as write:
            with tarfile.open(fileobj=write, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                for name in NAMES:
                    _add(archive, source / name)
            _settle(write)
        _refuse_existing(target)
        part.rename(target)
        _settle_folder(target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        part.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, path: Path) -> None:
    entry = tarfile.TarInfo(path.name)
    entry.size = path.stat().st_size
    entry.mode, entry.mtime = 0o600, 0
    with path.open("rb") as read:
        archive.addfile(entry, read)


def unpack(bundle: Path, into: Path) -> None:
    """Copy the six files of a bundle into an empty folder of our own.

    Raises:
        BadInput: not a bundle, a file missing, a name or a kind of entry that has no place in one, cut short.
    """
    if bundle.is_dir():
        _unpack_folder(bundle, into)
    elif bundle.is_file():
        _unpack_tar(bundle, into)
    else:
        raise BadInput(
            "no such bundle", where=str(bundle), next="write one with: lastgood bundle -o PATH"
        )
    missing = [name for name in NAMES if not (into / name).exists()]
    if missing:
        raise BadInput(
            "a file of the bundle is missing", where=str(bundle), found=f"no {', '.join(missing)}"
        )


def _unpack_folder(bundle: Path, into: Path) -> None:
    try:
        paths = sorted(bundle.iterdir())
        if bundle / MANIFEST not in paths:
            raise _no_bundle(bundle)
        for path in paths:
            status = path.lstat()
            _check_entry(
                bundle, path.name, is_plain=stat.S_ISREG(status.st_mode), size_bytes=status.st_size
            )
            with path.open("rb") as read:
                _copy(read, into / path.name)
    except OSError as error:
        raise BadInput("the bundle cannot be read", where=str(bundle), found=str(error)) from error


def _no_bundle(folder: Path) -> BadInput:
    found, following = what_folder(folder)
    return BadInput(
        "not a bundle",
        where=str(folder),
        found=found,
        needs="what lastgood bundle wrote",
        next=following,
    )


def _unpack_tar(bundle: Path, into: Path) -> None:
    size_bytes_max = bundle.stat().st_size
    try:
        with tarfile.open(bundle, mode="r:") as archive:
            for entry in archive:
                is_plain = entry.isreg() and not entry.issparse()
                _check_entry(bundle, entry.name, is_plain=is_plain, size_bytes=entry.size)
                if entry.size > size_bytes_max:
                    raise BadInput(
                        "the bundle is cut short",
                        where=f"{bundle}: {entry.name}",
                        found=f"{size_bytes_max:,} bytes in all",
                        needs=f"{entry.size:,} bytes",
                    )
                if (into / entry.name).exists():
                    raise BadInput(
                        "the bundle holds a file twice", where=str(bundle), found=entry.name
                    )
                # tarfile itself raises when fewer bytes follow than the header promises.
                _copy(archive.extractfile(entry) or io.BytesIO(), into / entry.name)
    except tarfile.ReadError as error:
        raise BadInput(
            "the bundle cannot be read as a tar file",
            where=str(bundle),
            found=str(error),
            needs="a folder or an uncompressed tar that lastgood has written, whole",
        ) from error
    except (
        tarfile.TarError,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise BadInput(
            "the bundle cannot be read", where=str(bundle), found=f"{type(error).__name__}: {error}"
        ) from error


def _check_entry(bundle: Path, name: str, *, is_plain: bool, size_bytes: int) -> None:
    """Refuse whatever a bundle of ours cannot hold; the name is compared, never followed."""
    if name not in NAMES:
        raise BadInput(
            "the bundle holds a file that has no place in it",
            where=str(bundle),
            found=repr(name),
            needs=f"only {', '.join(NAMES)}",
        )
    if not is_plain:
        raise BadInput(
            "an entry of the bundle is not a plain file", where=str(bundle), found=repr(name)
        )
    bound = BYTES_MAX.get(name)
    if bound is not None and size_bytes > bound:
        raise BadInput(
            "a file of the bundle is too large",
            where=f"{bundle}: {name}",
            found=f"{size_bytes:,} bytes",
            needs=f"at most {bound:,}",
        )


def _copy(read: IO[bytes], target: Path) -> None:
    with target.open("xb") as write:
        shutil.copyfileobj(read, write, COPY_BYTES)


def check_target(target: Path) -> None:
    """Refuse early what could not be written anyway: an existing path, a folder that is not there.

    Raises:
        BadInput: with the command that helps.
    """
    _refuse_existing(target)
    if not target.parent.is_dir():
        raise BadInput(
            "no such folder", where=str(target.parent), next=f"run: mkdir -p {target.parent}"
        )


def _neighbour(target: Path) -> Path:
    check_target(target)
    return target.parent / f".{target.name}.{os.getpid()}.part"


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise BadInput(
            "the bundle is already there",
            where=str(target),
            needs="a path that does not exist yet",
            next="name another path; evidence is never overwritten",
        )


def _settle(write: IO[bytes]) -> None:
    write.flush()
    os.fsync(write.fileno())


def _settle_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(target: Path, error: OSError) -> LastgoodError:
    return BadInput(
        "the bundle cannot be written",
        where=str(target),
        found=error.strerror or str(error),
        next="name a path on a disk with room that you may write to",
    )
