"""From a ledger to a report: which run, which events, and the builders that the workloads bring.

Everything that a report depends on is in `Question`, so that whoever recomputes it asks the same question.
"""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lastgood.base.errors import BadInput
from lastgood.contract.model import FailureContract
from lastgood.evidence.imported_run_part import build_imported_run, is_run_imported
from lastgood.evidence.incident_part import CLASS_TITLES
from lastgood.evidence.rates_quality_part import imported_files
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.report import Headline, Note, Report, Reproduction, Section
from lastgood.ledger.event import Event
from lastgood.ledger.store import Store
from lastgood.ledger.tree_head import TreeHead

RUNS_NAMED_MAX = 8
RECORDS_READ_MAX = 100_000
"""Rows of a ledger without a run that are looked through for failures that somebody recorded."""
KINDS_WITHOUT_RUN = ("record", "planned.begin", "planned.end", "annotation", "correction")
"""Kinds that are written from outside a run and may bear on it all the same."""


class SectionBuilder(Protocol):
    """What a workload passes in: its events and its contract become its section of a report."""

    def __call__(
        self,
        events: Sequence[Event],
        contract: FailureContract,
        *,
        as_of_us: int,
        run: str | None = None,
    ) -> Section:
        """Pure: the same events, contract and instant give the same section."""
        ...


Builders = Mapping[str, SectionBuilder]
"""Kind of workload (as the contract names it) -> its builder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All that decides a report, apart from the ledger and the contract."""

    run: str | None
    """None when the ledger holds no run."""
    as_of_us: int
    ledger: str
    """How the ledger is named in the report."""
    command: str
    version: str
    rates: RatesQuestion | None = None
    """How the statistics of imported failures are to be made; None for a report without them."""


def newest_run(store: Store) -> str | None:
    """The run that was started last; None for a ledger without runs."""
    runs = run_names(store)
    return runs[-1] if runs else None


def run_names(store: Store) -> list[str]:
    """Every run in the order in which they were started, each once."""
    starts = [event.run for event in store.events(kinds=["run.start"]) if event.run]
    return list(dict.fromkeys(reversed(starts)))[::-1]


def chosen_run(store: Store, wanted: str | None) -> str | None:
    """The wanted run, or the newest.

    Raises:
        BadInput: the ledger has no run of that name; the message lists those that it has.
    """
    if wanted is None:
        return newest_run(store)
    runs = run_names(store)
    if wanted in runs:
        return wanted
    raise no_such_run(wanted, runs, where=str(store.path))


def no_such_run(wanted: str, runs: Sequence[str], *, where: str) -> BadInput:
    """The refusal that names the runs there are: all of few, else those with a like name, the newest, and how many.

    `runs` are in the order in which they were started.
    """
    if len(runs) <= RUNS_NAMED_MAX:
        needs = f"one of: {', '.join(runs)}" if runs else "a ledger with runs; this one has none"
        return BadInput("no such run in the ledger", where=where, found=wanted, needs=needs)
    near = difflib.get_close_matches(wanted, runs, n=RUNS_NAMED_MAX, cutoff=0.6)
    shown = list(dict.fromkeys([*near, *reversed(runs)]))[:RUNS_NAMED_MAX]
    return BadInput(
        "no such run in the ledger",
        where=where,
        found=wanted,
        needs=f"one of its {len(runs):,} runs, such as {', '.join(shown)}",
        next=f'all of them: python -c \'import lastgood; print(*lastgood.open("{where}").runs, sep="\\n")\'',
    )


def reported_run(store: Store, wanted: str | None) -> str | None:
    """The run that a report is about: the wanted one, else the newest; none where logs brought many runs.

    A scheduler's log names thousands of jobs, and the last of them says nothing about the fleet that ran them.

    Raises:
        BadInput: the ledger has no run of that name.
    """
    newest = chosen_run(store, wanted)
    if wanted is not None or newest is None or len(run_names(store)) == 1:
        return newest
    has_failures = bool(imported_files(store.events(kinds=["annotation"])))
    return None if has_failures and is_run_imported(store.events(run=newest), newest) else newest


def events_of_run(store: Store, run: str | None) -> list[Event]:
    """The events of a run, and what was recorded without a run's name while it lasted, in ledger order.

    Prologs, epilogs and health checks know their node and rarely the run, so their records count by time.
    """
    if run is None:
        return _failures_without_run(store)
    own = list(store.events(run=run))
    begin_us = min(
        (t for e in own if e.kind == "run.start" and (t := _time_us(e)) is not None), default=None
    )
    end_us = max(
        (t for e in own if e.kind == "run.end" and (t := _time_us(e)) is not None), default=None
    )
    is_log = is_run_imported(own, run)
    others = (
        e
        for e in store.events(kinds=KINDS_WITHOUT_RUN)
        if e.run is None and (_is_within(e, begin_us, end_us) or (is_log and "coverage" in e.body))
    )
    return sorted([*own, *others], key=lambda event: event.seq or 0)


def _failures_without_run(store: Store) -> list[Event]:
    """What people and health checks recorded of failures, where there is no run to look at.

    A ledger of many rows was imported, and its failures have a section of their own.
    """
    if store.size > RECORDS_READ_MAX:
        return []
    return [e for e in store.events(kinds=["record"]) if e.class_ is not None]


def recorded_contract(events: Iterable[Event]) -> str | None:
    """The contract under which the run was started, as it was written; None when it had none."""
    texts = [e.body.get("contract") for e in events if e.kind == "run.start"]
    return next((text for text in reversed(texts) if isinstance(text, str)), None)


def _is_within(event: Event, begin_us: int | None, end_us: int | None) -> bool:
    t_us = _time_us(event)
    if t_us is None or begin_us is None or t_us < begin_us:
        return False
    return end_us is None or t_us <= end_us


def last_instant_us(events: Iterable[Event], *, now_us: int) -> int:
    """As of when a report holds: the last record of a finished run, else now."""
    events = list(events)
    if not any(event.kind == "run.end" for event in events):
        return now_us
    return max((t for event in events if (t := _time_us(event)) is not None), default=now_us)


def report_instant_us(
    events: Sequence[Event], run: str | None, *, now_us: int, records_end_us: int | None
) -> int:
    """As of when a report holds. Logs speak until their last row: after it, nothing is known and nothing goes on."""
    is_read_from_logs = run is None or is_run_imported(events, run)
    if records_end_us is not None and is_read_from_logs:
        # What a person recorded about the run since then (a verdict on its state) is known too.
        added = [t for e in events if not e.source and (t := _time_us(e)) is not None]
        now_us = max([records_end_us, *added])
    return last_instant_us(events, now_us=now_us)


def _time_us(event: Event) -> int | None:
    return event.t_observed_us if event.t_observed_us is not None else event.t_occurred_us


def build_report(
    events: Sequence[Event],
    contract: FailureContract,
    *,
    question: Question,
    head: TreeHead,
    builders: Builders,
    fleet: Section | None = None,
) -> Report:
    """The report that answers the question: pure, and the same wherever it is computed.

    `fleet` is the section of imported failures, which needs the whole ledger and not one run's events.

    Raises:
        BadInput: the contract is about a kind of workload that no builder was passed in for.
    """
    kind = contract.spec.workload.kind
    builder = builders.get(kind)
    if builder is None:
        raise BadInput(
            "this report cannot be built here",
            where="spec.workload.kind",
            found=kind,
            needs=" | ".join(sorted(builders)),
        )
    sections: tuple[Section, ...] = () if fleet is None else (fleet,)
    if question.run is not None:
        if is_run_imported(events, question.run):
            own = build_imported_run(
                events,
                run=question.run,
                as_of_us=question.as_of_us,
                devices=question.rates.devices if question.rates else None,
            )
        else:
            own = builder(events, contract, as_of_us=question.as_of_us, run=question.run)
        sections = (own, *sections)
    elif fleet is None:
        sections = (_empty_section(kind, events, ledger=question.ledger),)
    is_fleet = question.run is None and fleet is not None
    return Report(
        title="Lastgood report, fleet" if is_fleet else f"Lastgood report, {kind} run",
        subject=question.run or (Path(question.ledger).name if is_fleet else "no run"),
        as_of_us=question.as_of_us,
        sections=sections,
        reproduction=Reproduction(
            ledger=question.ledger,
            root=head.root_hex,
            size=head.size,
            origin=head.origin,
            version=question.version,
            command=question.command,
        ),
    )


def _empty_section(kind: str, failures: Sequence[Event], *, ledger: str) -> Section:
    """What there is to say of a ledger without a run: the failures that were recorded, and who counts them."""
    text = "Start a run with: lastgood run --nproc-per-node 2 train.py, or lastgood demo."
    sentence = "Nothing to report yet: the ledger holds no run."
    if failures:
        classes = Counter(str(event.class_) for event in failures)
        told = ", ".join(
            f"{count} {CLASS_TITLES.get(name, name)}" for name, count in classes.items()
        )
        noun = "failure is" if len(failures) == 1 else "failures are"
        sentence = f"The ledger holds no run; {len(failures):,} {noun} recorded in it: {told}."
        text = f"Count and compare them with: lastgood rates --ledger {shlex.quote(ledger)}"
    note = Note(level="missing" if failures else "info", text=text)
    return Section(
        name=kind,
        title=kind.capitalize(),
        notes=(note,),
        headline=Headline(state="nothing", sentence=sentence),
    )
