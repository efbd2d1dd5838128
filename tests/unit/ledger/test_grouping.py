from __future__ import annotations

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.grouping import LINKS, REPORT_RULE, Rule, parse_rule
from lastgood.ledger.incident import fold_incidents
from tests.unit.ledger.story import Story

MIN = 60_000_000


def host(name: str) -> list[dict[str, str]]:
    return [{"kind": "host", "id": name}]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("links", LINKS),
        ("gap:10min@host", REPORT_RULE),
        ("links + gap:90s@rack", Rule(gap_us=90_000_000, gap_kind="rack")),
        ("gap:5s", Rule(gap_us=5_000_000)),
        ("merge:30min@site", Rule(merge_us=30 * MIN)),
        ("gap:1h@site+merge:1h30min@host+correlated:7s",
         Rule(gap_us=60 * MIN, gap_kind="site", merge_us=90 * MIN, merge_kind="host", correlated_us=7_000_000)),
    ],
)  # fmt: skip
def test_a_rule_is_read_as_it_is_written(text, rule):
    assert parse_rule(text) == rule
    assert parse_rule(rule.spec) == rule
    assert str(rule).startswith(f"{rule.spec}: declared incidents")


@pytest.mark.parametrize(
    "text",
    ["", "gap", "gap:10@host", "gap:10min@hose", "gap:1s+gap:2s", "gap:-1s", "correlated:1s@host", "tag:1s"],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_what_is_needed(text):
    with pytest.raises(BadInput, match="needs") as caught:
        parse_rule(text)
    assert caught.value.exit_code == 2


def test_a_merge_joins_incidents_whose_starts_follow_each_other_anywhere():
    story = Story()
    for at, name in ((0, "a"), (50, "b"), (100, "c"), (201, "d")):
        story.tell("incident.open", at, incident=name, class_="fail_stop", domain=host(name))
        story.tell("incident.close", at + 500, incident=name)
    story.tell("incident.open", 60, incident="p", class_="planned", domain=host("a"))
    merged = fold_incidents(story.events, parse_rule("merge:50s@site"))
    assert [incident.id for incident in merged] == ["a", "p", "d"]
    assert [d.id for d in merged[0].domain] == ["a", "b", "c"]
    assert merged[0].closed_us - merged[0].opened_us == 600_000_000
    assert len(merged[0].event_ids) == 6
    assert [i.id for i in fold_incidents(story.events, parse_rule("merge:49s@site"))] == [
        "a", "b", "p", "c", "d",
    ]  # fmt: skip
    by_host = parse_rule("merge:1h@host")
    assert [i.id for i in fold_incidents(story.events, by_host)] == ["a", "b", "p", "c", "d"]


def test_a_merged_incident_is_open_while_one_of_its_members_is():
    story = Story()
    story.tell("incident.open", 0, incident="a", class_="fail_stop", cause="gpu.memory")
    story.tell("incident.open", 1, incident="b", class_="fail_slow", cause="data")
    story.tell("incident.close", 2, incident="a")
    (merged,) = fold_incidents(story.events, parse_rule("merge:1s"))
    assert merged.is_open
    assert (merged.class_, merged.cause) == ("fail_stop", "gpu.memory")


def test_a_gap_of_the_site_joins_failures_of_different_hosts():
    story = Story()
    for at, name in ((0, "h1"), (5, "h2"), (16, "h1")):
        story.tell("observation", at, class_="fail_stop", domain=host(name))
    count = lambda text: len(fold_incidents(story.events, parse_rule(text)))
    assert (count("gap:10s@site"), count("gap:11s@site"), count("gap:11s@host")) == (2, 1, 3)
