"""The page of a plan in a real browser: fits a phone and a desk, asks the network for nothing, can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.cli.main import main

pytestmark = pytest.mark.web

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "planning" / "cluster.yaml"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    assert main(["plan", str(EXAMPLE), "--jobs", "200", "--html", str(path)]) == 0
    return path


@pytest.mark.parametrize(("width", "shown"), [(360, ".narrow"), (1280, ".wide")])
def test_a_plan_fits_the_screen_and_its_charts_can_be_read(chromium_page, page_path, width, shown):
    trouble: list[str] = []
    address = page_path.as_uri()
    chromium_page.on("console", lambda message: trouble.append(message.text))
    chromium_page.on(
        "request", lambda request: trouble.append(request.url) if request.url != address else None
    )
    chromium_page.set_viewport_size({"width": width, "height": 900})
    chromium_page.goto(address)
    assert trouble == []
    assert chromium_page.evaluate("document.documentElement.scrollWidth") <= width
    charts = chromium_page.locator("figure.chart")
    assert charts.count() == 5
    for index in range(charts.count()):
        texts = charts.nth(index).locator(f"{shown} svg text")
        heights = texts.evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
        assert min(h for h in heights if h) > 9
    overlaps = chromium_page.evaluate(
        """shown => { const boxes = [...document.querySelectorAll(`#chart-wall_time ${shown} svg text`)]
             .filter(e => /^p\\d+$/.test(e.textContent)).map(e => e.getBoundingClientRect());
           return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
             && a.top < b.bottom && b.top < a.bottom)); }""",
        shown,
    )
    assert overlaps is False
