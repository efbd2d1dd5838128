"""docs/frameworks.md: what it quotes is in the examples, and what it tells to type runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
FOLDERS = [ROOT / "examples" / "frameworks", ROOT / "examples" / "torchtitan_style"]
SCRIPTS = {path.name: path for folder in FOLDERS for path in folder.glob("*.py")}
COMMANDS = re.findall(r"^lastgood (run .+)$", PAGE, re.MULTILINE)
SHORT = {"STEPS": "12", "EPOCHS": "1"}


def blocks(section):
    body = section.partition("## ")[0]
    return re.findall(r"```python\n(.*?)```", body, re.DOTALL)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_what_the_page_quotes_of_an_example_is_in_it(name):
    relative = SCRIPTS[name].relative_to(ROOT)
    assert f"(../{relative})" in PAGE, "an example that no page names"
    text = SCRIPTS[name].read_text(encoding="utf-8")
    for block in blocks(PAGE.partition(f"(../{relative})")[2]):
        assert block in text


def test_every_example_has_its_command():
    assert sorted(re.findall(r"\S+\.py", " ".join(COMMANDS))) == sorted(SCRIPTS)


def test_the_five_places_of_the_page_are_those_of_the_example():
    text = SCRIPTS["train.py"].read_text(encoding="utf-8")
    assert set(re.findall(r"# \((\d)\)", text)) == set("12345")
    calls = [
        "lastgood.attach(",
        "attached.step(",
        "attached.section(",
        "seal(",
        "newest_that_holds(",
    ]
    for number, call in enumerate(calls, start=1):
        assert re.search(rf"^{number}\. `[^`]*{re.escape(call)}", PAGE, re.MULTILINE)
        assert call in text


def needs(command):
    frameworks = {"lightning": ("lightning", "pytorch_lightning"), "huggingface": ("transformers",)}
    for word, packages in frameworks.items():
        if word in command and not any(importlib.util.find_spec(p) for p in packages):
            pytest.skip(f"needs {packages[-1]}: pip install -e '.[frameworks]'")


@pytest.mark.nightly
@pytest.mark.fault
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_page_tells_to_type_runs(command, tmp_path):
    needs(command)
    words = [str(SCRIPTS.get(word, word)) for word in command.split()]
    done = subprocess.run(
        [sys.executable, "-m", "lastgood.cli.main", *words, *(["--steps", "12"] if "--folder" in words else [])],
        cwd=tmp_path, env={**os.environ, **SHORT, "LASTGOOD_LEDGER": str(tmp_path / "l.db")},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "incident" not in done.stderr
    assert re.search(r"rank 1: \d+ steps|done: step 12", done.stdout)
