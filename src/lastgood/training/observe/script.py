"""Does a script call `lastgood.start`? Read from its text before anything is started.

The script and the modules beside it that it imports are parsed, never run. A call that is made up at run time, or in
an installed package, is not seen: `--mode` decides then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FILES_MAX = 64
"""Modules of the script's folder that are looked at."""
_START = frozenset({"start"})


def calls_start(script: Path) -> bool:
    """True when the script, or a module of its folder that it imports, calls `lastgood.start`."""
    waiting, seen = [script], set()
    while waiting and len(seen) < FILES_MAX:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_bytes(), filename=str(path))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # Python itself will say it, with the line
        if _calls(tree):
            return True
        waiting += [p for p in _imported(tree, script.parent) if p.is_file()]
    return False


def _calls(tree: ast.Module) -> bool:
    """`lastgood.start(...)` under any name that the module gave to the package or to the function."""
    packages, functions = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {n.asname or n.name for n in node.names if n.name == "lastgood"}
        elif isinstance(node, ast.ImportFrom) and node.module == "lastgood":
            functions |= {n.asname or n.name for n in node.names if n.name in _START}
    return any(
        (isinstance(f, ast.Name) and f.id in functions)
        or (
            isinstance(f, ast.Attribute)
            and f.attr in _START
            and isinstance(f.value, ast.Name)
            and f.value.id in packages
        )
        for f in (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    )


def _imported(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """The files in the folder that an import of this module would read."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [n.name for n in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{n.name}" for n in node.names)]
        for name in names:
            place = folder.joinpath(*name.split("."))
            yield place.with_suffix(".py")
            yield place / "__init__.py"
