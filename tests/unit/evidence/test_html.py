"""The page: one file, no script, no network, everything said in text, nothing from a ledger taken as markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from lastgood.base.errors import EvidenceError
from lastgood.base.figures import Figure, FigureKind
from lastgood.evidence.html import render_html, verdict_of, without_charts
from lastgood.evidence.report import FigureRow, Headline, Report, Section, Words
from tests.unit.evidence.made_reports import full_report

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that every element is closed, and keeps ids, links and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(full_report())


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    return outline


def with_sections(*sections: Section) -> Report:
    return msgspec.structs.replace(full_report(), sections=sections)


def test_every_element_is_closed_and_every_id_is_there_once(outline):
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))


def test_every_link_leads_to_a_place_on_the_page(outline):
    assert outline.links
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)


def test_the_page_runs_no_script_and_asks_for_nothing(page, outline):
    assert not {"script", "link", "img", "iframe", "object"} & outline.tags
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert "default-src 'none'" in page


def test_the_answer_is_the_first_heading(page):
    heading = re.search(r"<h1>(.*?)</h1>", page)
    assert (
        heading.group(1)
        == "All 2 injected faults were detected, contained, recovered and verified."
    )


def test_injected_faults_are_labelled_at_the_top_and_on_every_card(page):
    assert page.index("Injected faults.") < page.index("<nav")
    assert page.count('<span class="tag injected">injected</span>') == 2


def test_a_report_without_injected_faults_carries_no_such_label(page):
    calm = msgspec.structs.replace(full_report().sections[0], is_injected=False, parts=())
    assert "Injected faults." not in render_html(with_sections(calm))


def test_each_number_prints_its_kind(page):
    assert '<span class="value">0.8731</span> <span class="kind">measured</span>' in page
    assert '12.000 <span class="kind">assumed</span>' in page


def test_what_was_not_observed_says_so_and_has_no_kind(page):
    assert re.search(r'<span class="value missing">not observed</span> *</dd>', page)


def test_each_chart_has_its_data_in_a_table_beside_it(page):
    assert page.count("The same as a table") == 3
    assert '<td class="number">13.400</td>' in page


def test_a_missing_verification_is_unknown_and_never_held(page):
    assert re.search(
        r'class="sign unknown"[^>]*>\?</span> <strong>Verification:</strong> none recorded', page
    )


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ("equal", "held"),
        ("within_tolerance", "held"),
        ("different", "not_held"),
        ("looks fine", "unknown"),
    ],
)
def test_a_result_that_nobody_knows_is_unknown(result, state):
    assert verdict_of(result) == state


def test_text_of_a_ledger_stays_text(page):
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page


def test_a_hostile_run_name_cannot_become_markup():
    evil = msgspec.structs.replace(full_report(), subject="</title><script>alert(1)</script>")
    assert "<script" not in render_html(evil)


def test_the_same_report_gives_the_same_page(page):
    assert render_html(full_report()) == page


def test_a_projection_without_its_condition_stops_the_page():
    bare = Figure(name="mtti", value=3.0, unit="h", kind=FigureKind.PROJECTED)
    section = Section(name="s", title="S", figures=(FigureRow(label="MTTI", figure=bare),))
    with pytest.raises(EvidenceError):
        render_html(with_sections(section))


def test_an_empty_section_is_drawn_without_empty_lists():
    empty = Section(
        name="training",
        title="Training",
        headline=Headline(state="nothing", sentence="Nothing yet."),
    )
    page = render_html(with_sections(empty))
    assert "Nothing yet." in page
    assert "<tbody>" not in page
    assert '<dl class="keys">' not in page


def test_without_charts_keeps_the_words_and_drops_the_drawings(page):
    rest = without_charts(page)
    assert "<path" not in rest
    assert "13.400" in rest


def test_answers_stand_in_the_head_of_the_page_above_the_contents():
    answer = Words(title="Which nodes to pull?", sentences=("None: <b>persistence</b> fails.",))
    page = render_html(with_sections(Section(name="s", title="S", answers=(answer,))))
    assert page.index("Which nodes to pull?") < page.index("None: &lt;b&gt;") < page.index("<nav")
