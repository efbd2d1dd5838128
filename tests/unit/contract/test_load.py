"""A contract file becomes a contract, or every problem with its line."""

import pytest
from lastgood.base.errors import Problems
from lastgood.contract.load import contract_digest, default_contract, load_contract, parse_contract
from lastgood.contract.model import contract_text
from lastgood.contract.starter import starter_text
from lastgood.contract.values import OnTimeout


def test_starter():
    c = parse_contract(starter_text(), needs_duties=True)
    assert c.spec.recovery.detect.timeout_us == 60_000_000
    assert c.spec.recovery.restore.on_timeout is OnTimeout.FALL_BACK
    again = parse_contract(contract_text(c))
    assert again == c
    assert contract_digest(again) == contract_digest(c)
    assert default_contract().is_assumed
    for k in ("serving", "agents"):
        assert default_contract(k).spec.workload.kind == k
