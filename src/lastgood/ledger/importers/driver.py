"""Files in, events in a ledger out, with the time that each file covers and the table of what became of its rows.

Rows stream from the source through the format into batches, and each batch is durable before the next one is read: an
import that is interrupted leaves whole batches, and running it again adds what is missing. Every file leaves one
annotation that says which time its log covers, because a quiet month in a log is a fact and a missing log is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lastgood.base.clock import Clock, SystemClock
from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.event import Event
from lastgood.ledger.importers import registry
from lastgood.ledger.importers.batches import BatchWriter
from lastgood.ledger.importers.clean import Cleaner
from lastgood.ledger.importers.failures import FailureCount
from lastgood.ledger.importers.importer import (
    Context,
    Importer,
    Options,
    RowProblem,
    StrictStop,
    not_understood,
)
from lastgood.ledger.importers.inputs import choose_files
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.importers.result import FileResult, ImportResult, Progress
from lastgood.ledger.importers.source import Item, Source
from lastgood.ledger.masking import load_masker
from lastgood.ledger.raw_store import open_raw_store
from lastgood.ledger.store import open_store

__all__ = ["FileResult", "ImportResult", "Progress", "import_files", "read_events"]


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
    chosen = choose_files(paths, format, options)
    result = ImportResult(ledger)
    try:
        with open_store(ledger, clock=clock or SystemClock()) as store:
            cleaner = Cleaner(load_masker(ledger))
            with closing(open_raw_store(ledger, is_kept=options.keep_raw)) as raw_store:
                writer = BatchWriter(store, raw_store)
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


def _import_one(
    source: Source,
    found: FileResult,
    writer: BatchWriter,
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
                    source.label,
                    source.position,
                    source.size,
                    writer.new_count,
                    writer.merged_count,
                )
            )

        source.on_block = writer.on_flush = tell
    try:
        failures = FailureCount(quality)
        for event in read_events(importer, source, context):
            failures.add(event)
            writer.add(event, quality)
    except StrictStop as stop:
        writer.flush(quality)
        raise _strict_error(stop, writer) from stop
    _add_source_counts(source, quality)
    writer.flush(quality)  # only now it is known what the ledger held already
    if quality.moved_rows:
        quality.note(_moved_note(found))
    covered = _coverage_event(found, importer, context)
    if covered is not None and not quality.has_other_times:
        writer.add(covered, quality)
        writer.flush(quality)
    if options.is_strict and quality.file_problems:
        problem = RowProblem(source.problems[0])
        raise _strict_error(StrictStop(source.label, problem), writer)


def _finish(
    chosen: Sequence[tuple[Source, FileResult]],
    writer: BatchWriter,
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
        failures = FailureCount(found.quality)
        try:
            for event in finish(context):
                failures.add(event)
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
        raise StrictStop(source.label, problem)
    context.quality.read += 1
    context.reject(Item(0, b"", None), problem)


def _strict_error(stop: StrictStop, writer: BatchWriter) -> BadInput:
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
    quality.file_problems += [f"{source.label}: {problem}" for problem in source.problems]
    for sentence in source.notes:
        quality.note(sentence)


def _moved_note(found: FileResult) -> str:
    quality = found.quality
    window = (
        "; the time that the file covers was not written again" if quality.has_other_times else ""
    )
    rows = f"{quality.moved_rows:,} row{'' if quality.moved_rows == 1 else 's'}"
    return (
        f"{found.name}: {rows} are known with other times: nothing was changed{window}. Another --zone, --year or --boot "
        "changes nothing in a ledger: to start over, import into a new one. Records of another cluster need --cluster"
    )


def _coverage_event(found: FileResult, importer: Importer, context: Context) -> Event | None:
    """The annotation that says which time this file covers."""
    begin_us, end_us = context.coverage_begin_us, context.coverage_end_us
    # What nothing could be taken from is no quiet time: a window of it would say that no failure happened there.
    if begin_us is None or end_us is None or not found.quality.read or not found.is_taken:
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
