"""The page in a real browser: fits a phone and a desk, light and dark, works offline, prints, reads without script."""

from __future__ import annotations

import pytest

from lastgood.contract.load import default_contract, parse_contract
from lastgood.contract.starter import starter_text
from lastgood.evidence.assemble import Question, build_report
from lastgood.evidence.html import render_html
from lastgood.ledger.tree_head import TreeHead
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_full_run, sample_run

pytestmark = pytest.mark.web

LONG_RUN = "a-run-with-a-very-long-name-that-nobody-would-shorten-" * 3


def page_of(events, *, contract=None) -> str:
    run = events[0].run if events else None
    question = Question(
        run=run, as_of_us=max((e.t_observed_us for e in events), default=sample_run.START_US),
        ledger="ledger.db", command="lastgood recompute bundle.tar", version="0.1.0",
    )  # fmt: skip
    head = TreeHead(origin="lastgood.dev/ledger/0011", size=len(events), root=bytes(32))
    return render_html(
        build_report(events, contract or default_contract(), question=question, head=head, builders={"training": build_section})
    )  # fmt: skip


PAGES = {
    "five faults": lambda: page_of(
        sample_run.five_faults(), contract=parse_contract(starter_text())
    ),
    "everything": lambda: page_of(sample_full_run.full(), contract=parse_contract(starter_text())),
    "only watched": lambda: page_of(sample_full_run.observed()),
    "no incidents": lambda: page_of(sample_run.undisturbed()),
    "still running": lambda: page_of(sample_run.still_running()),
    "empty ledger": lambda: page_of([]),
    "long names": lambda: page_of(sample_run.five_faults(run=LONG_RUN)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return folder


def opened(page, folder, name, *, width=1280, scheme="light"):
    """The page on screen, with everything that the browser complained about or asked the network for."""
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    address = (folder / f"{name}.html").as_uri()
    page.on(
        "request", lambda request: trouble.append(request.url) if request.url != address else None
    )
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    return trouble


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_screen_and_nothing_is_fetched(chromium_page, folder, name):
    for width in (360, 768, 1280, 1920):
        trouble = opened(chromium_page, folder, name, width=width)
        assert trouble == []
        assert chromium_page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "rows"), [(1280, [4]), (1000, [4]), (800, [2, 2]), (360, [1] * 4)])  # fmt: skip
def test_four_verdicts_stand_in_full_rows(chromium_page, folder, width, rows):
    opened(chromium_page, folder, "everything", width=width)
    tops = chromium_page.locator(".checks li").evaluate_all(
        "all => all.map(e => Math.round(e.getBoundingClientRect().top))"
    )
    assert [tops.count(top) for top in dict.fromkeys(tops)] == rows


@pytest.mark.parametrize("name", ["five faults", "everything", "only watched"])
def test_no_text_is_clipped_on_a_phone(chromium_page, folder, name):
    opened(chromium_page, folder, name, width=360)
    clipped = chromium_page.evaluate(
        """[...document.querySelectorAll('main *')].filter(e => e.children.length === 0 && e.textContent.trim()
             && !e.closest('svg, .scroll, .hidden, details:not([open]), thead') && e.getBoundingClientRect().right > innerWidth + 1)
             .map(e => e.textContent)"""
    )
    assert clipped == []


@pytest.mark.parametrize(
    ("width", "shown", "hidden"), [(1280, ".wide", ".narrow"), (360, ".narrow", ".wide")]
)
def test_one_drawing_of_each_chart_is_shown_and_its_text_is_readable(
    chromium_page, folder, width, shown, hidden
):
    opened(chromium_page, folder, "five faults", width=width)
    charts = chromium_page.locator("figure.chart")
    for index in range(charts.count()):
        chart = charts.nth(index)
        assert chart.locator(shown).is_visible()
        assert chart.locator(hidden).is_hidden()
        # 9 px on screen is the smallest text that people read without zooming.
        heights = chart.locator(f"{shown} svg text").evaluate_all(
            "all => all.map(e => e.getBoundingClientRect().height)"
        )
        assert min(h for h in heights if h) > 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_both_schemes(chromium_page, folder, scheme):
    """WCAG 2 relative luminance, 4.5 to 1 for text, over every colour that text has on the page."""
    opened(chromium_page, folder, "five faults", scheme=scheme)
    ratios = chromium_page.evaluate(
        """() => {
          const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
          const lum = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const paper = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
          return [...document.querySelectorAll('main *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && !e.closest('svg'))
            .map(e => { const a = lum(parse(getComputedStyle(e).color)), b = lum(paper(e));
              return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.trim().slice(0, 40)]; });
        }"""
    )
    assert len(ratios) > 200
    assert min(ratios)[0] >= 4.5, min(ratios)


def test_the_ink_of_charts_follows_the_scheme(chromium_page, folder):
    inks = []
    for scheme in ("light", "dark"):
        opened(chromium_page, folder, "five faults", scheme=scheme)
        inks.append(
            chromium_page.locator(".wide svg text").first.evaluate("e => getComputedStyle(e).fill")
        )
    assert inks[0] != inks[1]


def test_the_data_of_a_chart_open_without_script(chromium_page, folder):
    opened(chromium_page, folder, "five faults")
    details = chromium_page.locator("#chart-strip details")
    assert details.locator("table").is_hidden()
    details.locator("summary").click()
    assert details.locator("table").is_visible()


def test_each_link_of_the_contents_lands_on_its_heading(chromium_page, folder):
    opened(chromium_page, folder, "five faults")
    for link in chromium_page.locator("nav a").all():
        link.click()
        target = link.get_attribute("href")
        assert chromium_page.locator(f"{target} h3").first.inner_text() == link.inner_text()


def test_the_page_prints_with_every_incident_and_without_navigation(chromium_page, folder):
    opened(chromium_page, folder, "five faults")
    chromium_page.emulate_media(media="print")
    assert chromium_page.locator("nav").is_hidden()
    assert chromium_page.locator("article.incident").count() == 5
    assert chromium_page.locator("figure.chart .wide").first.is_visible()
    assert chromium_page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("only watched", "1 went on by itself, 1 ended with the job"),
        ("no incidents", "No fault was recorded"),
        ("still running", "1 is still open"),
        ("empty ledger", "the ledger holds no run"),
    ],
)
def test_a_corner_case_says_what_it_is_at_the_top(chromium_page, folder, name, sentence):
    opened(chromium_page, folder, name)
    assert sentence in chromium_page.locator("h1").inner_text()


def test_the_stack_groups_of_a_hang_open_without_script(chromium_page, folder):
    opened(chromium_page, folder, "everything")
    stacks = chromium_page.locator("#stacks")
    assert stacks.locator("table").first.locator("tbody tr").count() == 2
    frames = stacks.locator("details").last
    assert frames.locator("table").is_hidden()
    frames.locator("summary").click()
    assert "fetch (data.py:41)" in frames.locator("table").inner_text()


def test_each_series_of_the_stairs_has_its_own_kind_of_line(chromium_page, folder):
    opened(chromium_page, folder, "everything")
    lines = chromium_page.locator("#chart-spares .wide svg path[stroke-dasharray]")
    dashes = set(lines.evaluate_all("all => all.map(e => e.getAttribute('stroke-dasharray'))"))
    assert len(dashes) >= 3
