"""The report in a terminal: 80 columns, no colour needed, and nothing from a ledger reaches the terminal raw."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from lastgood.evidence.report import Column, FigureRow, Note, Report, Section, Table, Words
from lastgood.evidence.terminal import _lane, print_report
from tests.unit.evidence.made_reports import full_report, seconds


def printed(report: Report, *, width: int = 80) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None,
    )
    print_report(report, console)
    return console.file.getvalue()


def with_section(section: Section) -> Report:
    return msgspec.structs.replace(full_report(), sections=(section,))


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_80_columns(width):
    assert (
        max(len(line.rstrip()) for line in printed(full_report(), width=width).splitlines()) <= 80
    )


def test_states_are_said_in_words_beside_their_signs():
    text = printed(full_report())
    assert "✓ Detected" in text
    assert "held: 2 of 2" in text
    assert "not held: 1 of 2" in text
    assert "unknown: not compared" in text


def test_injected_faults_are_announced_before_any_number():
    text = printed(full_report())
    assert text.index("INJECTED FAULTS") < text.index("0.8731")
    assert "(injected, recovered)" in text


def test_an_incident_says_what_was_seen():
    assert "seen: rank 2 (w2) ended by signal 9" in printed(full_report())


def test_each_number_prints_its_kind():
    assert "ETTR          0.8731 measured" in printed(full_report())


def test_a_table_that_is_too_wide_is_turned():
    columns = (
        Column(title="Class", is_number=False),
        *(Column(title=f"A long header {i}", unit="s") for i in range(9)),
    )
    rows = (("fail_stop", *(seconds("x", i + 1.0) for i in range(9))),)
    text = printed(
        with_section(
            Section(
                name="s",
                title="S",
                tables=(Table(name="t", title="T", columns=columns, rows=rows),),
            )
        )
    )
    assert any(
        line.startswith("A long header 8, s") and "9.00" in line for line in text.splitlines()
    )


def test_a_table_that_is_too_wide_both_ways_becomes_records():
    columns = (
        Column(title="Class", is_number=False),
        *(Column(title=f"A long header {i}", unit="s") for i in range(9)),
    )
    rows = tuple(
        (f"a quite long class name {k}", *(seconds("x", i + 1.0) for i in range(9)))
        for k in range(6)
    )
    text = printed(
        with_section(
            Section(
                name="s",
                title="S",
                tables=(Table(name="t", title="T", columns=columns, rows=rows),),
            )
        )
    )
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("A long header 8, s  9.00") == 6


def test_a_stretch_shorter_than_a_cell_is_visible_on_the_strip():
    assert _lane([("lost", 50.0, 50.001)], 100.0).count("█") == 1
    assert _lane([("lost", 99.999, 100.0)], 100.0).count("█") == 1


def test_control_characters_of_a_ledger_are_made_visible():
    note = Note(text="\x1b[2Jgone\x9b31m [bold]not markup[/bold]")
    text = printed(with_section(Section(name="s", title="S", notes=(note,))))
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\\x1b[2Jgone\\x9b31m [bold]not markup[/bold]" in text


def test_no_line_of_a_file_or_pipe_ends_in_blanks():
    lines = printed(full_report()).split("\n")
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[-1] == ""


def test_answers_stand_before_every_number():
    answer = Words(title="Is it getting worse?", sentences=("Not shown.",))
    figure = FigureRow(label="Count", figure=seconds("count", 3))
    text = printed(with_section(Section(name="s", title="S", answers=(answer,), figures=(figure,))))
    assert text.index("Is it getting worse?") < text.index("Not shown.") < text.index("Count")
