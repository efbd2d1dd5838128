"""The bytes that are hashed must never change: a ledger of today is verified by the lastgood of next year."""

from __future__ import annotations

import msgspec

from lastgood.base.clock import ManualClock
from lastgood.ledger.event import ClockStamp, encode_event
from lastgood.ledger.store import open_store
from tests.unit.ledger.cases import START_US
from tests.unit.ledger.story import Story


def test_the_bytes_and_roots_of_a_fixed_story_are_those_of_version_1(tmp_path, golden):
    """Every body, and the root after each event, of a run with one incident. A change here breaks old ledgers."""
    story = Story().start().steps(1, 3, 0)
    story.incident("i1", onset=31, detect=33, diagnose=34, isolate=35, begin=36, restore=37, verify=38, close=39, target=3, versions={"torch": "2.13.0"})  # fmt: skip
    story.tell("annotation", 40, body={"text": "\u00e9 and \U0001f600", "loss": 0.1, "none": None, "deep": [{"b": 1, "a": [True]}]})  # fmt: skip
    stamp = ClockStamp(id="clk-fixed", source="host", boot_id="boot")
    found = []
    with open_store(tmp_path / "ledger.db", clock=ManualClock(START_US)) as store:
        for event in story.events:
            store.append([msgspec.structs.replace(event, clock=stamp)])
            found.append(store.head().root_hex)
        bodies = [encode_event(event).decode() for event in store.events()]
    golden("ledger_format", {"bodies": bodies, "roots": found})
