"""Files in, events in a ledger out: detection, batches, the coverage of each file, and the table of what became of it.

Rows stream from the source through the format into batches, and each batch is durable before the next one is read: an
import that is interrupted leaves whole batches, and running it again adds what is missing. Every file leaves one
annotation that says which time its log covers, because a quiet month in a log is a fact and a missing log is none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.base.clock import Clock, SystemClock
from lastgood.base.errors import BadInput, Problem, Problems
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers import registry
from lastgood.ledger.importers.clean import Cleaner
from lastgood.ledger.importers.importer import (
    Context,
    Head,
    Importer,
    Options,
    RowProblem,
    StrictStop,
    not_understood,
)
from lastgood.ledger.importers.quality import Quality, total
from lastgood.ledger.importers.source import Item, Source
from lastgood.ledger.masking import load_masker
from lastgood.ledger.raw_store import RawStore, open_raw_store
from lastgood.ledger.store import Store, open_store

BATCH_EVENTS = 2_000
STDIN = "-"
FOLDER_FILES_MAX = 100_000


class Progress(NamedTuple):
    """How far an import has come."""

    name: str
    position: int
    """Bytes of the file that were read."""
    size: int | None
    events_new: int
    """Over all files so far; they are durable."""
    events_merged: int


@dataclass(slots=True)
class FileResult:
    """What became of one file."""

    name: str
    format: str | None
    """None for an empty file, or one of a folder that no format recognises."""
    is_detected: bool
    """True when nobody named the format."""
    score: int | None = None
    """How sure the format was, 0 to 100."""
    quality: Quality = field(default_factory=Quality)
    coverage_begin_us: int | None = None
    coverage_end_us: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """JSON-like data."""
        return {
            "file": self.name,
            "format": self.format,
            "detected": self.is_detected,
            "score": self.score,
            "coverage_us": [self.coverage_begin_us, self.coverage_end_us],
            "quality": self.quality.to_plain(),
        }


@dataclass(slots=True)
class ImportResult:
    """What an import did."""

    ledger: Path
    files: list[FileResult] = field(default_factory=list)

    @property
    def total(self) -> Quality:
        """All files together."""
        return total(file.quality for file in self.files)

    def to_plain(self) -> dict[str, Any]:
        """JSON-like data."""
        return {
            "ledger": str(self.ledger),
            "files": [file.to_plain() for file in self.files],
            "total": self.total.to_plain(),
        }


def import_files(
    paths: Sequence[Path | str],
    *,
    ledger: Path,
    format: str | None = None,
    options: Options | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    clock: Clock | None = None,
) -> ImportResult:
    """Imports the files (`-` is standard input, a folder stands for the files in it) into the ledger.

    All files are looked at before the first event is written, so a wrong path or an unknown format changes nothing.

    Raises:
        BadInput: A file is not there, no format recognises it, or a strict import met a row that cannot be taken.
    """
    options = options or Options()
    Context.check_options(options)
    chosen = _choose(_expand(paths), format, options)
    result = ImportResult(ledger)
    try:
        with open_store(ledger, clock=clock or SystemClock()) as store:
            cleaner = Cleaner(load_masker(ledger))
            with closing(open_raw_store(ledger, is_kept=options.keep_raw)) as raw_store:
                writer = _Writer(store, raw_store)
                shared: dict[str, Any] = {}
                for source, found in chosen:
                    result.files.append(found)
                    with closing(source):
                        _import_one(
                            source,
                            found,
                            writer,
                            shared,
                            cleaner=cleaner,
                            options=options,
                            on_progress=on_progress,
                        )
                _finish(chosen, writer, shared, cleaner=cleaner, options=options)
    finally:
        for source, _ in chosen:
            source.close()
    return result


# --- which file is what -------------------------------------------------------------------------------


class _Named(NamedTuple):
    """A file, and whether a person named it or only its folder."""

    path: Path
    is_of_folder: bool


def _expand(paths: Sequence[Path | str]) -> list[_Named]:
    found: list[_Named] = []
    for path in map(Path, paths):
        # Unlike Path.is_dir it does not raise for a name that is too long.
        if str(path) != STDIN and os.path.isdir(path):
            inside = [
                p for p in sorted(path.iterdir()) if p.is_file() and not p.name.startswith(".")
            ]
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


def _choose(
    files: Sequence[_Named], format: str | None, options: Options
) -> list[tuple[Source, FileResult]]:
    """Each file with its format; all that is wrong with the files is reported at once.

    A folder may hold other things: what no format recognises in it is left out and said, unless that is all of it.
    """
    if format is not None:
        registry.importer(format)
    chosen: list[tuple[Source, FileResult]] = []
    problems: list[Problem] = []
    left_out: list[Problem] = []
    for path, is_of_folder in files:
        source = _source(path)
        try:
            found = _recognise(source, format)
            _ask(source, found, options)
            chosen.append((source, found))
        except BadInput as error:
            parts = {
                name: getattr(error, name) for name in ("what", "where", "found", "needs", "next")
            }
            (left_out if is_of_folder else problems).append(Problem(**parts))
            if is_of_folder:
                found = FileResult(source.name, None, is_detected=True)
                found.quality.note(f"{source.name} is left out: {error.what}")
                chosen.append((source, found))
        finally:
            if source.path is not None:
                source.close()
    if left_out and len(left_out) == len(chosen):
        problems += left_out
    if problems:
        for source, _ in chosen:
            source.close()
        raise Problems(problems)
    return [
        (source if source.path is None else _source(source.path), found) for source, found in chosen
    ]


def _source(path: Path) -> Source:
    if str(path) == STDIN:
        return Source(STDIN, stream=sys.stdin.buffer)
    return Source(path.name, path=path)


def _recognise(source: Source, format: str | None) -> FileResult:
    data = source.head
    if format is not None:
        return FileResult(source.name, format, is_detected=False)
    if not data:
        found = FileResult(source.name, None, is_detected=True)
        found.quality.note(f"{source.name} is empty")
        return found
    matches = registry.detect(Head(data, data.decode(errors="replace"), source.name))
    if matches and matches[0].score >= registry.SCORE_MIN:
        return FileResult(source.name, matches[0].name, is_detected=True, score=matches[0].score)
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


# --- one file -----------------------------------------------------------------------------------------


class _Writer:
    """Batches of events, durable one after another, and the raw rows beside them."""

    def __init__(self, store: Store, raw_store: RawStore) -> None:
        self._store = store
        self.raw_store = raw_store
        self.on_flush: Callable[[], None] | None = None
        self.batch: list[Event] = []
        self.new_count = 0
        self.merged_count = 0

    def add(self, event: Event, quality: Quality) -> None:
        """Takes an event; a full batch is written."""
        self.batch.append(event)
        if len(self.batch) >= BATCH_EVENTS:
            self.flush(quality)

    def flush(self, quality: Quality) -> None:
        """Makes everything durable that was taken."""
        if not self.batch:
            return
        batch, self.batch = self.batch, []
        self.raw_store.flush()
        done = self._store.import_events(batch)
        self.new_count += done.new
        self.merged_count += done.merged
        quality.events_new += done.new
        quality.events_merged += done.merged
        if self.on_flush is not None:
            self.on_flush()


def _import_one(
    source: Source,
    found: FileResult,
    writer: _Writer,
    shared: dict[str, Any],
    *,
    cleaner: Cleaner,
    options: Options,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    if found.format is None:
        return
    quality = found.quality
    importer = registry.importer(found.format)
    context = Context(
        importer, source, options=options, cleaner=cleaner, quality=quality,
        on_raw=writer.raw_store.add if options.keep_raw else None,
    )  # fmt: skip
    context.shared = shared
    if on_progress is not None:

        def tell() -> None:
            on_progress(
                Progress(
                    source.name,
                    source.position,
                    source.size,
                    writer.new_count,
                    writer.merged_count,
                )
            )

        source.on_block = writer.on_flush = tell
    try:
        for event in read_events(importer, source, context):
            writer.add(event, quality)
    except StrictStop as stop:
        writer.flush(quality)
        raise _strict_error(stop, writer) from stop
    _add_source_counts(source, quality)
    covered = _coverage_event(found, importer, context)
    if covered is not None:
        writer.add(covered, quality)
    writer.flush(quality)
    if options.is_strict and quality.file_problems:
        problem = RowProblem(source.problems[0])
        raise _strict_error(StrictStop(source.name, problem), writer)


def _finish(
    chosen: Sequence[tuple[Source, FileResult]],
    writer: _Writer,
    shared: dict[str, Any],
    *,
    cleaner: Cleaner,
    options: Options,
) -> None:
    """What a format says about all of its files together (`finish`), told with the last one of them."""
    last = {found.format: (source, found) for source, found in chosen if found.format is not None}
    for name, (source, found) in last.items():
        importer = registry.importer(name)
        finish = getattr(importer, "finish", None)
        if finish is None:
            continue
        context = Context(importer, source, options=options, cleaner=cleaner, quality=found.quality)
        context.shared = shared
        try:
            for event in finish(context):
                writer.add(event, found.quality)
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001 - as for a file: a finding, and seen in the table
            context.note(f"the files together: {not_understood(error)}")
        writer.flush(found.quality)


def read_events(importer: Importer, source: Source, context: Context) -> Iterator[Event]:
    """The format's events. What it raises outside of a row ends the file, and is a finding too."""
    try:
        yield from importer.read(source, context)
    except RowProblem as problem:
        _reject_file(source, context, problem)
    except (BadInput, StrictStop):
        raise
    except OSError as error:
        source.problems.append(f"reading failed: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - one hostile file must not cost the others, and is seen in the table
        _reject_file(source, context, not_understood(error))


def _reject_file(source: Source, context: Context, problem: RowProblem) -> None:
    if context.options.is_strict:
        raise StrictStop(source.name, problem)
    context.quality.read += 1
    context.reject(Item(0, b"", None), problem)


def _strict_error(stop: StrictStop, writer: _Writer) -> BadInput:
    count = writer.new_count
    return BadInput(
        f"a row cannot be taken: {stop.problem.reason}",
        where=stop.locator.replace("#", ":"),
        found=stop.problem.detail,
        needs=f"rows that can be read, or an import without --strict; {count:,} event{'' if count == 1 else 's'} "
        "of this import are in the ledger and stay there",
    )


def _add_source_counts(source: Source, quality: Quality) -> None:
    quality.damaged_lines += source.damaged_line_count
    quality.cut_lines += source.cut_line_count
    if source.skipped_line_count:
        quality.read += source.skipped_line_count
        quality.ignore("not about failures", source.skipped_line_count)
    quality.file_problems += [f"{source.name}: {problem}" for problem in source.problems]
    for sentence in source.notes:
        quality.note(sentence)


def _coverage_event(found: FileResult, importer: Importer, context: Context) -> Event | None:
    """The annotation that says which time this file covers."""
    begin_us, end_us = context.coverage_begin_us, context.coverage_end_us
    if begin_us is None or end_us is None:
        return None
    found.coverage_begin_us, found.coverage_end_us = begin_us, end_us
    body = {
        "coverage": {
            "begin_us": begin_us,
            "end_us": end_us,
            "format": importer.name,
            "declared": context.is_window_declared,
        },
        # A report months later still has to say how many rows were rejected.
        "quality": found.quality.to_kept(),
    }
    host = context.file_host
    return context.event(
        EventKind.ANNOTATION,
        row=Item(0, b"", None),
        identity=("coverage", host or "", begin_us, end_us, int(context.is_window_declared)),
        t_us=begin_us,
        observed_us=end_us,
        host=host,
        body=body,
    )
