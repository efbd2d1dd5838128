"""One entry of an ml-goodput-measurement log: which keys it may have, and what their values must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lastgood.ledger.importers.times import EARLIEST_US, LATEST_US, RowProblem

_STATES = {
    "tpu_init": "warmup", "training_prep": "warmup", "data_loading": "warmup", "elastic_reinit": "warmup",
    "elastic_wait": "down.schedule",
}  # fmt: skip
"""What a job records begin and end of, and what that time is; a custom event is a stall, as its user declared it."""
CHECKPOINTS = {
    "save": ("checkpoint_manager_blocking_start_time", "checkpoint_manager_blocking_duration_secs", "checkpoint.blocking"),
    "restore": ("checkpoint_manager_start_time", "checkpoint_manager_duration_secs", "restore"),
    "emergency_restore": ("checkpoint_manager_start_time", "checkpoint_manager_duration_secs", "restore"),
}  # fmt: skip
"""Entries of the checkpoint manager: the keys of their begin and length, and what that time is."""


class Section(NamedTuple):
    """Begin or end of a stretch that the job declares."""

    name: str
    state: str
    side: str
    at_us: int


class Facts(NamedTuple):
    """Everything that one entry says, checked: a row is taken whole or not at all."""

    started_us: int | None
    ended_us: int | None
    step: int | None
    step_us: int | None
    sections: tuple[Section, ...]

    @property
    def first_us(self) -> int | None:
        """The earliest of its times."""
        stamps = [self.step_us, self.ended_us, *(s.at_us for s in self.sections)]
        return min((t for t in stamps if t is not None), default=None)


def read_entry(payload: dict[str, Any]) -> Facts:
    """What an entry says.

    Raises:
        RowProblem: One of its values is none that the library writes.
    """
    step_us = _time(payload, "step_start_time")
    return Facts(
        started_us=_time(payload, "job_start_time"),
        ended_us=_time(payload, "job_end_time"),
        step=None if step_us is None else _whole(payload.get("step_count"), "step_count"),
        step_us=step_us,
        sections=(*_sections(payload), *_checkpoint(payload)),
    )


def _sections(payload: dict[str, Any]) -> Iterator[Section]:
    """Each section that the entry begins or ends."""
    for name in (*_STATES, "custom_badput_event"):
        for key, side in ((f"{name}_start_time", "begin"), (f"{name}_end_time", "end")):
            at_us = _time(payload, key)
            if at_us is None:
                continue
            if name in _STATES:
                yield Section(name, _STATES[name], side, at_us)
            else:
                kind = str(payload.get("custom_badput_event_type", "unknown"))[:80]
                yield Section(f"custom: {kind.upper()}", "stall", side, at_us)


def _checkpoint(payload: dict[str, Any]) -> Iterator[Section]:
    """A checkpoint manager's entry: the time for which it held up the job."""
    kind = payload.get("event_type")
    if not isinstance(kind, str) or kind not in CHECKPOINTS:
        return
    start_key, length_key, state = CHECKPOINTS[kind]
    begin_us, length = _time(payload, start_key), payload.get(length_key)
    if begin_us is None or length is None:
        return
    if isinstance(length, bool) or not isinstance(length, int | float) or not 0 <= length < 1e9:
        raise RowProblem(f"{length_key} is no length of time", repr(length)[:40])
    name = f"checkpoint {kind} {payload.get('step', '')}".strip()[:80]
    yield Section(name, state, "begin", begin_us)
    yield Section(name, state, "end", begin_us + round(length * 1_000_000))


def _time(payload: dict[str, Any], key: str) -> int | None:
    """Epoch seconds as microseconds; None when the entry has no such key."""
    value = payload.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RowProblem(f"{key} is no number of seconds", repr(value)[:40])
    try:
        at_us = round(float(value) * 1_000_000)
    except (ValueError, OverflowError) as error:
        raise RowProblem(f"{key} is no number of seconds", repr(value)[:40]) from error
    if not EARLIEST_US <= at_us <= LATEST_US:
        raise RowProblem(f"{key} is no time between 1990 and 2100", repr(value)[:40])
    return at_us


def _whole(value: Any, key: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise RowProblem(f"{key} is no whole number", repr(value)[:40]) from error
    if isinstance(value, bool) or not 0 <= number < 2**53:
        raise RowProblem(f"{key} is no whole number", repr(value)[:40])
    return number
