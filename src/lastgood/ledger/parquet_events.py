"""The rows of an export as events: everything that the columns hold, which is not everything that the ledger holds.

An export keeps what statistics read. Bodies, attempts, ranks beside the domains and verifications stay in the ledger,
so these events have none; they serve to look at a fleet's records one by one, and not to verify anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastgood.ledger.event import Domain, Event, Links, Source
from lastgood.ledger.parquet import check_export, import_pyarrow
from lastgood.ledger.table import DOMAIN_KINDS, TIME_COLUMNS

_BODY = ("label", "code", "mapping", "outcome")


def export_events(folder: Path) -> list[Event]:
    """The events of an export in the order of time, superseded ones included.

    Raises:
        BadInput: Not an export.
        LedgerCorrupt: It was changed.
        MissingExtra: pyarrow is not installed.
    """
    parquet = import_pyarrow("reading Parquet")
    manifest = check_export(folder)
    modes = dict(manifest.run_modes)
    found: list[Event] = []
    for file in manifest.files:
        with (folder / file.name).open("rb") as stream:
            rows = parquet.read_table(stream).to_pylist()
        found += [_event(row, modes) for row in rows]
    return found


def _event(row: dict[str, Any], modes: dict[str, str]) -> Event:
    body = {name: row[name] for name in _BODY if row[name] is not None}
    if row["injected"] is not None:
        body["injected"] = bool(row["injected"])
    if row["kind"] == "run.start" and row["run"] in modes:
        body["mode"] = modes[row["run"]]
    durations = {name: row[name] for name in TIME_COLUMNS if name != "observed_us"}
    has_links = row["incident"] is not None or row["supersedes"] is not None
    return Event(
        kind=row["kind"], id=row["id"], seq=row["seq"],
        t_occurred_us=row["t_us"] if row["has_occurred_us"] else None,
        t_observed_us=row["observed_us"],
        class_=row["class_"], symptom=row["symptom"], cause=row["cause"], cause_status=row["cause_status"],
        role=row["role"], run=row["run"], devices=row["devices"],
        domain=tuple(Domain(kind=kind, id=row[kind]) for kind in DOMAIN_KINDS if row[kind] is not None),
        links=Links(incident=row["incident"], supersedes=row["supersedes"]) if has_links else None,
        source=Source(importer=row["importer"]) if row["importer"] else None,
        body=body, **durations,
    )  # fmt: skip
