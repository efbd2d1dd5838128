"""Stopped channels (Xid 43, 45): the consequence of another Xid of their host, or alone, and then a failure.

Both numbers only say that a channel was stopped after something else. Near another Xid of the host they are its
cascade or its teardown, as the table has it. Alone they stay visible as a failure of unknown cause, because then
nobody has said why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from lastgood.contract.taxonomy import Role
from lastgood.ledger.event import Event, time_of
from lastgood.ledger.importers.importer import Context

NEAR_US = 60_000_000
"""A stopped channel within a minute of another Xid of its host is taken as its consequence. Our rule, not NVIDIA's."""
PENDING_COUNT_MAX = 20_000
HOST_COUNT_MAX = 100_000
_SYMPTOMS = frozenset(("43", "45"))


def settle(events: Iterable[Event], context: Context) -> Iterator[Event]:
    """Decides for each stopped channel (43, 45) whether another Xid of its host is near: before it, or soon after.

    Such an event waits until its host's log has passed the window. Alone, its role is unknown and it counts.
    """
    waiting: dict[str, deque[Event]] = {}
    last_us: dict[str, int] = {}  # host -> time of its newest other Xid
    waiting_count = lone_count = 0
    for event in events:
        now_us, host = time_of(event), _host(event)
        queue = (
            waiting.setdefault(host, deque()) if len(waiting) < HOST_COUNT_MAX else deque[Event]()
        )
        while queue and (time_of(queue[0]) < now_us - NEAR_US or waiting_count > PENDING_COUNT_MAX):
            waiting_count -= 1
            lone_count += 1
            yield _alone(queue.popleft())
        if event.body.get("code") not in _SYMPTOMS:
            if "code" in event.body and event.role != Role.CONTEXT:
                last_us[host] = now_us
                waiting_count -= len(queue)
                yield from queue
                queue.clear()
            yield event
        elif abs(now_us - last_us.get(host, -2 * NEAR_US)) <= NEAR_US:
            yield event
        elif host in waiting:
            queue.append(event)
            waiting_count += 1
        else:
            lone_count += 1
            yield _alone(event)
    for queue in waiting.values():
        lone_count += len(queue)
        yield from map(_alone, queue)
    if lone_count:
        context.note(
            f"stopped channels (Xid 43, 45) without another Xid of their host within a minute: {lone_count:,}; "
            "they count as failures of unknown cause"
        )


def _alone(event: Event) -> Event:
    return msgspec.structs.replace(event, role=str(Role.UNKNOWN), body={**event.body, "lone": True})


def _host(event: Event) -> str:
    return event.domain[0].id if event.domain else ""
