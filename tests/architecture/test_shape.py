"""Length of files and functions, docstrings, and what a package's first file may hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lastgood"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 500
FUNCTION_LINES_MAX = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def at(path: Path, node: Function | ast.ClassDef) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_there_is_something_to_look_at():
    assert len(MODULES) > 20
    assert len(TESTS) > 20


def test_no_file_is_longer_than_the_house_allows():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > LINES_MAX} == {}


def test_no_function_is_longer_than_the_house_allows():
    found = [
        at(path, node)
        for path in MODULES
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert found == []


def test_every_module_has_a_docstring():
    bare = [str(path.relative_to(ROOT)) for path in MODULES if not ast.get_docstring(tree(path))]
    assert bare == []


def public(path: Path) -> Iterator[Function | ast.ClassDef]:
    """Yield the public functions and classes of a module, and the public methods of public classes."""
    for node in tree(path).body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    child
                    for child in node.body
                    if isinstance(child, Function) and not child.name.startswith("_")
                )


def needs_docstring(node: Function | ast.ClassDef) -> bool:
    """A function always; a class unless it is a record whose one or two fields say it all."""
    if isinstance(node, ast.ClassDef):
        return not all(
            isinstance(child, ast.AnnAssign | ast.Expr | ast.Assign) for child in node.body
        )
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    # A setter is described where its property is.
    return not decorators & {"override", "setter"}


def test_every_public_function_has_a_docstring():
    bare = [
        at(path, node)
        for path in MODULES
        for node in public(path)
        if needs_docstring(node) and not ast.get_docstring(node)
    ]
    assert bare == []


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.name == "__init__.py" and path.parent != SOURCE],
    ids=lambda path: str(path.parent.relative_to(SOURCE)),
)
def test_the_first_file_of_a_package_holds_only_its_answer(path):
    """No re-exports: they would make every import pay for every other."""
    (only,) = tree(path).body
    assert isinstance(only, ast.Expr)
    assert len((ast.get_docstring(tree(path)) or "").splitlines()) >= 3
