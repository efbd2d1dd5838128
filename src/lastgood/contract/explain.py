"""A contract in plain words, and which of its values nobody declared.

`explain` gives sections of sentences; the command line prints them and `--json` keeps their structure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lastgood.base.units import format_duration
from lastgood.contract.budgets import Budget, CountBudget
from lastgood.contract.model import FailureContract, Window
from lastgood.contract.objectives import (
    AcceptedOutputRateObjective,
    EscapedCorruptionObjective,
    EttrObjective,
    IncidentTimeObjective,
    LatencyObjective,
    LostDeviceTimeObjective,
    LostStepsObjective,
    Objective,
    PassHatKObjective,
    SloGoodputObjective,
    VerifiedCompletionObjective,
)
from lastgood.contract.recovery_table import TRANSITIONS, Notify, Row, missing_duties
from lastgood.contract.tail import alarm_count
from lastgood.contract.taxonomy import CountedClass
from lastgood.contract.values import OnTimeout, Record

NOT_DECLARED = "not declared"
_CLASS_WORDS = {
    CountedClass.PLANNED: "known in advance",
    CountedClass.FAIL_STOP: "a process or collective ended with a signal",
    CountedClass.FAIL_SLOW: "alive, but slower or standing still",
    CountedClass.SDC: "a wrong value without an error",
    CountedClass.CORRELATED: "two or more members of a shared fault domain at once",
}
_NO_DATA_WORDS = {
    "bad": "A stretch without data counts as bad.",
    "exclude": "A stretch without data is left out, and the report says how much.",
    "unknown": "A stretch without data stays unknown, which never counts as good.",
}
_TIMEOUT_WORDS = {
    OnTimeout.WIDEN: "the next larger fault domain is taken out",
    OnTimeout.FALL_BACK: "the next older, more durable state is used",
    OnTimeout.ESCALATE: "the run stops trying and the owner is notified",
}
_EXPOSURE_WORDS = {
    "window": "of wall time",
    "run_hours": "of run time",
    "device_hours": "of every declared device at risk",
}


class Paragraph(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the contract in sentences."""

    title: str
    sentences: tuple[str, ...]


def explain(contract: FailureContract) -> tuple[Paragraph, ...]:
    """The whole contract in plain words, in the order in which a person asks."""
    spec = contract.spec
    parts: list[tuple[str, Iterator[str]]] = [
        ("Workload", _workload(contract)),
        ("What counts", _failure(contract)),
        ("Judged over", iter([_window(spec.window), _NO_DATA_WORDS[spec.no_data]])),
        ("Objectives", (f"{item.name}: {_objective(item)}" for item in spec.objectives)),
        ("Budgets", (f"{item.name}: {_budget(item, contract)}" for item in spec.budgets)),
        ("Recovery", _recovery(contract)),
        ("Evidence duties", _duties(contract)),
        ("Assumed", _assumed(contract)),
    ]
    return tuple(
        Paragraph(title=title, sentences=tuple(sentences) or (NOT_DECLARED,))
        for title, sentences in parts
    )


def _workload(contract: FailureContract) -> Iterator[str]:
    workload = contract.spec.workload
    if (
        contract.is_assumed
    ):  # the default's number is a placeholder, and would stand beside the real number of ranks
        yield f"{workload.kind}; the number of devices is not declared."
    else:
        yield f"{workload.kind} on {workload.devices} device{'s' if workload.devices > 1 else ''}."
    yield f"Accepted work: {workload.boundary}."
    if contract.spec.description:
        yield contract.spec.description


def _failure(contract: FailureContract) -> Iterator[str]:
    failure = contract.spec.failure
    for word in failure.counts:
        yield f"{word}: {_CLASS_WORDS[word]}."
    if failure.excludes:
        yield f"Not counted: {', '.join(failure.excludes)}."


def _window(window: Window) -> str:
    length = format_duration(window.duration_us)
    if window.calendar is None:
        return f"The last {length}, moving with the clock ({window.time_zone})."
    return f"Windows of {length} that begin at {window.calendar.start_time} {window.time_zone}."


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.10g} %"


def _objective(item: Objective) -> str:
    match item:
        case EttrObjective():
            return f"at least {_percent(item.target)} of wall time is productive (ETTR)."
        case IncidentTimeObjective():
            few = (
                f"; below {item.count_min} incidents the answer is unknown"
                if item.count_min > 1
                else ""
            )
            name, share = item.indicator.replace("_", " "), _percent(item.percentile)
            return (
                f"{name} is at most {format_duration(item.limit_us)} in {share} of incidents{few}."
            )
        case LostStepsObjective():
            return f"no incident loses more than {item.limit} step{'s' if item.limit != 1 else ''}."
        case LostDeviceTimeObjective():
            return f"no incident loses more than {format_duration(item.limit_us)} of device time."
        case EscapedCorruptionObjective():
            return "no corrupt state is built on or handed out."
        case LatencyObjective():
            limit = format_duration(item.limit_us)
            return f"{item.indicator.upper()} is at most {limit} in {_percent(item.percentile)} of requests."
        case SloGoodputObjective():
            limits = f"TTFT within {format_duration(item.ttft_us)} and TPOT within {format_duration(item.tpot_us)}"
            return f"at least {item.rate_min:g} requests per second have {limits}."
        case AcceptedOutputRateObjective():
            return f"at least {_percent(item.target)} of outputs are accepted."
        case VerifiedCompletionObjective():
            return f"at least {_percent(item.target)} of tasks reach their verified goal state."
        case PassHatKObjective():
            return f"all of {item.k} trials of a task pass with a probability of at least {_percent(item.target)}."


def _budget(item: Budget, contract: FailureContract) -> str:
    if isinstance(item, CountBudget):
        alarm = alarm_count(item.count_max, item.alpha)
        return (
            f"at most {item.count_max} ({', '.join(item.counts)}) in {format_duration(item.per_us)} "
            f"{_EXPOSURE_WORDS[item.exposure]}; someone is told when that many or more would have a probability "
            f"below {item.alpha:g} under the budget (from {alarm} on, at full exposure)."
        )
    window_us = contract.spec.window.duration_us
    rules = [
        f"{_percent(burn.consumed)} of it within {format_duration(burn.within_us)}"
        f" ({burn.burn_rate(window_us):.3g} times the even rate)"
        + (f", still burning over {format_duration(burn.confirm_us)}" if burn.confirm_us else "")
        for burn in item.burn
    ]
    return (
        f"what {item.objective} leaves is the budget; someone is told when it loses "
        + ", or ".join(rules)
        + "."
    )


def _recovery(contract: FailureContract) -> Iterator[str]:
    table = contract.spec.recovery
    for name in TRANSITIONS:
        yield f"{name}: {_row(table.row(name))}"
    again = table.recurrence
    yield (
        f"The same failure again within {format_duration(again.window_us)} of its recovery widens the fault domain;"
        f" after {again.limit} such returns the next one escalates."
    )
    tried = {0: "stops the run at once", 1: "is tried once more, then stops the run"}.get(
        again.every_rank_limit, f"is tried {again.every_rank_limit} times, then stops the run"
    )
    yield f"An error that every rank raises in the same step is a bug of the script: it {tried}."
    if table.slow.act == "replace":
        yield (
            "A rank that became slow is replaced once it has cost as much as replacing it"
            f" ({format_duration(table.slow.cost_us)} until the run has measured its own recoveries)."
        )
    else:
        yield "A rank that became slow is recorded and not replaced."
    yield f"After {format_duration(table.soft_deadline_us)} all ranks restart instead of the broken one alone."
    yield _notify(table.notify)


def _row(row: Row) -> str:
    limit = format_duration(row.timeout_us)
    return f"{row.owner} has {limit}, until {row.accept}; else {_TIMEOUT_WORDS[row.on_timeout]}."


def _notify(notify: Notify | None) -> str:
    if notify is None:
        return "Nobody is notified of an escalation: recovery.notify is not declared."
    if notify.command is not None:
        return f"An escalation runs {' '.join(notify.command)} with the incident as JSON on standard input."
    return f"An escalation is posted to the Alertmanager at {notify.alertmanager}."


def _duties(contract: FailureContract) -> Iterator[str]:
    layer = contract.spec.workload.kind
    duty = contract.spec.duties.of(layer)
    parts = {"replay test": duty.replay_test, "injection": duty.injection, "accepted when": duty.accept,
             "owner of failed evidence": duty.owner}  # fmt: skip
    for name, text in parts.items():
        yield f"{layer}, {name}: {text or 'missing'}"
    count = len(missing_duties(contract.spec.duties, layer))
    if count:
        yield f"{count} missing; `lastgood contract check` refuses the contract."


def _assumed(contract: FailureContract) -> Iterator[str]:
    if contract.is_assumed:
        yield "Every value: no contract was declared. Write one with: lastgood contract init -o contract.yaml"
        return
    paths = assumed_paths(contract)
    yield ", ".join(paths) + "." if paths else "Nothing: every value stands in the contract."


def assumed_paths(contract: FailureContract) -> tuple[str, ...]:
    """The key path of every value that is a default and not declared; every value without a contract."""
    return tuple(_walk(contract, "", is_all=contract.is_assumed))


def _walk(record: Record, prefix: str, *, is_all: bool) -> Iterator[str]:
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        path = f"{prefix}.{field.alias or name}" if prefix else field.alias or name
        is_declared = name in record.model_fields_set
        if value is None or value in ((), {}):
            continue  # nothing is there, so nothing is assumed
        if isinstance(value, Record) and (is_declared or is_all):
            yield from _walk(value, path, is_all=is_all)
        elif (
            isinstance(value, tuple)
            and is_declared
            and any(isinstance(item, Record) for item in value)
        ):
            for index, item in enumerate(value):
                yield from _walk(item, f"{path}[{index}]", is_all=is_all)
        elif (is_all or not is_declared) and not _is_empty(value):
            yield path


def _is_empty(value: object) -> bool:
    """A default part that holds nothing itself, such as duties that nobody declared."""
    return isinstance(value, Record) and not value.model_fields_set
