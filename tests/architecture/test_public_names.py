"""The public names of the top-level package: frozen here, loaded only when they are used."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import lastgood

PUBLIC = [
    "Event",
    "FailureContract",
    "Figure",
    "FigureKind",
    "LastgoodError",
    "Problems",
    "Run",
    "__version__",
    "attach",
    "default_contract",
    "fold_incidents",
    "load_contract",
    "open",
    "open_store",
    "render",
    "start",
    "verify_ledger",
]
NEEDS_TORCH = {"attach", "start", "Run"}


def test_the_public_names_are_these():
    assert sorted(lastgood.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(lastgood))


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - NEEDS_TORCH))
def test_a_public_name_is_the_one_that_its_module_defines(name):
    value = getattr(lastgood, name)
    if name != "__version__":
        module, attribute = lastgood._PUBLIC[name].split(":")
        assert value is getattr(importlib.import_module(module), attribute)
        assert value.__module__ == module
        assert value.__doc__


@pytest.mark.parametrize("name", sorted(NEEDS_TORCH))
def test_the_names_for_a_training_script_exist_where_torch_does(name):
    pytest.importorskip("torch")
    assert callable(getattr(lastgood, name))


def test_a_type_checker_sees_the_same_names():
    """The block under TYPE_CHECKING repeats the table, and must not drift from it."""
    tree = ast.parse(inspect.getsource(lastgood))
    seen = {
        alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lastgood.")
        for alias in node.names
    }
    assert seen == lastgood._PUBLIC


def test_importing_the_package_loads_nothing_else():
    code = (
        "import sys, lastgood; print(*sorted(m for m in sys.modules if m.startswith('lastgood')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["lastgood"]


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lastgood.nothing
