"""docs/notebook.md: its blocks run as one program on two ledgers, and its tables name what the code has."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

import lastgood
from lastgood.evidence.opened import Opened
from lastgood.evidence.row_fields import FIGURE_FIELDS
from lastgood.ledger.store import open_store
from tests.unit.evidence import sample_run
from tests.unit.evidence.sample_run import FAULTS

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two ledgers where the demo would have put them: six faults, so that a median has its interval, and five."""
    folder = tmp_path_factory.mktemp("notebook")
    for name, faults in (("demo", (*FAULTS, FAULTS[0])), ("demo-2", FAULTS)):
        (folder / name).mkdir()
        with open_store(folder / name / "ledger.db") as store:
            store.append(sample_run.five_faults(faults=faults[:5], run=name))
            if len(faults) > len(FAULTS):
                record = sample_run.Recorder(events=[], run=name, now_us=sample_run.START_US + 10**9)  # fmt: skip
                record.incident(faults[5], 6)
                store.append([with_new_id(event) for event in record.events])
    return folder


def with_new_id(event):
    import msgspec

    return msgspec.structs.replace(event, id=f"{event.id}-more")


@pytest.fixture(scope="module")
def ran(place):
    """What the page's program leaves behind, and what it printed."""
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(printed):
        for number, block in enumerate(BLOCKS, start=1):
            exec(compile(block, f"docs/notebook.md, block {number}", "exec"), names)
    return names, printed.getvalue()


def test_the_blocks_run_as_one_program(ran, place):
    names, printed = ran
    assert len(BLOCKS) >= 7
    assert "SIGKILL" not in printed
    assert "snapshot_mismatch" in printed
    assert (place / "incidents.svg").read_text(encoding="utf-8").startswith("<svg")
    assert names["ettr"].kind == "measured"


def test_the_medians_on_the_page_carry_their_intervals(ran):
    """Six recoveries of 355 to 640 ms: the median's interval is the smallest and the largest."""
    _, printed = ran
    assert "430 ms measured (" in printed
    assert "to 640 ms, 95 %, order statistics" in printed
    assert (
        "5 are too few" not in printed
    )  # the words stand in the source, which `render` does not print


def test_reading_changed_nothing(ran, place):
    assert {path.name for path in (place / "demo").iterdir()} == {"ledger.db"}


def test_the_comparison_joins_numbers_of_one_place(ran):
    names, _ = ran
    assert len(names["shown"]) >= 6
    assert set(names["shown"]["unit"]) >= {"ratio", "us"}


def test_the_questions_of_the_page_are_those_of_the_code():
    for name, written in re.findall(r"`evidence\.(\w+)\((.*?)\)` \|", PAGE):
        parameters = list(inspect.signature(getattr(Opened, name)).parameters.values())[1:]
        assert written == ", ".join(f"{p.name}={p.default}" for p in parameters)


def test_every_column_of_figures_is_explained():
    table = PAGE.partition("| column | says |")[2].partition("\n\n")[0]
    written = set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|$", "|", table, flags=re.MULTILINE)))
    assert written == {field.name for field in FIGURE_FIELDS} - {"name"} | {"name"} & written


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("lastgood")])
def test_a_command_of_the_page_runs(line, cli, place, monkeypatch):
    """The demo itself needs a minute and has its own test (tests/fault/test_demo.py); here its options are read."""
    monkeypatch.chdir(place)
    words = line.split()[1:]
    if words[0] == "demo":
        assert cli("demo", "--help").exit_code == 0
        assert "-o, --output" in cli("demo", "--help").stdout
        return
    assert cli(*words).exit_code in {0, 1, 3}


def test_the_extra_that_the_page_names_has_what_it_needs():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"pyarrow", "pandas"} <= set(project["optional-dependencies"]["analysis"])
    assert lastgood.open.__module__ == "lastgood.training.report.opening"
