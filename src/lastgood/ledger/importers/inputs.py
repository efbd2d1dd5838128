"""Which files an import is about, and which format each of them has: decided before the first event is written."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lastgood.base.errors import BadInput, Problem, Problems
from lastgood.ledger.importers import registry
from lastgood.ledger.importers.importer import Head, Options
from lastgood.ledger.importers.result import FileResult
from lastgood.ledger.importers.source import Source

STDIN = "-"
FOLDER_FILES_MAX = 100_000


def choose_files(
    paths: Sequence[Path | str], format: str | None, options: Options
) -> list[tuple[Source, FileResult]]:
    """Each file with its format; all that is wrong with the files is reported at once.

    `-` is standard input, and a folder stands for the files in it. A folder may hold other things: what no format
    recognises in it is left out and said, unless that is all of it or the import is strict.

    Raises:
        BadInput: A file cannot be read, no format recognises it, or its format needs something that was not given.
    """
    if format is not None:
        registry.importer(format)
    chosen: list[tuple[Source, FileResult]] = []
    problems: list[Problem] = []
    left_out: list[Problem] = []
    files = _expand(paths, format)
    labels = _labels(files)
    for path, is_of_folder in files:
        source = _source(path, labels.get(path))
        try:
            found = _recognise(source, format, options)
            _ask(source, found, options)
            chosen.append((source, found))
        except BadInput as error:
            parts = {
                name: getattr(error, name) for name in ("what", "where", "found", "needs", "next")
            }
            (left_out if is_of_folder else problems).append(Problem(**parts))
            if is_of_folder:
                found = FileResult(source.label, None, is_detected=True)
                found.left_out = error.what
                found.quality.note(f"{source.label} is left out: {error.what}")
                chosen.append((source, found))
        finally:
            if not source.is_pipe:
                source.close()
    if left_out and (options.is_strict or len(left_out) == len(chosen)):
        problems += left_out
    if problems:
        for source, _ in chosen:
            source.close()
        raise Problems(problems)
    # Files are opened again when it is their turn; what can be read only once stays open with its head.
    return [
        (source if source.is_pipe else _source(source.path, source.label), found)
        for source, found in chosen
    ]


def _source(path: Path | None, label: str | None = None) -> Source:
    if path is None or str(path) == STDIN:
        return Source(STDIN, stream=sys.stdin.buffer)
    return Source(path.name, path=path, label=label)


def _labels(files: Sequence[_Named]) -> dict[Path, str]:
    """What files are called that have the name of another one: `gpu-0007/kern.log`."""
    counts = Counter(file.path.name for file in files)
    return {
        file.path: f"{file.path.absolute().parent.name}/{file.path.name}"
        for file in files
        if counts[file.path.name] > 1 and str(file.path) != STDIN
    }


def _recognise(source: Source, format: str | None, options: Options) -> FileResult:
    data = source.head
    if format is not None:
        return FileResult(source.label, format, is_detected=False)
    if not data:
        found = FileResult(source.label, None, is_detected=True)
        found.quality.note(f"{source.label} is empty")
        return found
    matches = registry.detect(Head(data, data.decode(errors="replace"), source.name))
    if matches and matches[0].score >= registry.SCORE_MIN:
        return FileResult(source.label, matches[0].name, is_detected=True, score=matches[0].score)
    if options.column_map is not None:  # whoever gives a map of columns means a table
        return FileResult(source.label, "table", is_detected=True)
    raise BadInput(
        "no format recognises this file",
        where=str(source.path or source.name),
        found=repr(data[:40].decode(errors="replace")),
        needs=" | ".join(registry.FORMATS),
        next="name the format: lastgood import FORMAT PATH",
    )


def _ask(source: Source, found: FileResult, options: Options) -> None:
    """Lets the format ask for what it cannot do without (`ask(source, options)`), before anything is written."""
    importer = None if found.format is None else registry.importer(found.format)
    ask = getattr(importer, "ask", None)
    if ask is not None:
        ask(source, options)


class _Named(NamedTuple):
    """A file, and whether a person named it or only its folder."""

    path: Path
    is_of_folder: bool


def _expand(paths: Sequence[Path | str], format: str | None) -> list[_Named]:
    found: list[_Named] = []
    # A format whose files lie in folders of their own (one a host) says itself which they are.
    inside_of = getattr(registry.importer(format), "files_in", _inside) if format else _inside
    for path in map(Path, paths):
        # Unlike Path.is_dir it does not raise for a name that is too long.
        if str(path) != STDIN and os.path.isdir(path):
            inside = inside_of(path)
            if not inside:
                raise BadInput(
                    "a folder without files",
                    where=str(path),
                    needs="files, or a folder that holds them",
                )
            found += [_Named(file, is_of_folder=True) for file in inside[:FOLDER_FILES_MAX]]
        else:
            found.append(_Named(path, is_of_folder=False))
    if not found:
        raise BadInput("nothing to import", needs="at least one file, or - for standard input")
    return found


def _inside(folder: Path) -> list[Path]:
    try:
        return [p for p in sorted(folder.iterdir()) if p.is_file() and not p.name.startswith(".")]
    except OSError as error:
        raise BadInput(
            "the folder cannot be read",
            where=str(folder),
            found=error.strerror,
            needs="a folder that this user may list",
        ) from error
