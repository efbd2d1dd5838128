"""What docs/training.md says about a failure that comes back is what the default contract explains."""

from pathlib import Path

from lastgood.base.units import format_duration
from lastgood.contract.load import default_contract

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ("no", "one", "two", "three", "four")


def test_the_training_page_names_the_default_window_and_the_default_number_of_returns():
    again = default_contract(kind="training").spec.recovery.recurrence
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    window = format_duration(again.window_us)
    assert f"within {window} of its recovery widens the fault domain" in text
    assert f"After {NUMBERS[again.limit]} such returns the next one escalates" in text


def test_the_glossary_says_that_what_lies_behind_the_last_step_is_a_stall():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("- **stall**"))
    ending = ROOT / "src" / "lastgood" / "training" / "supervising" / "ending.py"
    assert "between the last step and a good end" in line
    assert '{"name": "the script behind its loop", "state": "stall"}' in ending.read_text(encoding="utf-8")  # fmt: skip
