"""A contract in plain words leaves nothing out and names every value that nobody declared."""

from lastgood.contract.explain import NOT_DECLARED, assumed_paths, explain
from lastgood.contract.load import default_contract, parse_contract
from lastgood.contract.starter import starter_text

STARTER = starter_text()


def words(contract) -> dict[str, str]:
    return {paragraph.title: "\n".join(paragraph.sentences) for paragraph in explain(contract)}


def test_every_number_and_owner_of_the_starter_is_said():
    said = words(parse_contract(STARTER))
    assert "training on 4 devices" in said["Workload"]
    assert "at least 97 % of wall time is productive" in said["Objectives"]
    assert "detection time is at most 1 min in 95 % of incidents" in said["Objectives"]
    assert "no corrupt state is built on or handed out" in said["Objectives"]
    assert "13.4 times the even rate" in said["Budgets"]
    assert "from 16 on" in said["Budgets"]
    assert "verify: supervisor has 2 min" in said["Recovery"]
    assert "the next older, more durable state" in said["Recovery"]
    assert "owner of failed evidence: training-platform" in said["Evidence duties"]
    assert "never counts as good" in said["Judged over"]


def test_defaults_are_called_assumed_and_objectives_not_declared():
    contract = default_contract()
    said = words(contract)
    assert said["Workload"].startswith("training; the number of devices is not declared.")
    assert NOT_DECLARED == said["Objectives"] == said["Budgets"]
    assert said["Assumed"].startswith("Every value")
    assert said["Evidence duties"].count(": missing") == 4
    paths = assumed_paths(contract)
    assert "spec.recovery.detect.timeout" in paths
    assert "spec.noData" in paths


def test_a_declared_value_is_never_called_assumed_and_an_omitted_one_always():
    text = STARTER.replace("  noData: unknown", "").replace("    softDeadline: 30s", "")
    paths = assumed_paths(parse_contract(text))
    assert {"spec.noData", "spec.recovery.softDeadline", "spec.objectives[1].minCount"} <= set(
        paths
    )
    assert "spec.recovery.detect.timeout" not in paths
    assert "spec.recovery.recurrence" not in paths
    assert "spec.noData" not in assumed_paths(parse_contract(STARTER))


def test_every_kind_of_objective_has_a_sentence():
    objectives = """
    - {name: a, indicator: ttft, percentile: p99, limit: 400ms}
    - {name: b, indicator: slo_goodput, ttft: 400ms, tpot: 50ms, minRate: 20}
    - {name: c, indicator: accepted_output_rate, target: 99.5%}
    - {name: d, indicator: lost_device_time, limit: 8h}
"""
    head, _, rest = STARTER.partition("  objectives:")
    text = f"{head}  objectives:{objectives}  noData: bad\n{rest[rest.index('  # The loop') :]}"
    said = words(parse_contract(text.replace("kind: training ", "kind: serving ")))
    assert "TTFT is at most 400 ms in 99 % of requests" in said["Objectives"]
    assert (
        "at least 20 requests per second have TTFT within 400 ms and TPOT within 50 ms"
        in said["Objectives"]
    )
    assert "99.5 % of outputs" in said["Objectives"]
    assert "more than 8 h of device time" in said["Objectives"]


def test_what_happens_to_a_slow_rank_is_said():
    replaced = "replaced once it has cost as much as replacing it (30 s"
    assert replaced in "\n".join(words(parse_contract(STARTER)).values())
    text = STARTER.replace("act: replace", "act: record")
    said = "\n".join(words(parse_contract(text)).values())
    assert "A rank that became slow is recorded and not replaced." in said
