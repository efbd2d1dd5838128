"""A contract file becomes a contract, or every one of its problems with its line."""

import pytest

from lastgood.base.errors import Problems
from lastgood.contract.load import contract_digest, default_contract, load_contract, parse_contract
from lastgood.contract.model import contract_text
from lastgood.contract.recovery_table import Notify
from lastgood.contract.starter import starter_text
from lastgood.contract.values import OnTimeout

STARTER = starter_text()


def problems_of(text: str | bytes, *, needs_duties: bool = False) -> list[str]:
    with pytest.raises(Problems) as caught:
        parse_contract(text, source="c.yaml", needs_duties=needs_duties)
    return [str(problem) for problem in caught.value.problems]


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def test_the_starter_is_complete_and_its_numbers_arrive_in_microseconds():
    contract = parse_contract(STARTER, needs_duties=True)
    recovery = contract.spec.recovery
    assert recovery.detect.timeout_us == 60_000_000
    assert recovery.restore.timeout_us == 120_000_000
    assert recovery.recurrence.window_us == 1_800_000_000
    assert recovery.recurrence.limit == 2
    assert recovery.verify.owner == "supervisor"
    assert [
        recovery.row(name).on_timeout for name in ("detect", "isolate", "restore", "verify")
    ] == [OnTimeout.ESCALATE, OnTimeout.WIDEN, OnTimeout.FALL_BACK, OnTimeout.FALL_BACK]
    assert contract.spec.window.duration_us == 28 * 86_400_000_000
    assert contract.spec.no_data == "unknown"


def test_a_contract_written_out_reads_back_equal_with_an_equal_digest():
    contract = parse_contract(STARTER)
    again = parse_contract(contract_text(contract))
    assert contract == again
    assert contract_digest(contract) == contract_digest(again)


def test_the_digest_changes_with_any_meaning_and_not_with_a_comment_or_a_spelling():
    digest = contract_digest(parse_contract(STARTER))
    assert digest == contract_digest(parse_contract("# another comment\n" + STARTER))
    assert digest == contract_digest(parse_contract(STARTER.replace("target: 0.97", "target: 97%")))
    assert digest == contract_digest(parse_contract(STARTER.replace("limit: 60s", "limit: 1min")))
    assert digest != contract_digest(
        parse_contract(STARTER.replace("target: 0.97", "target: 0.96"))
    )


@pytest.mark.parametrize("kind", ["training", "serving", "agents"])
def test_without_a_contract_every_value_is_assumed_and_nothing_is_promised(kind):
    contract = default_contract(kind)
    assert contract.is_assumed
    assert kind == contract.spec.workload.kind
    assert contract.spec.objectives == ()
    assert contract.spec.budgets == ()
    assert contract.spec.duties.of(kind).owner is None
    assert not parse_contract(STARTER).is_assumed


def test_a_value_of_the_wrong_size_is_named_with_its_line_and_what_to_write():
    text = STARTER.replace("target: 0.97", "target: 97  ")
    expected = (
        f"c.yaml:{line_of(text, 'target: 97')}: spec.objectives[0].target: found 97, "
        "needs a ratio between 0 and 1; write 0.97"
    )
    assert [expected] == problems_of(text)


def test_a_misspelt_key_is_recognised_and_what_lies_below_it_is_still_checked():
    text = STARTER.replace("  recovery:", "  recovry:").replace("timeout: 30s", "timeout: 30")
    at = line_of(text, "recovry:")
    found = problems_of(text)
    assert [
        f"c.yaml:{at}: spec.recovry",
        f"c.yaml:{line_of(text, 'timeout: 30')}: spec.recovery.isolate.timeout",
    ] == [problem.rpartition(": found")[0] for problem in found]
    assert found[0].endswith("; write recovery")
    assert found[1].endswith(
        "found 30, needs a duration with its unit (ms, s, min, h, d); write 30s"
    )


def test_problems_of_every_sort_come_in_one_round_and_in_the_order_of_lines():
    text = (
        STARTER.replace("kind: training ", "kind: trainng ")
        .replace("[fail_stop, fail_slow, sdc]", "[fail_stop, planned]")
        .replace("name: detection", "name: useful-time")
        .replace("objective: useful-time", "objective: lost-work")
        .replace("indicator: lost_steps", "indicator: ttft")
        .replace("owner: training-platform", "")
    )
    found = problems_of(text, needs_duties=True)
    lines = [int(problem.split(":")[1]) for problem in found]
    assert sorted(lines) == lines
    for part in (
        "spec.workload.kind: found trainng",
        "spec.failure.excludes[0]: found planned, which counts too",
        "spec.objectives[1].name: found useful-time again",
        "spec.objectives[3].percentile: found nothing",
        "spec.budgets[0].objective: found lost-work, which has no ratio",
        "spec.duties.training.owner: found nothing",
    ):
        assert any(part in problem for problem in found), (part, found)


def test_an_objective_of_another_workload_is_refused_by_name():
    text = STARTER.replace("kind: training ", "kind: serving ")
    found = problems_of(text)
    assert len(found) == 2
    assert "spec.objectives[0].indicator: found ettr for a serving workload" in found[0]
    assert "spec.objectives[3].indicator: found lost_steps for a serving workload" in found[1]


SERVING = """
    - {name: first-token, indicator: ttft, percentile: p99, limit: 400ms}
    - {name: goodput, indicator: slo_goodput, ttft: 400ms, tpot: 50ms, minRate: 20}
    - {name: accepted, indicator: accepted_output_rate, target: 99.5%}
"""
AGENTS = """
    - {name: done, indicator: verified_completion, target: 0.9}
    - {name: again, indicator: pass_hat_k, k: 4, target: 0.6}
"""


@pytest.mark.parametrize(("kind", "objectives"), [("serving", SERVING), ("agents", AGENTS)])
def test_serving_and_agents_have_objectives_of_their_own(kind, objectives):
    head, _, rest = STARTER.partition("  objectives:")
    budgets = rest[rest.index("    # Rare events") :]
    text = f"{head}  objectives:{objectives}  budgets:\n{budgets}".replace(
        "kind: training ", f"kind: {kind} "
    )
    contract = parse_contract(text)
    assert kind == contract.spec.workload.kind
    assert objectives.count("name:") == len(contract.spec.objectives)


def test_a_contract_without_duties_runs_but_does_not_pass_the_check():
    text = STARTER[: STARTER.index("  # The proof that recovery works")]
    assert parse_contract(text).spec.duties.of("training").replay_test is None
    found = problems_of(text, needs_duties=True)
    assert [problem.split("spec.duties.training.")[1].split(":")[0] for problem in found] == [
        "replayTest",
        "injection",
        "accept",
        "owner",
    ]


def test_a_duty_of_another_layer_that_was_begun_has_to_be_finished_too():
    text = STARTER + "    serving: {owner: serving-platform}\n"
    with pytest.raises(Problems):
        parse_contract(text, needs_duties=True)


def test_escaped_corruption_has_no_other_limit_than_zero():
    text = STARTER.replace("limit: 0 ", "limit: 3 ")
    assert problems_of(text)[0].endswith("spec.objectives[4].limit: found 3, needs 0; write 0")


def test_a_window_is_rolling_or_follows_a_calendar_and_never_both():
    calendar = "calendar: {startTime: 2026-01-01T00:00}"
    assert (
        parse_contract(STARTER.replace("isRolling: true ", calendar)).spec.window.calendar
        is not None
    )
    both = problems_of(STARTER.replace("isRolling: true ", f"isRolling: true\n    {calendar}"))
    assert "found a calendar in a rolling window" in both[0]
    assert "found neither" in problems_of(STARTER.replace("isRolling: true ", ""))[0]


@pytest.mark.parametrize(
    ("notify", "is_fine"),
    [
        ("{command: [/bin/page, oncall]}", True),
        ('{alertmanager: "http://alerts:9093"}', True),
        ("{}", False),
        ("{command: []}", False),
        ('{command: [/bin/page], alertmanager: "http://alerts:9093"}', False),
        ("{alertmanager: alerts}", False),
    ],
)
def test_an_escalation_goes_to_one_command_or_one_alertmanager(notify, is_fine):
    text = STARTER.replace("    softDeadline", f"    notify: {notify}\n    softDeadline")
    if is_fine:
        assert isinstance(parse_contract(text).spec.recovery.notify_for("verify"), Notify)
    else:
        assert any("spec.recovery.notify" in problem for problem in problems_of(text))


def test_a_row_may_notify_somebody_else():
    text = STARTER.replace(
        "      accept: one replayed", "      notify: {command: [a]}\n      accept: one replayed"
    )
    recovery = parse_contract(text).spec.recovery
    assert recovery.notify_for("verify") == Notify(command=("a",))
    assert recovery.notify_for("detect") is None


def test_a_file_that_is_not_there_is_a_problem_and_no_traceback(tmp_path):
    with pytest.raises(Problems, match="no such file"):
        load_contract(tmp_path / "none.yaml")
    with pytest.raises(Problems, match="is a directory"):
        load_contract(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("devices: 4 ", "devices: 4.0 ", "found 4.0, needs a whole number; write 4"),
        ("devices: 4 ", "devices: '4' ", 'found the text "4", needs a whole number; write 4'),
        ("devices: 4 ", "devices: true ", "found true, needs a whole number; write 8"),
        ("max: 10", "max: -1", "found -1, needs at least 0; write 0"),
        ("alpha: 0.05", "alpha: 0", "found 0, needs more than 0; write 0.05"),
        ("isRolling: true ", "isRolling: 'true' ", 'found the text "true", needs true or false; write true'),
        ("owner: training-platform", "owner: 7", "found 7, needs text; write training-platform"),
        ("counts: [fail_stop, fail_slow, sdc]", "counts: sdc", "found sdc, needs a list; write [fail_stop, fail_slow, sdc]"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_told_what_to_write(old, new, expected):
    assert any(problem.endswith(expected) for problem in problems_of(STARTER.replace(old, new)))
