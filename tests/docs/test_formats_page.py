"""docs/formats.md: every command in it runs on a sample, and every format has a section."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from lastgood.ledger.importers.table_map import parse_column_map

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
SAMPLES = ROOT / "tests" / "samples" / "import"
OTHER_NAMES = {"fault_trace.json": "stepfun.json"}
"""Files that the page calls by the name of their publication."""
FORMATS = [
    "kernel", "stepfun", "alertmanager", "dcgm", "kubernetes", "otlp", "table", "handkept", "slurm_jobs", "slurm_nodes", "elastic",
    "nccl_flight", "goodput", "mlperf", "spool",
]  # fmt: skip
FOLDERS = ["nccl", "spool"]


def commands(name: str) -> list[str]:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("lastgood ")]


@pytest.mark.parametrize("name", FORMATS)
def test_every_command_of_a_format_runs_and_takes_rows(name, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = commands(name)
    assert lines
    for line in lines:
        command, _, redirect = line.partition(" > ")
        words = shlex.split(command)[1:]
        for word in words:
            sample = SAMPLES / OTHER_NAMES.get(word, word)
            if "." in word and sample.exists():
                shutil.copy(sample, tmp_path / word)
            elif word in FOLDERS:
                shutil.copytree(sample, tmp_path / word, dirs_exist_ok=True)
        if redirect:
            (tmp_path / redirect).write_text(cli(*words).stdout, encoding="utf-8")
            continue
        result = cli(*words, "--json")
        assert result.exit_code == 0, result.stderr
        assert result.json["total"]["rows"]["accepted"] > 0


def test_the_map_on_the_page_is_a_map():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.partition("\n## table\n")[2], re.DOTALL)

    assert parse_column_map(text.encode(), source="page").rows == "fault"


def test_the_log_on_the_page_is_read_as_it_stands(cli, tmp_path):
    section = PAGE.partition("\n## handkept\n")[2].partition("\n## ")[0]
    (tmp_path / "log.md").write_text(section, encoding="utf-8")
    result = cli(
        "import", tmp_path / "log.md", "--zone", "UTC", "--ledger", tmp_path / "l", "--json"
    )

    assert result.json["files"][0]["format"] == "handkept"
    assert result.json["total"]["rows"]["accepted"] == 2
