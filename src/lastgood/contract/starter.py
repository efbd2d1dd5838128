"""The starter contract: what `lastgood contract init` writes, and where the defaults come from.

One text serves both, so that a default and the starter can never say two things.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from lastgood.contract.recovery_table import Layer
from lastgood.contract.yaml_reader import parse_document

_BOUNDARIES: dict[Layer, str] = {
    "training": "a step that all ranks published .. a committed checkpoint",
    "serving": "a request arrives .. its accepted output is complete",
    "agents": "a task is accepted .. its verified goal state is reached",
}


def starter_text() -> str:
    """The commented starter for a training run."""
    return (
        resources.files("lastgood.contract")
        .joinpath("starter_training.yaml")
        .read_text(encoding="utf-8")
    )


def starter_value(kind: Layer) -> dict[str, Any]:
    """The starter as plain values, with the workload kind and its usual boundary."""
    document = parse_document(starter_text().encode(), source="starter")
    document.raise_problems()
    value = document.value
    assert isinstance(value, dict), "the starter is a mapping"
    value["spec"]["workload"] |= {"kind": kind, "boundary": _BOUNDARIES[kind]}
    return value
