"""A ledger that cannot be written: said once, waited for, and escalated before memory runs out."""

from types import SimpleNamespace

import pytest

from lastgood.ledger.writer import Outage
from lastgood.training.supervising import ledger_watch
from lastgood.training.supervising.ledger_watch import LedgerWatch


class Supervisor:
    def __init__(self):
        self.time_us = 1_000_000
        self.events, self.ended = [], []
        self.contract = None
        self.options = SimpleNamespace(ledger="ledger.db")
        self.ending = SimpleNamespace(
            end_for=lambda reason, code: self.ended.append((reason, code))
        )
        self.recorder = SimpleNamespace(
            outage=None,
            wall_us=lambda us: us + 7,
            record=lambda kind, **fields: self.events.append((kind, fields["body"])),
        )

    def now_us(self):
        return self.time_us


@pytest.fixture
def supervisor(monkeypatch):
    made = Supervisor()
    made.told = []
    monkeypatch.setattr(
        ledger_watch, "notify", lambda _c, _r, escalation, ledger: made.told.append(escalation)
    )
    return made


def outage(count):
    return Outage(since_us=500_000, reason="the disk is full", held_count=count)


def test_nothing_is_said_while_all_is_well(supervisor):
    LedgerWatch(supervisor).poll()
    assert supervisor.events == []


def test_begin_and_end_of_an_outage_are_said_once_each(supervisor):
    watch = LedgerWatch(supervisor)
    supervisor.recorder.outage = outage(3)
    watch.poll()
    supervisor.recorder.outage = outage(9)
    watch.poll()
    supervisor.recorder.outage = None
    supervisor.time_us = 4_500_000
    watch.poll()
    watch.poll()
    (begun, ended) = [body for _, body in supervisor.events]
    assert begun["text"].startswith(
        "the ledger cannot be written: the disk is full; training goes on"
    )
    assert begun["since_us"] == ended["since_us"] == 500_007
    assert (ended["lasted_us"], ended["held_count"]) == (4_000_000, 9)
    assert supervisor.ended == []


def test_too_many_events_in_memory_end_the_run_in_order_and_call_a_person(supervisor):
    watch = LedgerWatch(supervisor, held_count_max=10)
    for count in (9, 10, 11, 12):
        supervisor.recorder.outage = outage(count)
        watch.poll()
    assert supervisor.ended == [("the ledger cannot be written and 10 events wait in memory", 93)]
    assert [kind for kind, _ in supervisor.events] == ["annotation", "escalate"]
    assert len(supervisor.told) == 1


def test_a_second_outage_is_said_again(supervisor):
    watch = LedgerWatch(supervisor)
    for _ in range(2):
        supervisor.recorder.outage = outage(1)
        watch.poll()
        supervisor.recorder.outage = None
        watch.poll()
    assert len(supervisor.events) == 4
