"""One file through one format: the events, and what was said about the rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import Event
from lastgood.ledger.importers.driver import FileResult, import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import open_store

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "import"
NOW_US = 1_795_000_000_000_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import into a ledger of its own gave."""

    file: FileResult
    ledger: Path
    events: list[Event]
    """Without the coverage of the file."""

    @property
    def quality(self) -> Quality:
        return self.file.quality

    @property
    def incidents(self) -> list[Incident]:
        return fold_incidents(self.events)

    @property
    def bodies(self) -> list[dict]:
        return [event.body for event in self.events]


def import_text(
    folder: Path, text: str | bytes, *, name: str = "file.txt", format: str | None = None, **options
) -> Imported:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return import_one(folder, path, format=format, **options)


def import_one(
    folder: Path, path: Path, *, format: str | None = None, ledger: str = "ledger", **options
) -> Imported:
    where = folder / f"{ledger}.db"
    result = import_files(
        [path], ledger=where, format=format, options=Options(**options), clock=ManualClock(NOW_US)
    )
    with open_store(where, create=False) as store:
        events = [event for event in store.events() if "coverage" not in event.body]
    return Imported(result.files[0], where, events)
