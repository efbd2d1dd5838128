"""One record of the ledger: what happened, when, to what, and how that is known.

Three times are kept apart: when it happened, when somebody saw it, when the ledger wrote it. Class, symptom, cause
and how well the cause is known are four fields, because one symptom has several causes. Null means *not known* and
is left out of the bytes; zero means zero. Fields are only ever added: what a newer writer put into an event stays
in it when an older reader re-encodes it (`extra`). A float in the body travels as hex text (`body_float` reads it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec

from lastgood.base.canonical import (
    canonical_bytes,
    float_from_hex,
    is_exactly_plain,
    plain_bytes,
    quick_bytes,
    with_hex_floats,
)
from lastgood.base.clock import Clock, boot_id, clock_id
from lastgood.base.errors import BadInput, LedgerError
from lastgood.base.utf8_text import utf8_text
from lastgood.contract.taxonomy import AXES, TAXONOMY_ID

SCHEMA = "lastgood.event/1"
_SCHEMA_WRITTEN = "".join([*SCHEMA])

_EXTRA = "\x7fextra"
"""Name of the carrier of unknown fields inside msgspec; it never reaches the bytes."""
_NESTED = ("clock", "verification", "source", "links")


class _Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A struct that keeps what it does not know in `extra`."""

    extra: dict[str, Any] = msgspec.field(name=_EXTRA, default_factory=dict)


class Domain(_Record):
    """A fault domain that the event touched: one of the taxonomy's kinds, and its name."""

    kind: str
    id: str

    def __hash__(self) -> int:
        """By kind and id, so that domains can be counted."""
        return hash((self.kind, self.id))


class ClockStamp(_Record):
    """Whose clock gave the times, and how far it may be off."""

    id: str | None = None
    source: str | None = None
    """`host`, `server`, or `inferred` (a log line without a year or a zone)."""
    uncertainty_us: int | None = None
    boot_id: str | None = None


class Verification(_Record):
    """How a restored state was checked: the test, its result, and the digest of the evidence."""

    test: str
    result: str
    evidence: str | None = None


class Source(_Record):
    """Where an imported event was read."""

    importer: str | None = None
    version: str | None = None
    locator: str | None = None
    """Such as `slurm.log#1841`."""
    raw_sha256: str | None = None


class Links(_Record):
    """Other events and incidents that this one belongs to."""

    incident: str | None = None
    parent: str | None = None
    supersedes: str | None = None
    """Id of the event that this one corrects; nothing is edited."""


class Event(_Record):
    """One normalised record. All times are int64 microseconds UTC, all durations microseconds.

    Ranks are 0-based, attempts 1-based. `id` makes an append idempotent; `seq` and `t_recorded_us` are given by
    the ledger that holds the event.
    """

    kind: str
    id: str
    schema: str = SCHEMA
    seq: int | None = None
    t_occurred_us: int | None = None
    t_observed_us: int | None = None
    t_recorded_us: int | None = None
    clock: ClockStamp | None = None
    class_: str | None = msgspec.field(name="class", default=None)
    taxonomy: str | None = None
    symptom: str | None = None
    cause: str | None = None
    cause_status: str | None = None
    role: str | None = None
    domain: tuple[Domain, ...] = ()
    run: str | None = None
    attempt: int | None = None
    ranks: tuple[int, ...] = ()
    devices: int | None = None
    """Accelerators concerned; in exposure events, how many came to risk or left it."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    topology: str | None = None
    """Digest of a stored topology document."""
    detect_us: int | None = None
    diagnose_us: int | None = None
    isolate_us: int | None = None
    recover_us: int | None = None
    verify_us: int | None = None
    checkpoint_age_us: int | None = None
    lost_device_us: int | None = None
    first_divergent_step: int | None = None
    verification: Verification | None = None
    source: Source | None = None
    links: Links | None = None
    body: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def incident(self) -> str | None:
        """Id of the incident that the event belongs to, if any was declared."""
        return self.links.incident if self.links else None


_DECODER = msgspec.json.Decoder(Event)
_PARTS: dict[str, type[_Record]] = {
    "clock": ClockStamp,
    "verification": Verification,
    "source": Source,
    "links": Links,
}
_KNOWN = {
    kind: frozenset(kind.__struct_encode_fields__) - {_EXTRA}
    for kind in (Event, Domain, *_PARTS.values())
}


def new_event(kind: str, *, clock: Clock, **fields: Any) -> Event:
    """A live event: now unless told otherwise, with a fresh time-ordered id.

    `fields` are the fields of `Event` under their own names (`class_` or `class`); structs may be given as plain
    mappings, and floats in the body become hex text. Words of the taxonomy are checked here, once, so that a typo
    stops its writer and not its reader.

    Raises:
        BadInput: A field that does not exist, a wrong type, or a word that taxonomy v1 does not have.
    """
    now_us = clock.wall_us()
    if "class_" in fields:
        fields["class"] = fields.pop("class_")
    content: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
    content["kind"] = str(kind)
    content.setdefault("id", new_id(now_us))
    content.setdefault("t_observed_us", now_us)
    content.setdefault("t_occurred_us", content["t_observed_us"])
    content.setdefault("clock", {"id": clock_id(), "source": "host", "boot_id": boot_id()})
    if "incident" in content:
        content["links"] = {**_plain(content.get("links", {})), "incident": content.pop("incident")}
    if any(content.get(axis) for axis in ("class", "symptom", "cause", "role")):
        content.setdefault("taxonomy", TAXONOMY_ID)
    plain = cast("dict[str, Any]", with_hex_floats(_plain(content)))
    _check_words(plain)
    unknown = plain.keys() - _KNOWN[Event]
    if unknown:
        raise BadInput(
            "an event has no such field",
            where=str(kind),
            found=", ".join(sorted(unknown)),
            needs="a field of the event, or a key inside body",
        )
    try:
        return msgspec.convert(plain, Event)
    except msgspec.ValidationError as error:
        raise BadInput(
            "an event field has the wrong form", where=str(kind), found=str(error)
        ) from error


def new_id(now_us: int) -> str:
    """A fresh id whose text order is its time order: 48 bits of milliseconds, then 74 random ones (UUID version 7)."""
    random = int.from_bytes(os.urandom(10), "big")
    value = ((now_us // 1000) & (2**48 - 1)) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def content_id(*, source: str, locator: str, raw: bytes) -> str:
    """The id of an imported event: the same line of the same file gives the same id, so a second import adds nothing."""
    digest = sha256(
        canonical_bytes(["lastgood/import/1", source, locator, sha256(raw).hexdigest()])
    )
    return "c-" + digest.hexdigest()[:40]


def encode_event(event: Event) -> bytes:
    """The canonical bytes of an event: what is stored and hashed."""
    if _has_parts(event) and is_plain_record(event):
        # Defaults are left out, and recognised by identity: the schema is written when it is another equal text.
        data = quick_bytes(msgspec.structs.replace(event, schema=_written(event.schema)))
        if data is not None:
            return data
    return plain_bytes(event_to_plain(event))


def _has_parts(event: Event) -> bool:
    """True when the nested parts are the structs that they should be; no checker stops a writer."""
    parts = (event.clock, event.verification, event.source, event.links)
    return type(event.domain) is tuple and all(
        part is None or isinstance(part, _Record) for part in (*parts, *event.domain)
    )


def is_plain_record(record: _Record) -> bool:
    """True when msgspec writes the record as `event_to_plain` says it: exact types, and nothing of a newer writer."""
    if record.extra != {}:
        return False
    for value in msgspec.structs.astuple(record):
        if value is None or type(value) is str:
            continue
        if isinstance(value, _Record):
            if not is_plain_record(value):
                return False
        elif type(value) is tuple:
            for item in value:
                is_record = isinstance(item, _Record)
                if not (is_plain_record(item) if is_record else is_exactly_plain(item)):
                    return False
        elif not is_exactly_plain(value, depth=1):
            return False
    return True


def _written(schema: str) -> str:
    """The same text as another object than the default."""
    return _SCHEMA_WRITTEN if schema == SCHEMA else schema


def event_to_plain(event: Event) -> dict[str, Any]:
    """The event as JSON-like data, unknown fields in their places."""
    plain = msgspec.to_builtins(event)
    plain["schema"] = event.schema
    plain.update(plain.pop(_EXTRA, ()))
    for part in (*(plain.get(name) for name in _NESTED), *plain.get("domain", ())):
        if part:
            part.update(part.pop(_EXTRA, ()))
    return plain


def decode_event(data: bytes) -> Event:
    """The event that these bytes hold, with what a newer writer added kept in `extra`."""
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        pass  # fields that this version does not know
    except msgspec.DecodeError as error:
        raise LedgerError("not an event", found=str(error), needs="JSON") from error
    plain = msgspec.json.decode(data)
    if not isinstance(plain, dict):
        raise LedgerError("not an event", found=type(plain).__name__, needs="a JSON object")
    try:
        for name, kind in _PARTS.items():
            if isinstance(plain.get(name), dict):
                plain[name] = _with_extra(plain[name], kind)
        if isinstance(plain.get("domain"), list):
            plain["domain"] = [_with_extra(item, Domain) for item in plain["domain"]]
        return msgspec.convert(_with_extra(plain, Event), Event)
    except msgspec.ValidationError as error:
        raise LedgerError(
            "not an event", found=str(error), needs=f"the fields of {SCHEMA}"
        ) from error


def body_float(event: Event, key: str) -> float | None:
    """A number of the body as a float, whether it was stored as hex text or as an integer; None when absent."""
    value = event.body.get(key)
    if isinstance(value, str):
        return float_from_hex(value)
    return None if value is None else float(value)


def _with_extra(plain: Any, kind: type[_Record]) -> Any:
    if not isinstance(plain, dict):
        return plain
    known = _KNOWN[kind]
    unknown = {key: value for key, value in plain.items() if key not in known}
    if not unknown:
        return plain
    return {key: value for key, value in plain.items() if key in known} | {_EXTRA: unknown}


def _plain(value: Any) -> Any:
    """Structs inside the arguments become mappings, and text what UTF-8 can hold; everything else stays as it is."""
    # Most values are these, and asking the abstract class of mappings costs more than all the rest.
    if type(value) is str:
        return utf8_text(value)
    if type(value) is int:
        return value
    if isinstance(value, msgspec.Struct):
        plain = msgspec.to_builtins(value)
        plain.update(plain.pop(_EXTRA, ()))
        return plain
    if isinstance(value, Mapping):
        return {
            utf8_text(key) if type(key) is str else key: _plain(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    return value


def _check_words(plain: Mapping[str, Any]) -> None:
    said = [("event", plain.get("kind"))]
    said += [
        (axis, plain.get(axis)) for axis in ("class", "symptom", "cause", "cause_status", "role")
    ]
    said += [
        ("domain", item.get("kind")) for item in plain.get("domain", ()) if isinstance(item, dict)
    ]
    for axis, word in said:
        if word is not None and word not in _WORDS[axis]:
            raise BadInput(
                f"taxonomy v1 has no such {axis}",
                found=repr(word),
                needs=" | ".join(sorted(_WORDS[axis])),
            )


_WORDS = {axis: frozenset(str(word) for word in words) for axis, words in AXES.items()}


def time_of(event: Event) -> int:
    """When it happened, else when it was seen, else when it was written; 0 when nobody said."""
    for stamp_us in (event.t_occurred_us, event.t_observed_us, event.t_recorded_us):
        if stamp_us is not None:
            return stamp_us
    return 0


def in_effect(events: Iterable[Event]) -> list[Event]:
    """The events without those that a later one supersedes, in the order of time and then of id.

    Arrival order does not matter: a late event, or a shuffled import, gives the same list.
    """
    everything = list(events)
    replaced = {e.links.supersedes for e in everything if e.links and e.links.supersedes}
    return sorted((e for e in everything if e.id not in replaced), key=lambda e: (time_of(e), e.id))
