"""The name of a ledger is bytes to SQLite: any that the kernel takes, and nothing in it is an option."""

from __future__ import annotations

import os
from pathlib import Path

from lastgood.ledger.raw_store import open_raw_store
from lastgood.ledger.store import open_store, read_store
from tests.unit.ledger.cases import some_events


def test_a_ledger_may_have_any_name(tmp_path):
    for name in (b"\xff\xfe.db", b"a?mode=ro#%41 b.db", b"file:x.db"):
        path, copy = (tmp_path / os.fsdecode(head + name) for head in (b"", b"copy-"))
        with open_store(path) as store:
            store.append(some_events(2))
            store.copy_to(copy)
        open_raw_store(path).close()
        for ledger in (path, copy, Path(f"/{path}")):
            with read_store(ledger) as store:
                assert store.size == 2
        with open_store(Path(f"/{path}")) as store:
            assert store.size == 2
    assert {os.fsencode(path.name).removesuffix(b".raw") for path in tmp_path.iterdir()} == {
        head + name
        for name in (b"\xff\xfe.db", b"a?mode=ro#%41 b.db", b"file:x.db")
        for head in (b"", b"copy-")
    }
