"""What `lastgood.open(PATH)` gives: the events, incidents and figures of a ledger, a bundle or an export, read only.

Nothing is written, neither into the evidence nor beside it. A ledger that does not verify is refused, and so is a
bundle whose files do not hash to its manifest; a bundle is unpacked into a folder of our own. Everything is read when
it is asked for; a live ledger therefore answers with what it holds by then, and is verified anew when it has grown.
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
from lastgood.base.errors import BadInput
from lastgood.base.figures import Figure
from lastgood.contract.load import default_contract, load_contract, parse_contract
from lastgood.contract.model import FailureContract
from lastgood.contract.taxonomy import EventKind
from lastgood.evidence import archive
from lastgood.evidence.assemble import (
    Builders,
    Question,
    no_such_run,
    recorded_contract,
    reported_run,
    run_names,
)
from lastgood.evidence.bundle import read_contract
from lastgood.evidence.checked_bundle import unpack_checked
from lastgood.evidence.computed import compute_export, compute_report
from lastgood.evidence.folder_words import TAR_MARK, TAR_MARK_AT, is_bundle, what_folder
from lastgood.evidence.incident_times import TIMES, quantile_figure
from lastgood.evidence.manifest import Manifest
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.report import Named, Report, named_figures
from lastgood.evidence.row_fields import EVENT_FIELDS, FIGURE_FIELDS, INCIDENT_FIELDS
from lastgood.evidence.rows import Rows
from lastgood.ledger.event import Event
from lastgood.ledger.grouping import LINKS, REPORT_RULE, Rule, parse_rule
from lastgood.ledger.incident import Incident, fold_incidents
from lastgood.ledger.store import Store, read_store
from lastgood.ledger.tree_head import TreeHead
from lastgood.ledger.verified import require_verified

SQLITE: Final = b"SQLite format 3\x00"
NAMED_MAX: Final = 8
RUNS_MAX: Final = 100
"""Runs that are reported on in one answer; a report takes about a tenth of a second."""
FLEET: Final = "fleet"
"""Name of the section that is about the whole ledger."""


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
    """The report that they stand in; of several runs, that of the newest."""

    def named(self, name: str) -> Figure:
        """The first figure with this name, label or path.

        Raises:
            BadInput: there is none, or several runs have one; the message names what is near, or the runs.
        """
        having = [f for f in self if name in {f.figure.name, f.label, f.path}]
        runs = list(dict.fromkeys(f.run for f in having if f.run is not None))
        if len(runs) > 1:
            raise BadInput(
                "several runs have this figure",
                found=f"{name!r} in {len(runs)} runs",
                needs=f"one of: {', '.join(runs[-NAMED_MAX:])}",
                next="ask for one run: figures(run=NAME)",
            )
        if having:
            return having[0].figure
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
        self._verified: TreeHead | None = None
        if self.kind == "bundle":
            self._unpack()
        elif self.kind == "ledger":
            self._verify()

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
        with self._store() as store:
            return store.head()

    @property
    def runs(self) -> list[str]:
        """The runs in it, in the order in which they were started."""
        if self.kind == "export":
            return list(
                dict.fromkeys(e.run for e in self.events(kinds=EventKind.RUN_START) if e.run)
            )
        with self._store() as store:
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
            with self._store() as store:
                found = list(store.events(kinds=wanted, run=run))
        if run is not None and not found and run not in self.runs:
            raise no_such_run(run, self.runs, where=str(self.path))
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
        """Every figure that `lastgood report` shows: of one run, else of every run, or of the fleet; each row says which.

        A bundle answers with its own contract, and about its own run as of its own instant.

        Raises:
            BadInput: no such run, nothing to report, or too many runs to report on all of them.
        """
        rows: list[Named] = []
        reports = [(name, self._report(name, contract)) for name in self._reported(run)]
        for name, report in reports:
            about_run = report.subject if name is None and self.kind != "export" else name
            for found in named_figures(report):
                is_fleet = found.path.startswith(f"{FLEET}/")
                if is_fleet and report is not reports[-1][1]:
                    continue  # it is the same in the report of every run
                rows.append(found._replace(run=None if is_fleet else about_run))
        last = reports[-1][1]
        told = f"{last.title}, {last.subject}" if len(reports) == 1 else f"{len(reports)} runs"
        figures = Figures(rows, FIGURE_FIELDS, about={**self._about(), "report": told})
        figures.report = last
        return figures

    def _reported(self, run: str | None) -> list[str | None]:
        """Whose report is asked for; None leaves the choice to the report: an export, a bundle, or the fleet."""
        if run is not None or self.kind != "ledger":
            return [run]
        with self._store() as store:
            runs = run_names(store)
            if len(runs) < 2 or reported_run(store, None) is None:
                return [None]
        if len(runs) > RUNS_MAX:
            raise BadInput(
                "too many runs to report on all of them",
                where=str(self.path),
                found=f"{len(runs):,} runs",
                needs=f"at most {RUNS_MAX}, or one run",
                next=f"figures(run={runs[-1]!r}) is the newest",
            )
        return [*runs]

    def _report(self, run: str | None, contract: str | os.PathLike[str] | None) -> Report:
        if self.kind == "export":
            if run is not None or contract is not None:
                raise BadInput(
                    "an export has no run to look at event by event",
                    where=str(self.path),
                    needs="the ledger itself, or figures() of the fleet",
                )
            return compute_export(self.path, self._question(None), RatesQuestion())
        self._verify()
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
        with self._store() as store:
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
            self._manifest = unpack_checked(self.path, folder)
        except BaseException:
            self.close()
            raise
        self._place = folder / archive.LEDGER

    def _store(self) -> Store:
        """The ledger to read, verified."""
        self._verify()
        return read_store(self._place)

    def _verify(self) -> None:
        """Verify the ledger, unless it was and has not grown since. The copy out of a bundle is nobody else's."""
        if self.kind != "ledger":
            return
        if self._verified is not None:
            with read_store(self._place) as store:
                if store.head() == self._verified:
                    return
        self._verified = require_verified(self._place).head

    def _about(self) -> dict[str, str]:
        return {"from": str(self.path)}


def _kind(path: Path) -> Any:
    """A ledger by its first bytes, an export by its Parquet files, a bundle by its manifest or as a tar.

    Raises:
        BadInput: there is nothing at this path, or nothing of these.
    """
    needs = "a ledger, a bundle (folder or tar), or a folder that lastgood export wrote"
    if os.path.isdir(path):
        if any(path.glob("*.parquet")):
            return "export"
        if (
            is_bundle(path) or (path / archive.MANIFEST).exists()
        ):  # a broken one says itself what is wrong
            return "bundle"
        found, following = what_folder(path)
        raise BadInput("nothing to open", where=str(path), found=found, needs=needs, next=following)
    try:
        with path.open("rb") as file:
            head = file.read(TAR_MARK_AT + len(TAR_MARK))
    except OSError as error:
        raise BadInput(
            "nothing to open",
            where=str(path),
            found=error.strerror or str(error),
            needs=needs,
            next="make one from nothing with: lastgood demo",
        ) from error
    if head.startswith(SQLITE) or (not head and os.path.exists(f"{path}-wal")):
        return "ledger"
    if head[TAR_MARK_AT:] == TAR_MARK:
        return "bundle"
    raise BadInput(
        "nothing to open",
        where=str(path),
        found="a file of another kind" if head else "an empty file",
        needs=needs,
        next=f"if it is a log: lastgood import {path} --ledger LEDGER",
    )
