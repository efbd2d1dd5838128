"""No output option of any command writes over a ledger, a script or an input; its own earlier file it does write over."""

from __future__ import annotations

import shutil

import click
import pytest

from lastgood.cli.main import lastgood
from lastgood.ledger.store import open_store
from tests.unit.evidence import sample_run

PLAN = "plan --mtti 3h --checkpoint-cost 1min --detection 1min --recovery 1min"
FILE_OUTPUTS = {
    "lastgood report --html": "report L.db --html {out}",
    "lastgood plan --html": f"{PLAN} --html {{out}}",
    "lastgood verify --save-head": "verify L.db --save-head {out}",
    "lastgood contract init --output": "contract init --force -o {out}",
    "lastgood bundle --output": "bundle L.db -o {out}",
    "lastgood key new --output": "key new --name me -o {out}",
    "lastgood export --output": "export L.db -o {out}",
    "lastgood demo --output": "demo -o {out}",
    "lastgood drill training --output": "drill training -o {out}",
}
FOLDER_OUTPUTS = {
    "lastgood report --charts",
    "lastgood plan --charts",
    "lastgood run --log-dir",  # its files are appended to
    "lastgood run --checkpoint-dir",  # each checkpoint is a new folder
}
READ = {
    "--ledger", "--contract", "--map", "--head", "--sign-key", "--fault-tape", "--mapping", "--spool",
}  # fmt: skip


def path_options():
    pending = [("lastgood", lastgood, click.Context(lastgood, **lastgood.context_settings))]
    while pending:
        path, command, context = pending.pop()
        for parameter in command.params:
            if isinstance(parameter, click.Option) and isinstance(parameter.type, click.Path):
                yield f"{path} {max(parameter.opts, key=len)}"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                pending.append((f"{path} {name}", child, context))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    with open_store(folder / "L.db") as store:
        store.append(sample_run.undisturbed())
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copy(made / "L.db", tmp_path / "L.db")
    (tmp_path / "job.py").write_text("import os\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_option_that_names_a_path_is_known_to_read_or_to_write():
    found = set(path_options())
    written = {name for name in found if name.rsplit(" ", 1)[1] not in READ}
    assert written == set(FILE_OUTPUTS) | FOLDER_OUTPUTS


@pytest.mark.parametrize("target", ["L.db", "job.py"])
@pytest.mark.parametrize("command", FILE_OUTPUTS.values(), ids=FILE_OUTPUTS)
def test_a_ledger_and_a_script_stay_as_they_are(cli, place, command, target):
    before = (place / target).read_bytes()
    result = cli(*command.format(out=target).split())
    assert (result.exit_code, "internal error" in result.stderr) == (2, False), result.stderr
    assert (place / target).read_bytes() == before
    assert [p.name for p in place.iterdir() if p.name.endswith(".part")] == []


def test_an_input_stays_as_it_is_though_it_is_of_the_kind(cli, place):
    assert cli("verify", "L.db", "--save-head", "head.txt").exit_code == 0
    result = cli("verify", "L.db", "--head", "head.txt", "--save-head", "head.txt")
    assert (result.exit_code, "what this command reads" in result.stderr) == (2, True)
    assert "name another file, such as head-2.txt" in result.stderr


def test_a_link_to_the_ledger_is_the_ledger(cli, place):
    (place / "page.html").symlink_to("L.db")
    assert cli("report", "L.db", "--html", "page.html").exit_code == 2
    assert (place / "page.html").is_symlink()


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("report L.db --html {out}", "p.html"),
        (f"{PLAN} --html {{out}}", "p.html"),
        ("verify L.db --save-head {out}", "h"),
        ("contract init --force -o {out}", "c.yaml"),
    ],
)
def test_lastgoods_own_file_is_written_again(cli, place, command, out):
    words = command.format(out=out).split()
    assert [cli(*words).exit_code, cli(*words).exit_code] == [0, 0]


def test_an_empty_file_that_somebody_made_for_it_is_filled(cli, place):
    (place / "p.html").touch()
    assert cli("report", "L.db", "--html", "p.html").exit_code == 0
    assert b"<html" in (place / "p.html").read_bytes()


@pytest.mark.parametrize("out", [".", "", "folder"])
@pytest.mark.parametrize("command", ["report L.db --html", f"{PLAN} --html", "verify L.db --save-head"])  # fmt: skip
def test_a_folder_where_a_file_is_meant_gets_a_name_that_can_be_typed(cli, place, command, out):
    (place / "folder").mkdir()
    result = cli(*command.split(), out)
    example = "head.txt" if "head" in command else "report.html"
    suggested = f"folder/{example}" if out == "folder" else example
    assert result.exit_code == 2
    assert f"name a file in it, such as {suggested}\n" in result.stderr
    assert ".part" not in result.stderr


@pytest.mark.parametrize("command", ["report L.db --charts {out}", f"{PLAN} --charts {{out}}"])
def test_a_file_of_another_kind_among_the_charts_stays(cli, place, command):
    words = command.format(out="charts").split()
    first = cli(*words)
    assert first.exit_code == 0
    drawn = sorted((place / "charts").iterdir())
    assert drawn
    assert cli(*words).exit_code == 0
    drawn[-1].write_text("my notes")
    assert cli(*words).exit_code == 2
    assert drawn[-1].read_text() == "my notes"


def test_a_terminal_or_pipe_takes_what_is_written(cli, place):
    assert cli("verify", "L.db", "--save-head", "/dev/null").exit_code == 0


def test_a_folder_with_somebodys_ledger_is_no_folder_of_drills(cli, place):
    (place / "mine").mkdir()
    shutil.copy(place / "L.db", place / "mine" / "ledger.db")
    result = cli("drill", "training", "-o", "mine")
    assert (result.exit_code, "no folder of drills" in result.stderr) == (2, True)
    assert [p.name for p in (place / "mine").iterdir()] == ["ledger.db"]
