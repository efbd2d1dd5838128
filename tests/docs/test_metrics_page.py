"""The metrics of a run: the page, the dashboard and the alert rules name what the code serves, and all of it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from lastgood.contract.taxonomy import FailureClass
from lastgood.training.metrics.declared import METRICS
from lastgood.training.metrics.page import PHASES
from lastgood.training.metrics.server import (
    CONNECTION_COUNT_MAX,
    CONNECTION_US_MAX,
    parse_address,
)
from lastgood.training.metrics.telemetry import OUTCOMES, STEP_COUNT_KEPT

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "examples" / "grafana" / "dashboard.json"
ALERTS = ROOT / "examples" / "grafana" / "alerts.yaml"
TABLE_HEAD = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
# What Prometheus adds to every sample of a target.
TARGET_LABELS = {"job", "instance"}
VALUES = {
    "class": {c.value for c in FailureClass},
    "outcome": set(OUTCOMES),
    "injected": {"true", "not_declared"},
    "phase": set(PHASES),
}


def series():
    """Name of every series on a page -> the labels that it has. That a page holds them, a test of the code shows."""
    found = {}
    for metric in METRICS:
        labels = set(metric.labels) | TARGET_LABELS
        if metric.kind != "histogram":
            found[metric.name] = labels
            continue
        found[f"{metric.name}_bucket"] = labels | {"le"}
        found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels
    return found


def panels():
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def rules():
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], json.dumps(rule["annotations"])


def queries():
    """Title, expression and the text that labels are put into, of everything that is asked of Prometheus."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    yield from panels()
    yield from rules()
    for note in dashboard["annotations"]["list"]:
        yield note["name"], note["expr"], note["titleFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # fmt: skip
            assert variable["query"]["query"] == variable["definition"]
            yield variable["name"], name, f"{{{{{label}}}}}"


QUERIES = list(queries())
IDS = [title for title, *_ in QUERIES]


def names_in(expression):
    return re.findall(r"\blastgood_\w+", expression)


def test_there_is_something_to_look_at():
    assert len(list(panels())) > 20
    assert len(list(rules())) > 8


@pytest.mark.parametrize(("_title", "expression", "_text"), QUERIES, ids=IDS)
def test_every_series_that_is_asked_for_is_served(_title, expression, _text):
    names = names_in(expression)
    assert names
    assert set(names) <= set(series())


@pytest.mark.parametrize(("_title", "expression", "_text"), QUERIES, ids=IDS)
def test_every_matcher_names_a_label_of_its_series_and_a_value_that_it_can_have(
    _title, expression, _text
):
    for name, inside in re.findall(r"(lastgood_\w+)\{([^}]*)\}", expression):
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', inside):
            assert label in series()[name], name
            if label in VALUES:
                assert operator in {"=", "!="}
                assert value in VALUES[label]
            else:
                assert value == f"${label}"


@pytest.mark.parametrize(("_title", "expression", "text"), QUERIES, ids=IDS)
def test_every_label_that_is_grouped_by_or_written_out_is_one_of_its_series(
    _title, expression, text
):
    known = set().union(*(series()[name] for name in names_in(expression)))
    grouped = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", expression)  # fmt: skip
    kept = set(re.findall(r"\w+", " ".join(grouped)))
    written = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
    assert kept | written <= known
    outermost = re.match(r"\s*sum by \(([^)]*)\) \((?:(?!\bsum\b).)*$", expression)
    if outermost:  # what is summed away cannot be written out
        assert written <= set(re.findall(r"\w+", outermost[1]))


def test_every_metric_of_the_code_is_on_the_dashboard():
    shown = {name for _, expression, _ in panels() for name in names_in(expression)}
    missing = [
        m.name
        for m in METRICS
        if not shown & {m.name, *(f"{m.name}_{end}" for end in ("bucket", "sum", "count"))}
    ]
    assert missing == []


def test_panels_have_places_of_their_own_and_say_what_they_show():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken = set()
    for panel in dashboard["panels"]:
        assert panel["description"].endswith(".")
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)


def test_an_alert_says_how_bad_it_is_and_where():
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        names = [rule["alert"] for rule in group["rules"]]
        assert len(set(names)) == len(names)
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert "$labels.instance" in rule["annotations"]["summary"]


def test_the_page_lists_every_metric_of_the_code_and_no_other(request):
    rows = [
        f"| `{m.name}` | {m.kind} | {m.unit} | {', '.join(f'`{n}`' for n in m.labels)} | {m.text} |\n"
        for m in METRICS
    ]
    expected = "".join(rows).replace("|  |", "| |")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(TABLE_HEAD)
    table = re.match(r"(\|.*\n)*", rest)[0]
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + TABLE_HEAD + expected + rest[len(table) :], encoding="utf-8")
        table = expected
    assert table == expected, "run: make docs"


def test_a_time_is_in_seconds_and_its_name_says_so():
    assert all((metric.unit == "s") == metric.name.endswith("_seconds") for metric in METRICS)
    assert all((metric.kind == "counter") == metric.name.endswith("_total") for metric in METRICS)


def test_the_page_names_every_value_of_a_label():
    page = PAGE.read_text(encoding="utf-8")
    for label, values in VALUES.items():
        line = re.search(rf"^- `{label}`: (.*)$", page, re.MULTILINE)[1]
        assert set(re.findall(r"`(\w+)`", line)) == values - {"planned"}, label


def test_the_numbers_of_the_page_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    limits = re.search(r"At most (\d+) connections .* cut after (\d+) s", page)
    assert limits
    assert limits.groups() == (str(CONNECTION_COUNT_MAX), str(CONNECTION_US_MAX // 1_000_000))
    assert f"more than {STEP_COUNT_KEPT:,} steps" in page


def test_the_command_and_the_scrape_of_the_page_agree_on_the_port():
    page = PAGE.read_text(encoding="utf-8")
    address = parse_address(re.search(r"--metrics (\d\S+)", page)[1])
    assert f"curl http://{address.host}:{address.port}/metrics" in page
    (scrape,) = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])["scrape_configs"]  # fmt: skip
    (static,) = scrape["static_configs"]
    assert {target.rpartition(":")[2] for target in static["targets"]} == {str(address.port)}
