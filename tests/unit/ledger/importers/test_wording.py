"""Words of a message find their row of a mapping table."""

from __future__ import annotations

import pytest

from lastgood.ledger.importers.mapping import load_mapping
from lastgood.ledger.importers.wording import code_of


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("DRAIN", "planned MAINTENANCE window", "*/maintenance"),
        ("DRAIN", "maint", "*/maint"),
        ("DOWN", "GPU3 has fallen off the bus, xid 79", "*/fallen off the bus"),
        ("DRAIN", "GPUs lost", "*/gpu"),
        ("DRAIN", "very nice of the technician", "DRAIN"),
        ("DRAIN", "unmounted by hand", "DRAIN"),
        ("DRAIN", "", "DRAIN"),
    ],
)
def test_the_longest_word_that_stands_there_decides(state, reason, code):
    assert code_of(load_mapping("slurm-node-state"), state, reason) == code


def test_a_word_of_the_state_itself_comes_before_one_of_any_state():
    mapping = load_mapping("torch-exit")
    assert code_of(mapping, "exception", "RuntimeError: CUDA error: out of memory") == (
        "exception/out of memory"
    )
    assert code_of(mapping, "exception", "ValueError: bad shape") == "exception"
    assert code_of(mapping, "exit", "exit 137") == "exit"
