"""The words in which a bad contract is answered do not drift, and the pages show what is really printed.

`contract_problems.json` was read by a person once; it changes only together with a decision to say it better.
"""

import re
from pathlib import Path

import pytest

from lastgood.base.errors import Problems
from lastgood.contract.load import load_contract, parse_contract
from lastgood.contract.objectives import INDICATORS_BY_WORKLOAD
from lastgood.contract.starter import starter_text
from lastgood.contract.tail import alarm_count
from lastgood.faults.spec import FAILURE_CLASS
from lastgood.faults.tape import parse_tape

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def problems_of(text: str) -> list[str]:
    with pytest.raises(Problems) as caught:
        parse_contract(text, source="contract.yaml", needs_duties=True)
    return [str(problem) for problem in caught.value.problems]


def test_a_contract_with_a_problem_in_every_part_is_answered_word_for_word(golden):
    bad = (HERE / "contract_bad.yaml").read_text(encoding="utf-8")
    golden("contract_problems", problems_of(bad))


def test_the_example_passes_the_check():
    assert load_contract(ROOT / "examples" / "contract.yaml", needs_duties=True)


def test_the_page_shows_problems_as_they_are_printed():
    text = (
        starter_text()
        .replace("kind: training ", "kind: trainng ")
        .replace("target: 0.97", "target: 97")
        .replace("  recovery:\n", "  recovry:\n")
        .replace("      timeout: 60s", "      timeout: 60")
    )
    shown = re.findall(r"^contract\.yaml:.*$", page("contract.md"), re.MULTILINE)
    assert shown == problems_of(text)


def test_the_page_names_every_indicator_with_its_workloads():
    rows = {}
    for names, workload in re.findall(
        r"^\| (`[a-z_`, ]+`) \| .* \| (\w+) \|$", page("contract.md"), re.MULTILINE
    ):
        rows |= dict.fromkeys(re.findall(r"`(\w+)`", names), workload)
    for indicator in frozenset().union(*INDICATORS_BY_WORKLOAD.values()):
        fits = [kind for kind, known in INDICATORS_BY_WORKLOAD.items() if indicator in known]
        assert rows[indicator] == (fits[0] if len(fits) == 1 else "all")


def test_the_page_has_the_right_alarm_count():
    assert "speaks up from the 16th event on" in page("contract.md")
    assert alarm_count(10, 0.05) == 16


def test_the_page_of_faults_has_every_kind_with_its_class_and_a_tape_that_reads():
    for kind, failure_class in FAILURE_CLASS.items():
        assert re.search(
            rf"^\| `{kind}` \|.*\| {failure_class} \|", page("faults.md"), re.MULTILINE
        )
    (tape,) = re.findall(r"```\n(\{\"tape\".*?)```", page("faults.md"), re.DOTALL)
    assert len(parse_tape(tape.encode()).faults) == 2
