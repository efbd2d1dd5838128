"""What `lastgood.open(PATH)` gives: the events, incidents and figures of a ledger, a bundle or an export, read only.

Nothing is written, neither into the evidence nor beside it. A bundle is unpacked into a folder of our own, and one
whose files do not hash to its manifest is refused. Everything is read when it is asked for; a live ledger therefore
answers with what it holds by then.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from lastgood.base.clock import Clock
from lastgood.base.errors import BadInput, LedgerCorrupt
from lastgood.base.figures import Figure
from lastgood.contract.load import default_contract, load_contract, parse_contract
from lastgood.contract.model import FailureContract
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence import archive
from lastgood.evidence.assemble import (
    Builders,
    Question,
    recorded_contract,
    reported_run,
    run_names,
)
from lastgood.evidence.bundle import read_contract
from lastgood.evidence.computed import compute_export, compute_report
from lastgood.evidence.incident_times import TIMES, quantile_figure
from lastgood.evidence.manifest import Manifest, first_wrong_file, read_manifest
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.report import Named, Report, named_figures
from lastgood.evidence.row_fields import EVENT_FIELDS, FIGURE_FIELDS, INCIDENT_FIELDS
from lastgood.evidence.rows import Rows
from lastgood.ledger.event import Event
from lastgood.ledger.grouping import LINKS, REPORT_RULE, Rule, parse_rule
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import read_store
from lastgood.ledger.tree_head import TreeHead

SQLITE: Final = b"SQLite format 3\x00"
NAMED_MAX: Final = 8


class Events(Rows[Event]):
    """Events in the order of the ledger."""


class Incidents(Rows[Incident]):
    """Incidents in the order of their onset."""

    def quantile(self, indicator: str, share: float, *, level: float = 0.95) -> Figure:
        """A quantile of a duration (`recovery_time`, `detection_time`, ...) with a distribution-free interval.

        An escalated incident was never recovered and stands behind every recovered one. With too few incidents for an
        interval at this level there is none, and the source says how many there were.
        """
        if indicator not in TIMES or not 0 < share < 1:
            raise BadInput(
                "no such quantile",
                found=f"{indicator!r} at {share}",
                needs=f"{' | '.join(TIMES)}, and a share between 0 and 1",
            )
        faults = [incident for incident in self if not incident.is_planned]
        return quantile_figure(faults, indicator, share, level=level)


class Figures(Rows[Named]):
    """Every figure of a report, in reading order, with its place (`path`) and its label."""

    report: Report
    """The report that they stand in."""

    def named(self, name: str) -> Figure:
        """The first figure with this name, label or path.

        Raises:
            BadInput: there is none; the message names what is near.
        """
        for found in self:
            if name in {found.figure.name, found.label, found.path}:
                return found.figure
        names = {found.figure.name.lower(): found.figure.name for found in self}
        near = difflib.get_close_matches(name.lower(), names, n=NAMED_MAX, cutoff=0.5)
        near = [names[word] for word in near] or sorted(names.values())[:NAMED_MAX]
        raise BadInput("no such figure", found=repr(name), needs=f"such as {', '.join(near)}")


class Opened:
    """Evidence that was opened for reading; a context manager, though only a bundle has anything to close."""

    def __init__(self, path: Path, *, builders: Builders, version: str, clock: Clock) -> None:
        """Use `lastgood.open` instead."""
        self.path = path
        self.kind: Literal["ledger", "bundle", "export"] = _kind(path)
        self._builders, self._version, self._clock = builders, version, clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._manifest: Manifest | None = None
        self._place = path
        if self.kind == "bundle":
            self._unpack()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def __repr__(self) -> str:
        """What was opened."""
        return f"<{self.kind} {self.path}>"

    def close(self) -> None:
        """Removes what was unpacked; a ledger and an export have nothing to close."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def head(self) -> TreeHead:
        """Size and root of the ledger that everything is read from."""
        if self.kind == "export":
            from lastgood.ledger.parquet import read_manifest as read_export

            told = read_export(self.path)
            return TreeHead(origin=told.origin, size=told.size, root=bytes.fromhex(told.root))
        with read_store(self._place) as store:
            return store.head()

    @property
    def runs(self) -> list[str]:
        """The runs in it, in the order in which they were started."""
        if self.kind == "export":
            return list(
                dict.fromkeys(e.run for e in self.events(kinds=EventKind.RUN_START) if e.run)
            )
        with read_store(self._place) as store:
            return run_names(store)

    def events(self, kinds: str | Iterable[str] | None = None, run: str | None = None) -> Events:
        """The events, of some kinds or of one run only, superseded ones included.

        Raises:
            BadInput: no such kind of event, or no such run.
        """
        wanted = None if kinds is None else [kinds] if isinstance(kinds, str) else list(kinds)
        for kind in wanted or ():
            if kind not in set(EventKind):
                raise BadInput("no such kind of event", found=repr(kind), needs=" | ".join(EventKind))  # fmt: skip
        if self.kind == "export":
            from lastgood.ledger.parquet_events import export_events

            every = export_events(self.path)
            found = [
                e
                for e in every
                if (wanted is None or e.kind in wanted) and (run is None or e.run == run)
            ]
        else:
            with read_store(self._place) as store:
                found = list(store.events(kinds=wanted, run=run))
        if run is not None and not found and run not in self.runs:
            self._refuse_run(run)
        return Events(found, EVENT_FIELDS, about=self._about())

    def incidents(self, run: str | None = None, rule: str | None = None) -> Incidents:
        """The incidents under a grouping rule: what the events declare, and in imported records a gap of 10 minutes.

        Raises:
            BadInput: no such run, or not a rule.
        """
        events = self.events(run=run)
        is_imported = any(event.source and event.source.importer for event in events)
        chosen: Rule = parse_rule(rule) if rule else REPORT_RULE if is_imported else LINKS
        about = {**self._about(), "rule": str(chosen)}
        return Incidents(fold_incidents(events, chosen), INCIDENT_FIELDS, about=about)

    def figures(
        self, run: str | None = None, contract: str | os.PathLike[str] | None = None
    ) -> Figures:
        """Every figure of the report that `lastgood report` shows: of one run, else of the newest, or of the fleet.

        A bundle answers with its own contract, and about its own run as of its own instant.

        Raises:
            BadInput: no such run, or nothing to report.
        """
        report = self._report(run, contract)
        about = {**self._about(), "report": f"{report.title}, {report.subject}"}
        figures = Figures(named_figures(report), FIGURE_FIELDS, about=about)
        figures.report = report
        return figures

    def _report(self, run: str | None, contract: str | os.PathLike[str] | None) -> Report:
        if self.kind == "export":
            if run is not None or contract is not None:
                raise BadInput(
                    "an export has no run to look at event by event",
                    where=str(self.path),
                    needs="the ledger itself, or figures() of the fleet",
                )
            return compute_export(self.path, self._question(None), RatesQuestion())
        question = self._question(run)
        declared = self._contract(question.run, contract)
        return compute_report(self._place, declared, question, self._builders).report

    def _question(self, run: str | None) -> Question:
        told = self._manifest
        if told is not None and run in {None, told.run}:
            return told.question
        return Question(
            run=run, as_of_us=self._clock.wall_us(), ledger=str(self.path), version=self._version,
            command=f"lastgood report {self.path}" + (f" --run {run}" if run else ""),
            rates=RatesQuestion(),
        )  # fmt: skip

    def _contract(self, run: str | None, named: str | os.PathLike[str] | None) -> FailureContract:
        if named is not None:
            return load_contract(Path(named))
        if self._manifest is not None:
            return read_contract(self._place.with_name(archive.CONTRACT), source=archive.CONTRACT)
        with read_store(self._place) as store:
            started = store.events(run=reported_run(store, run), kinds=[EventKind.RUN_START])
            recorded = recorded_contract(started)
        return (
            default_contract()
            if recorded is None
            else parse_contract(recorded.encode(), source="contract of the run")
        )

    def _unpack(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lastgood-open-")
        folder = Path(self._folder.name)
        try:
            archive.unpack(self.path, folder)
            self._manifest = read_manifest(folder)
            wrong = first_wrong_file(self._manifest, folder)
            if wrong is not None:
                raise LedgerCorrupt(
                    "the bundle was changed after it was written",
                    where=f"{self.path}: {wrong.where}",
                    found=wrong.recomputed,
                    needs=wrong.stored,
                    next=f"run: lastgood recompute {self.path}",
                )
        except BaseException:
            self.close()
            raise
        self._place = folder / archive.LEDGER

    def _about(self) -> dict[str, str]:
        return {"from": str(self.path)}

    def _refuse_run(self, run: str) -> None:
        shown = ", ".join(self.runs[-NAMED_MAX:]) or "no run at all"
        raise BadInput(
            "no such run in the ledger", where=str(self.path), found=run, needs=f"one of: {shown}"
        )


def _kind(path: Path) -> Any:
    """A ledger by its first bytes, an export by its Parquet files, else a bundle, which says itself what is wrong.

    Raises:
        BadInput: there is nothing at this path.
    """
    if os.path.isdir(path):
        return "export" if any(path.glob("*.parquet")) else "bundle"
    try:
        with path.open("rb") as file:
            return "ledger" if file.read(len(SQLITE)) == SQLITE else "bundle"
    except OSError as error:
        raise BadInput(
            "nothing to open",
            where=str(path),
            found=error.strerror or str(error),
            needs="a ledger, a bundle (folder or tar), or a folder that lastgood export wrote",
            next="make one from nothing with: lastgood demo",
        ) from error
