"""Where a command may write a file: a new place, or lastgood's own earlier file of that kind, and nothing else.

A slip of a shell variable or of tab completion names a ledger or a script where a page was meant. Evidence and the work
of a person are never the price of it, so every output option of the command line goes through here.
"""

from __future__ import annotations

import enum
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from lastgood.base.errors import BadInput

HEAD_BYTES = 8_192
"""So much of a file says what it is."""


class Output(enum.StrEnum):
    """A kind of file that a command writes, as a person calls it."""

    PAGE = "page"
    TREE_HEAD = "tree head"
    SVG = "SVG chart"
    PDF = "PDF chart"
    CONTRACT = "contract"


_EXAMPLE = {
    Output.PAGE: "report.html",
    Output.TREE_HEAD: "head.txt",
    Output.SVG: "chart.svg",
    Output.PDF: "chart.pdf",
    Output.CONTRACT: "contract.yaml",
}


def check_output(path: Path, kind: Output, *, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a place that must not or cannot be written, before anything is computed for it.

    Raises:
        BadInput: it is a folder or in none, an input of the same command, or holds something else.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _require_folder(path, kind)
        return
    except (OSError, ValueError) as error:
        raise _cannot_write(path, kind, error) from error
    if stat.S_ISDIR(mode):
        raise BadInput(
            f"the {kind} cannot be written",
            where=str(path),
            found=os.strerror(errno.EISDIR),
            needs="a file",
            next=f"name a file in it, such as {path / _EXAMPLE[kind]}",
        )
    if not stat.S_ISREG(mode):
        return  # a terminal or a pipe keeps nothing that could be lost
    if any(given is not None and _is_same(given, path) for given in inputs):
        raise _not_over(path, kind, "what this command reads")
    if not _is_ours(path, kind):
        raise _not_over(path, kind, f"a file that is no {kind} of lastgood")


def write_output(path: Path, content: bytes, kind: Output) -> None:
    """Write the file beside its place first, so that nobody ever reads half of it.

    Raises:
        BadInput: the place holds something else, or cannot be written.
    """
    check_output(path, kind)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        part = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, kind, error) from error


def _require_folder(path: Path, kind: Output) -> None:
    if not path.parent.is_dir():
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        raise _cannot_write(path, kind, missing) from missing


def _is_same(given: Path, path: Path) -> bool:
    try:
        return os.path.samefile(given, path)
    except (OSError, ValueError):
        return False


def _is_ours(path: Path, kind: Output) -> bool:
    """True for an empty file, and for one that lastgood wrote as this kind."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise _cannot_write(path, kind, error) from error
    if not head:  # a new ledger may still stand in the log beside its file
        return not path.with_name(path.name + "-wal").exists()
    match kind:
        case Output.PAGE:
            return b'<meta name="generator" content="lastgood ' in head
        case Output.TREE_HEAD:
            return _is_tree_head(head)
        case Output.SVG:
            return head.lstrip().startswith(b"<svg")
        case Output.PDF:
            return head.startswith(b"%PDF")
        case Output.CONTRACT:
            # Only --force comes here with a file that is there, and a half-written contract is one too.
            return b"\0" not in head and path.suffix in {".yaml", ".yml"}


def _is_tree_head(head: bytes) -> bool:
    from lastgood.ledger.tree_head import parse_note

    try:
        parse_note(head.decode())
    except (BadInput, UnicodeDecodeError):
        return False
    return True


def _not_over(path: Path, kind: Output, found: str) -> BadInput:
    return BadInput(
        f"the {kind} is not written over another file",
        where=str(path),
        found=found,
        needs=f"a new file, or a {kind} that lastgood wrote before",
        next=f"name another file, such as {path.with_name(_free_name(path, kind))}",
    )


def _free_name(path: Path, kind: Output) -> str:
    """A name of this kind that nothing has yet; the one it would get when all of a few are taken."""
    first = _EXAMPLE[kind]
    stem, dot, suffix = first.partition(".")
    names = [first, *(f"{stem}-{number}{dot}{suffix}" for number in range(2, 10))]
    return next((name for name in names if not path.with_name(name).exists()), first)


def _cannot_write(path: Path, kind: Output, error: OSError | ValueError) -> BadInput:
    found = getattr(error, "strerror", None) or str(error)
    if isinstance(error, OSError):
        # The hint is about the place that was named, not about a part beside it.
        error.filename = str(path)
    return BadInput(f"the {kind} cannot be written", where=str(path), found=found)
