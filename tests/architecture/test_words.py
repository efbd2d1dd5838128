"""Words: the names of design 2 and no synonyms, no drawer names, no word that promises the future."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lastgood"
MODULES = sorted(SOURCE.rglob("*.py"))
TEXTS = sorted(
    path
    for folder in (SOURCE, ROOT / "docs", ROOT / "examples")
    for path in folder.rglob("*")
    if path.suffix in {".py", ".md", ".html", ".j2", ".yaml", ".css", ".txt"}
)

# Word in a name -> the word to use.
SYNONYMS = {
    "straggler": "fail_slow, or slow rank",
    "failure_domain": "fault_domain",
    "failuredomain": "FaultDomain",
    "known_good": "last_good",
    "knowngood": "LastGood",
    "heartbeat": "progress",
    "failover": "restore",
    "mtbf": "mean time to interruption",
    "mttf": "mean time to interruption",
    "mttr": "recovery time",
    "uptime": "productive time",
    "blacklist": "quarantine",
    "whitelist": "the list of what is allowed",
    "hot_spare": "spare",
    "root_hash_signed": "tree head",
    "fault_zone": "fault_domain",
}
DRAWERS = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "tools", "stuff"}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def names(path: Path) -> set[str]:
    """Every name that a module defines or uses."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("synonym", list(SYNONYMS))
def test_no_name_is_a_synonym(synonym):
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in names(path)
        if synonym in name.lower()
    ]
    assert found == [], f"write {SYNONYMS[synonym]}"


def test_no_module_or_class_is_a_drawer():
    modules = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if DRAWERS & set(path.relative_to(SOURCE).with_suffix("").as_posix().split("/"))
        or path.stem.startswith("base_")
    ]
    classes = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and re.search(r"(Manager|Helper|Util)s?$", node.name)
    ]
    assert modules + classes == [], "a noun is missing"


def test_no_text_promises_the_future():
    """A projection is conditional. The word may appear only where it is denied."""
    word = "fore" + "cast"
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word in line.lower() and f"never a {word}" not in line.lower()
    ]
    assert found == []


def test_replay_means_a_training_step_and_nothing_else():
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in names(path)
        if re.search(r"replay_?(bundle|ledger|event|log|run)", name, re.IGNORECASE)
    ]
    assert found == [], "a bundle is recomputed, events are folded"


def test_only_the_command_line_prints():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        if not path.is_relative_to(SOURCE / "cli")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert found == []


def test_a_name_that_measures_carries_its_unit():
    """A bare timeout, interval, size or rate does not say of what: 30 seconds, or 30 milliseconds?"""
    bare = re.compile(r"^(timeout|interval|duration|latency|delay)$")
    found = []
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.args, *node.args.kwonlyargs]
                found += [
                    f"{path.relative_to(ROOT)}:{a.lineno} {a.arg}"
                    for a in arguments
                    if bare.match(a.arg)
                    and "Interval" not in ast.unparse(a.annotation or ast.Constant(0))
                ]
    assert found == []
