"""Times of a host whose clock stands apart, set right: wall time across hosts would be made of the difference.

What the host wrote stays in the ledger as it is; an event of the same content with the time on the clock of the host of
rank 0 supersedes it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lastgood.ledger.event import ClockStamp, Event, Links
from lastgood.ledger.importers.importer import Context
from lastgood.ledger.importers.source import Item
from lastgood.ledger.importers.spool_jobs import KEPT_MAX, Attempt, Spools


def set_right(context: Context, spools: Spools, attempt: Attempt) -> Iterator[Event]:
    """The events of each such host of an attempt, once it has ended and its offset is final."""
    for name in sorted(attempt.hosts):
        offset_us = spools.off_us(attempt, name)
        events = list(spools.kept(attempt, name)) if offset_us else []
        if not events:
            continue
        uncertain_us = spools.clock(attempt, name).uncertain_us
        context.clock_correction(
            len(events), offset_us, f"{name} stands {offset_us / 1e6:+.1f} s off, +-{uncertain_us / 1e6:.3f} s"
        )  # fmt: skip
        if spools.kept_count > KEPT_MAX:
            context.note(f"only the first {KEPT_MAX:,} events were set right")
        for event in events:
            yield _moved(context, event, offset_us, uncertain_us)


def _moved(context: Context, event: Event, offset_us: int, uncertain_us: int) -> Event:
    fresh = context.event(event.kind, row=Item(0, b"", None), identity=("set right", event.id), t_us=None)  # fmt: skip
    old = event.clock or ClockStamp()
    return msgspec.structs.replace(
        event,
        id=fresh.id,
        t_occurred_us=None if event.t_occurred_us is None else event.t_occurred_us - offset_us,
        t_observed_us=None if event.t_observed_us is None else event.t_observed_us - offset_us,
        clock=msgspec.structs.replace(old, uncertainty_us=uncertain_us),
        body=_shifted(event.body, offset_us),
        links=Links(incident=event.incident, supersedes=event.id),
    )


def _shifted(body: dict, offset_us: int) -> dict:
    """The step times in it too."""
    steps = body.get("steps")
    if not isinstance(steps, dict) or not isinstance(steps.get("ended_us"), list):
        return body
    ended = [t - offset_us if isinstance(t, int) else t for t in steps["ended_us"]]
    began = steps.get("began_us")
    began = {"began_us": began - offset_us} if isinstance(began, int) else {}
    return {**body, "steps": {**steps, **began, "ended_us": ended}}
