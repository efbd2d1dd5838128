"""The table of an import is kept in the ledger, beside the time that the file covers, and never with raw text."""

from __future__ import annotations

from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.store import read_store

LINE = "2026-11-02T03:14:0{n}+00:00 gpu-0007 kernel: NVRM: Xid (PCI:0000:41:00): 94, pid=1, name=x, Contained\n"
BROKEN = "2026-13-45T99:14:07+00:00 gpu-0007 kernel: NVRM: Xid (PCI:0000:41:00): 94, pid=1, secret-word\n"


def kept(ledger):
    with read_store(ledger) as store:
        return [e.body for e in store.events(kinds=["annotation"]) if "coverage" in e.body]


def test_the_ledger_says_how_many_rows_were_read_and_rejected(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("".join(LINE.format(n=n) for n in range(3)) + BROKEN, encoding="utf-8")
    done = import_files([log], ledger=tmp_path / "ledger.db", format="kernel")
    (body,) = kept(tmp_path / "ledger.db")
    rows = done.files[0].quality.to_plain()["rows"]
    assert body["quality"]["rows"] == rows == {"read": 4, "accepted": 3, "ignored": 0, "rejected": 1}  # fmt: skip
    assert [r["count"] for r in body["quality"]["rejected"]] == [1]


def test_what_is_kept_holds_the_place_of_a_rejected_row_and_not_its_text(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(LINE.format(n=1) + BROKEN, encoding="utf-8")
    import_files([log], ledger=tmp_path / "ledger.db", format="kernel")
    (body,) = kept(tmp_path / "ledger.db")
    assert body["quality"]["rejected"][0]["examples"] == [{"at": "kern.log#2"}]
    assert "secret-word" not in str(body)


def test_importing_twice_still_changes_nothing(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(LINE.format(n=1), encoding="utf-8")
    for _ in range(2):
        done = import_files([log], ledger=tmp_path / "ledger.db", format="kernel")
    assert done.total.events_new == 0
    assert len(kept(tmp_path / "ledger.db")) == 1
