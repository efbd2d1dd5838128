"""docs/ledger.md: every import command in it runs on a sample, and its table has every format."""

import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from lastgood.ledger.importers.mapping import load_mapping
from lastgood.ledger.importers.registry import FORMATS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
SAMPLES = ROOT / "tests" / "samples" / "import"
IMPORTS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if "lastgood import" in line
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    for name, sample in {
        "kern.log": "kern.log",
        "sacct.psv": "sacct_requeue.psv",
        "incidents.md": "incidents.md",
    }.items():
        shutil.copy(SAMPLES / sample, tmp_path / name)
    (tmp_path / "dmesg.txt").write_text("[   12.5] NVRM: Xid (PCI:0000:41:00): 94, pid=1, name=x\n")
    table = {
        "mapping": "xid",
        "version": "site-1",
        "source": "us",
        "rows": {"94": {"class": "fail_stop"}},
    }
    (tmp_path / "my-xid.json").write_text(json.dumps(table))
    return tmp_path


def test_there_are_commands_to_run():
    assert len(IMPORTS) >= 9


def test_what_has_no_year_and_no_time_of_its_own_is_piped_with_a_year():
    """A kernel log's lines have no year, and standard input has no time that it could come from."""
    assert all("--year" in line for line in IMPORTS if "kernel -" in line)


@pytest.mark.parametrize("line", IMPORTS)
def test_every_import_on_the_page_runs_and_takes_rows(line, cli, folder, monkeypatch):
    before, _, after = line.partition("| ")
    command = after or line
    if after:
        (name,) = [word for word in shlex.split(before) if (folder / word).exists()]
        data = (folder / name).read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    words = shlex.split(command)[1:]
    result = cli(*words, *([] if "--json" in words else ["--json"]))
    assert result.exit_code == 0, result.stderr
    if "--formats" not in words:
        assert all(file["quality"]["rows"]["accepted"] for file in result.json["files"])


def test_the_table_of_formats_has_all_of_them():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(FORMATS)


def test_the_own_table_of_the_page_is_named_in_the_events(cli, folder):
    (line,) = [line for line in IMPORTS if "--mapping" in line]
    assert cli(*shlex.split(line)[1:]).exit_code == 0
    from lastgood.ledger.store import read_store

    with read_store(folder / "own.db") as store:
        made_by = {event.body["mapping"] for event in store.events(kinds=["observation"])}
    assert load_mapping("xid", folder / "my-xid.json").id in made_by
