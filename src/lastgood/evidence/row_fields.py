"""The columns of events, incidents and figures, as `lastgood.open(...)` gives them; docs/notebook.md explains the use.

Times stand twice: as whole microseconds UTC (`..._us`, for arithmetic without loss) and as a timestamp of Arrow.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from lastgood.base.canonical import canonical_bytes
from lastgood.evidence.report import Named
from lastgood.evidence.rows import Field
from lastgood.ledger.event import Event


def _own(name: str, kind: str, text: str, *, unit: str = "", of: str = "") -> Field:
    """A column that is an attribute of the record, under its own name or another."""
    return Field(name, kind, unit, text, attrgetter(of or name))


def _instant(name: str, text: str, *, of: str = "") -> tuple[Field, Field]:
    """A time, as whole microseconds and as a timestamp."""
    take = attrgetter(of or f"{name}_us")
    return (
        Field(f"{name}_us", "int", "us UTC", text, take),
        Field(name, "time", "UTC", f"The same as a timestamp: {text[0].lower()}{text[1:]}", take),
    )


def _duration(name: str, text: str) -> Field:
    return _own(name, "int", text, unit="us")


def _domains(record: Any) -> list[str]:
    return [f"{domain.kind}:{domain.id}" for domain in record.domain]


def _check(record: Any) -> Any:
    return record.verification


def _verification() -> tuple[Field, ...]:
    return (
        Field("verification_test", "text", "", "The test that a restored state was put to.", lambda r: _check(r) and _check(r).test),
        Field("verification_result", "text", "", "What it said, such as `equal`.", lambda r: _check(r) and _check(r).result),
    )  # fmt: skip


_CLASSIFIED: Final = (
    _own("class", "text", "Class of the failure.", of="class_"),
    _own("symptom", "text", "What was seen; several causes give one symptom."),
    _own("cause", "text", "Why, where that is known."),
    _own("cause_status", "text", "How well the cause is known."),
)
_PHASES: Final = (
    _duration("detect_us", "From the onset to the detection."),
    _duration("diagnose_us", "From the detection to a named culprit."),
    _duration("isolate_us", "From the name to the culprit's removal."),
    _duration("recover_us", "From the removal to a restored state."),
    _duration("verify_us", "From the restored state to its verification."),
)
_COST: Final = (
    _own("lost_device_us", "int", "Device time that produced nothing.", unit="device-us"),
    _duration("checkpoint_age_us", "Age of the state that was restored."),
    _own("first_divergent_step", "int", "First step whose state was wrong.", unit="step number"),
)


def _body(event: Event) -> str | None:
    return canonical_bytes(event.body).decode() if event.body else None


EVENT_FIELDS: Final = (
    _own("seq", "int", "Where the event lies in its ledger, from 0."),
    _own("id", "text", "Its id, which no other event has."),
    _own("kind", "text", "What kind of event it is."),
    _own("run", "text", "The run that it belongs to."),
    _own("attempt", "int", "The attempt of that run, from 1."),
    *_instant("occurred", "When it happened.", of="t_occurred_us"),
    *_instant("observed", "When somebody saw it.", of="t_observed_us"),
    *_instant("recorded", "When the ledger wrote it.", of="t_recorded_us"),
    *_CLASSIFIED,
    _own("role", "text", "Its part in the failure: initiating, cascade, ..."),
    _own("incident", "text", "The incident that it declares to belong to."),
    Field("ranks", "ints", "", "The ranks concerned, from 0.", lambda e: list(e.ranks)),
    Field("domain", "texts", "", "Fault domains that it touched, as `kind:name`.", _domains),
    _own("devices", "int", "Accelerators concerned.", unit="device"),
    *_PHASES,
    *_COST,
    *_verification(),
    Field("importer", "text", "", "Which importer read it; null for an event of our own.", lambda e: e.source and e.source.importer),
    Field("body", "text", "", "The free part as JSON; a float in it is hex text.", _body),
)  # fmt: skip

INCIDENT_FIELDS: Final = (
    _own("id", "text", "Its id."),
    _own("run", "text", "The run that it stopped."),
    _own("attempt", "int", "The attempt of that run, from 1."),
    *_CLASSIFIED,
    Field("ranks", "ints", "", "The ranks at fault, from 0.", lambda i: list(i.ranks)),
    Field("domain", "texts", "", "Fault domains that it touched, as `kind:name`.", _domains),
    _own("blast_radius", "int", "How many ranks had to stop or roll back.", unit="ranks"),
    *_instant("onset", "When it began."),
    *_instant("detected", "When it was noticed."),
    *_instant("diagnosed", "When a culprit was named."),
    *_instant("isolated", "When the culprit was removed."),
    *_instant("restored", "When a state was put back."),
    *_instant("verified", "When the restored state was accepted."),
    *_instant("closed", "When it was over; null while it is open."),
    *_PHASES,
    _own("lost_steps", "int", "Steps that had to be done again.", unit="steps"),
    *_COST,
    *_verification(),
    _own("outcome", "text", "`recovered`, `escalated`, or another end; null while it is open."),
    _own("is_open", "truth", "No record closes it: its durations are lower bounds, not values."),
    _own("is_planned", "truth", "A stop that was known in advance."),
    _own("correlated", "truth", "Another member of a shared fault domain failed with it."),
    _own("injected", "truth", "A fault on purpose; null where the records do not say."),
)


def _value(found: Named) -> float | None:
    return None if found.figure.value is None else float(found.figure.value)


def _interval(name: str) -> Any:
    return lambda found: found.figure.interval and getattr(found.figure.interval, name)


def _figure(name: str, kind: str, text: str, *, unit: str = "") -> Field:
    return _own(name, kind, text, unit=unit, of=f"figure.{name}")


def _companions(found: Named) -> list[str]:
    return [companion.name for companion in found.figure.companions]


FIGURE_FIELDS: Final = (
    _own("run", "text", "The run that it is about; null for the fleet."),
    _own("path", "text", "Where it stands in the report: section, part, table, row, column."),
    _own("label", "text", "What a reader sees beside it."),
    _figure("name", "text", "Its own name."),
    Field("value", "float", "in `unit`", "The value; null means *not observed*, which is not zero.", _value),
    _figure("unit", "text", "Unit of value, lo and hi; `us` is microseconds, `ratio` a share of 1."),
    _figure("kind", "text", "measured, reported, modelled, assumed, simulated or projected."),
    Field("lo", "float", "in `unit`", "Lower end of its interval.", _interval("lo")),
    Field("hi", "float", "in `unit`", "Upper end of its interval.", _interval("hi")),
    Field("level", "float", "share of 1", "Coverage of the interval, such as 0.95.", _interval("level")),
    Field("method", "text", "", "How the interval was made.", _interval("method")),
    _figure("n", "int", "How many observations it rests on."),
    _figure("exposure", "text", "What was at risk over what, in words."),
    _figure("source", "text", "The records or the formula that it comes from."),
    Field("assumptions", "texts", "", "What was assumed to get it.", lambda f: list(f.figure.assumptions)),
    Field("kinds", "texts", "", "Every kind that went into it, strongest first.", lambda f: [str(k) for k in f.figure.kinds]),
    *_instant("as_of", "Up to when the records were read.", of="figure.as_of_us"),
    _figure("condition", "text", "Of a projection: under which it would hold."),
    _figure("source_window", "text", "Of a projection: what was observed."),
    _figure("extrapolation", "float", "Of a projection: how far beyond that.", unit="times"),
    Field("companions", "texts", "", "Names of the figures without which it must not be shown.", _companions),
)  # fmt: skip
