"""The page of benchmarks: its tables are those of the raw rows, and every command on it can be typed.

So it is with the other pages that show what a bench measured.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
OTHERS = ("recovery.md", "design/001-store-in-a-file.md", "design/006-an-end-counts-early.md")
COMMANDS = re.findall(
    r"^python (bench/\S+)(.*)$",
    "\n".join([PAGE, *((ROOT / "docs" / name).read_text(encoding="utf-8") for name in OTHERS)]),
    re.MULTILINE,
)


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_tables_are_those_of_the_raw_rows():
    done = run("bench/tables.py", "--check")
    assert done.returncode == 0, f"type: python bench/tables.py {done.stderr}"


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import tables
    finally:
        sys.path.pop(0)
    return tables


def test_a_table_of_other_rows_is_noticed(tables):
    page = tables.filled(PAGE)
    assert page == PAGE
    other = re.sub(r"\| a step \| \d+", "| a step | 1", PAGE)
    assert other != PAGE == tables.filled(other)


@pytest.mark.parametrize(
    ("page", "cell"),
    [("recovery.md", r"\| noticed \| \d+"), ("design/001-store-in-a-file.md", r"formed \| \d+")],
)
def test_a_table_of_other_rows_is_noticed_beside_the_page_of_benchmarks(tables, page, cell):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert tables.filled(text) == text
    other = re.sub(cell, lambda found: found[0] + "1", text, count=1)
    assert other != text == tables.filled(other)


def made_rows(peer_s: float) -> list[dict]:
    """Ten runs of lastgood and of a peer: what the sentence of the README is made of."""
    common = {"fault": "sigkill", "members": 4, "lost_steps": 0, "losses_equal": True, "load": 1.0}
    return [
        {"system": system, "run": run, "recovered_s": seconds, "full_s": seconds, **common}
        for system, seconds in (("lastgood", 0.5), ("torchft", peer_s))
        for run in range(10)
    ]


def test_the_sentence_and_the_picture_of_the_readme_are_those_of_the_rows(
    tables, tmp_path, monkeypatch
):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "PICTURE", tmp_path / "recovery.svg")
    assert "times as long" not in tables.filled(readme)
    seen = set()
    for peer_s, words in (
        (5.0, "takes 10.0 times as long (10.0 to 10.0, n = 10)"),
        (6.0, "takes 12.0 times"),
    ):
        rows = made_rows(peer_s)
        (tmp_path / "recovery.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        page = tables.filled(readme)
        assert words in page
        assert "(docs/images/recovery.svg)" in page
        assert tables.filled(page) == page
        seen.add(page)
        assert not tables.is_picture_of(rows)
        tables.PICTURE.write_text(tables.picture.svg(rows))
        assert tables.is_picture_of(rows)
    assert len(seen) == 2


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
