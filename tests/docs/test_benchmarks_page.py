"""The page of benchmarks: its tables are those of the raw rows, and every command on it can be typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python (bench/\S+)(.*)$", PAGE, re.MULTILINE)


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_tables_are_those_of_the_raw_rows():
    done = run("bench/tables.py", "--check")
    assert done.returncode == 0, f"type: python bench/tables.py {done.stderr}"


def test_a_table_of_other_rows_is_noticed():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import tables
    finally:
        sys.path.pop(0)
    page = tables.filled(PAGE)
    assert page == PAGE
    other = re.sub(r"\| a step \| \d+", "| a step | 1", PAGE)
    assert other != PAGE == tables.filled(other)


@pytest.mark.parametrize("script", sorted({script for script, _ in COMMANDS}))
def test_every_bench_of_the_page_knows_the_options_that_the_page_gives_it(script):
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    shown = {
        option
        for name, rest in COMMANDS
        if name == script
        for option in re.findall(r"--?[a-z]\S*", rest)
    }
    assert all(option in done.stdout for option in shown)


def test_what_a_cpu_cannot_show_is_said_beside_the_numbers():
    for words in ("accelerator", "NCCL", "several hosts", "Under load", "modelled"):
        assert words in PAGE
