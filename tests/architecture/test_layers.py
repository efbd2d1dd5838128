"""The house of design 1: which package may import which, and who may touch which library."""

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "lastgood"
MODULES = sorted(SOURCE.rglob("*.py"))

# Library -> the only places that may import it. A missing library may be imported anywhere.
ONLY_IN = {
    "torch": ["training/rank/", "training/examples/"],  # what runs inside a rank
    "xxhash": ["training/rank/", "training/"],
    "click": ["cli/"],
    "rich": ["cli/", "evidence/"],
    "jinja2": ["evidence/"],
    "altair": ["evidence/"],
    "vl_convert": ["evidence/"],
    "apsw": ["ledger/", "cli/machine.py"],
    "cryptography": ["ledger/"],
    "pydantic": ["contract/"],
    "yaml": ["contract/"],
    "prometheus_client": ["training/metrics/page.py"],
    "starlette": ["web/"],
    "uvicorn": ["web/"],
    "aiohttp": ["serving/", "agents/"],
    "httpx": [],
    "requests": [],
    "sqlite3": [],
    "argparse": [
        "faults/injector.py",
        "recovery/simulated/__main__.py",
        "training/examples/",
    ],  # processes of their own, below the command line
    "typer": [],
    "pandas": ["evidence/rows.py"],  # what lastgood.open gives, for those who ask for it
    "matplotlib": [],
}
# Only the edge talks to the world: the pure packages hold functions of (state, observation, now).
PURE = ["base/figures.py", "contract/taxonomy.py", "signals/", "recovery/", "sim/"]
WORLDLY = {
    "subprocess",
    "socket",
    "asyncio",
    "threading",
    "multiprocessing",
    "psutil",
    "signal",
    "mmap",
}


@functools.cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Return the line and the full name of everything that a module imports, wherever in the file."""
    return list(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield node.lineno, node.module or ""


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def configuration() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]


def test_the_import_rule_holds():
    script = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [script, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:]


def test_every_package_has_its_place_in_the_house_and_every_place_a_package():
    (contract,) = (c for c in configuration()["contracts"] if c["type"] == "layers")
    assert contract["exhaustive"] is True
    placed = {name for layer in contract["layers"] for name in layer.replace("|", ":").split(":")}
    assert {name.strip() for name in placed} - {"__main__"} == {
        folder.name for folder in SOURCE.iterdir() if folder.is_dir() and list(folder.rglob("*.py"))
    }


def test_no_two_modules_import_each_other_in_a_circle():
    assert "acyclic_siblings" in {contract["type"] for contract in configuration()["contracts"]}


@pytest.mark.parametrize("library", list(ONLY_IN))
def test_a_library_is_imported_only_in_its_place(library):
    found = [
        f"{place(path)}:{line}"
        for path in MODULES
        for line, name in imports(path)
        if name.split(".")[0] == library and not place(path).startswith(tuple(ONLY_IN[library]))
    ]
    assert found == []


def test_pure_packages_do_not_touch_the_world():
    found = [
        f"{place(path)}:{line} {name}"
        for path in MODULES
        if place(path).startswith(tuple(PURE))
        for line, name in imports(path)
        if name.split(".")[0] in WORLDLY
    ]
    assert found == []


def test_everything_outside_the_ranks_loads_without_torch():
    """Also what is imported on the way counts, which a look at one file's imports cannot show."""
    names = [
        "lastgood." + place(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in MODULES
        if not place(path).startswith(("training/rank/", "training/examples/"))
        and path.name != "__main__.py"
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {sorted(names)!r}: importlib.import_module(name.removesuffix('.__init__'))\n"
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:] or "torch was loaded"
