"""The pages: every word of the taxonomy explained, every link alive, one title each."""

import re
from pathlib import Path

import pytest

from lastgood.base.figures import FigureKind
from lastgood.contract.taxonomy import AXES
from lastgood.signals.reading import Verdict

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TITLES = {
    "class": "Class",
    "symptom": "Symptom",
    "cause": "Cause",
    "cause_status": "Cause status",
    "role": "Role",
    "domain": "Domain",
    "event": "Event",
}


def glossary() -> str:
    return (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def section(title: str) -> dict[str, str]:
    body = re.split(r"^#+ ", glossary().partition(f"### {title}\n")[2], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^- `([^`]+)`: (.+)$", body, re.MULTILINE))


@pytest.mark.parametrize("axis", list(AXES))
def test_the_glossary_has_one_sentence_for_every_word_of_the_taxonomy(axis):
    assert list(section(TITLES[axis])) == [member.value for member in AXES[axis]]
    assert all(sentence.endswith(".") for sentence in section(TITLES[axis]).values())


@pytest.mark.parametrize("kind", list(FigureKind))
def test_the_glossary_explains_every_kind_of_figure(kind):
    assert f"- **{kind}**: " in glossary()


def test_the_glossary_names_every_verdict():
    line = next(line for line in glossary().splitlines() if line.startswith("- **verdict**"))
    assert all(verdict.value in line for verdict in Verdict)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title_and_no_dead_link(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_the_readme_is_at_most_120_lines_and_names_the_two_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    assert "make demo\nmake test\n" in readme


def test_the_limits_name_what_a_cpu_cannot_show():
    limits = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    for words in (
        "NCCL",
        "CUDA context",
        "Overlap on the device",
        "Thousands of ranks",
        "not a device",
    ):
        assert words in limits


def test_every_command_that_the_readme_shows_exists():
    from lastgood.cli.main import COMMANDS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^lastgood (\w+)", readme, re.MULTILINE))
    assert shown
    assert shown <= set(COMMANDS)
