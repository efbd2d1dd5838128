"""The fleet's page in a real browser: the five answers first, nothing wider than a phone, both schemes, paper."""

from __future__ import annotations

import pytest

from lastgood.evidence.html import render_html
from lastgood.evidence.rates_answers import QUESTIONS
from lastgood.evidence.rates_records import RatesQuestion
from lastgood.evidence.rates_report import fleet_part
from lastgood.evidence.report import Report, Reproduction
from tests.unit.evidence import made_fleet as made
from tests.web.test_report_page import opened

pytestmark = pytest.mark.web

LONG = "a-node-with-a-name-that-nobody-would-shorten-" * 3


def long_names() -> made.Fleet:
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(30):
        fleet.fault(3 * i, f"{LONG}{i % 5}", "gpu.memory", label=f"{LONG}/{LONG}/x")
    return fleet


FLEETS = {
    "troubled": lambda: (made.troubled(with_exposure=True), RatesQuestion()),
    "no exposure": lambda: (made.troubled(), RatesQuestion()),
    "few": lambda: (made.few(), RatesQuestion(nodes=8)),
    "long names": lambda: (long_names(), RatesQuestion(nodes=20)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleets")
    for name, make in FLEETS.items():
        fleet, question = make()
        part = fleet_part(fleet.write(folder / f"{name}.db"), question)
        block = Reproduction(ledger="l.db", root="0" * 64, size=1, origin="o", version="v", command="lastgood report l.db")  # fmt: skip
        report = Report(title="Lastgood report, fleet", subject="l.db", as_of_us=part.end_us, sections=(part.section,), reproduction=block)  # fmt: skip
        (folder / f"{name}.html").write_text(render_html(report), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", FLEETS)
def test_nothing_is_wider_than_the_screen_and_nothing_is_fetched(chromium_page, folder, name):
    for width in (360, 768, 1280):
        assert opened(chromium_page, folder, name, width=width) == []
        assert chromium_page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_text_is_clipped_on_a_phone(chromium_page, folder):
    opened(chromium_page, folder, "troubled", width=360)
    clipped = chromium_page.evaluate(
        """[...document.querySelectorAll('main *')].filter(e => e.children.length === 0 && e.textContent.trim()
             && !e.closest('svg, .scroll, .hidden, details:not([open]), thead') && e.getBoundingClientRect().right > innerWidth + 1)
             .map(e => e.textContent)"""
    )
    assert clipped == []


def test_the_five_questions_are_read_before_the_contents_and_without_a_click(chromium_page, folder):
    opened(chromium_page, folder, "troubled")
    assert chromium_page.locator(".answers dt").all_inner_texts() == list(QUESTIONS)
    bottom = chromium_page.locator(".answers").bounding_box()
    contents = chromium_page.locator("nav").bounding_box()
    assert bottom["y"] + bottom["height"] <= contents["y"]
    assert all(answer.is_visible() for answer in chromium_page.locator(".answers dd").all())


def test_a_long_table_keeps_its_names_in_sight_on_a_phone(chromium_page, folder):
    opened(chromium_page, folder, "troubled", width=360)
    table = chromium_page.locator("table.many").first
    name = table.locator("tbody th").first
    assert name.evaluate("e => getComputedStyle(e).position") == "sticky"


@pytest.mark.parametrize("width", [1280, 360])
def test_the_text_of_every_picture_is_readable(chromium_page, folder, width):
    opened(chromium_page, folder, "troubled", width=width)
    shown = ".wide" if width > 736 else ".narrow"
    heights = chromium_page.locator(f"figure.chart {shown} svg text").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().height)"
    )
    assert len([h for h in heights if h]) > 60
    assert min(h for h in heights if h) > 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answers_have_enough_contrast_in_both_schemes(chromium_page, folder, scheme):
    """WCAG 2 relative luminance, 4.5 to 1 for text."""
    opened(chromium_page, folder, "troubled", scheme=scheme)
    ratio = chromium_page.evaluate(
        """() => {
          const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const paper = lum(getComputedStyle(document.body).backgroundColor);
          return Math.min(...[...document.querySelectorAll('.answers dt, .answers p')].map(e => { const ink = lum(getComputedStyle(e).color);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); }));
        }"""
    )
    assert ratio >= 4.5


def test_paper_shows_the_folded_tables_and_the_pictures(chromium_page, folder):
    opened(chromium_page, folder, "troubled")
    chromium_page.emulate_media(media="print")
    assert chromium_page.locator("nav").is_hidden()
    assert chromium_page.locator("figure.chart .wide").first.is_visible()
    assert chromium_page.pdf().startswith(b"%PDF")


def test_without_exposure_the_page_asks_for_it(chromium_page, folder):
    opened(chromium_page, folder, "no exposure")
    words = chromium_page.locator(".answers").inner_text()
    assert "Exposure unknown; give --devices or node events" in words
    assert "per million" not in chromium_page.locator("main").inner_text()
