"""A report is about the contract under which the run was started, unless another one is named."""

import json

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
    assert cli("recompute", tmp_path / "bundle").exit_code == 0
