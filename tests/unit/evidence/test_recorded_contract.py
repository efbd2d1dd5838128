"""A report is about the contract under which the run was started, unless another one is named."""

import json
import shutil

import pytest

from lastgood.base.clock import SystemClock
from lastgood.contract.starter import starter_text
from lastgood.ledger.event import new_event
from lastgood.ledger.store import open_store

NAME = "only-in-this-test"


def ledger_of_a_run(folder, *, contract):
    path = folder / "ledger.db"
    clock = SystemClock()
    with open_store(path) as store:
        store.append([
            new_event("run.start", clock=clock, run="r1", body={"world": 2, "contract": contract}),
            new_event("run.end", clock=clock, run="r1", body={"exit_code": 0}),
        ])  # fmt: skip
    return path


def own_contract():
    lines = starter_text().splitlines()
    index = next(i for i, line in enumerate(lines) if line.strip().startswith("name:"))
    indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
    lines[index] = f"{indent}name: {NAME}"
    return "\n".join(lines) + "\n"


def test_the_report_uses_the_contract_of_the_run(cli, tmp_path):
    done = cli("report", ledger_of_a_run(tmp_path, contract=own_contract()), "--json")
    assert done.exit_code == 0
    assert NAME in done.stdout


def test_without_one_the_defaults_apply(cli, tmp_path):
    done = cli("report", ledger_of_a_run(tmp_path, contract=None), "--json")
    assert NAME not in done.stdout
    assert "assumed" in json.dumps(done.json)


def test_a_bundle_carries_it_as_it_was_written(cli, tmp_path):
    ledger = ledger_of_a_run(tmp_path, contract=own_contract())
    assert cli("bundle", ledger, "-o", tmp_path / "bundle").exit_code == 0
    assert (tmp_path / "bundle" / "contract.yaml").read_text() == own_contract()
    done = cli("recompute", tmp_path / "bundle")
    assert done.exit_code == 0
    assert "note: the contract is, byte for byte, the one that the run's start has" in done.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text + "# agreed with everybody\n", "comments or layout differ"),
        (lambda text: text.replace(NAME, "another"), "another than the one in the run's start"),
    ],
)
def test_whoever_edits_the_contract_and_its_hash_is_told_of(cli, tmp_path, change, told):
    """An edit without the hash is found by the manifest; with it, no figure shows a comment."""
    ledger = ledger_of_a_run(tmp_path, contract=own_contract())
    file = tmp_path / "edited.yaml"
    file.write_text(change(own_contract()))
    assert cli("bundle", ledger, "--contract", file, "-o", tmp_path / "bundle").exit_code == 0
    done = cli("recompute", tmp_path / "bundle")
    assert done.exit_code == 0
    assert told in done.stdout
    shutil.copy(file, tmp_path / "bundle" / "contract.yaml")
    with (tmp_path / "bundle" / "contract.yaml").open("a") as more:
        more.write("# and once more\n")
    assert cli("recompute", tmp_path / "bundle").exit_code == 1
