"""Inputs of a plan: where they come from, what they are worth, and every way in which a file can be wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.errors import BadInput, LastgoodError, Problems
from lastgood.base.figures import Figure, FigureKind, Interval
from lastgood.budget.sampling import draw, interval_from, spread_around
from lastgood.budget.scenario import QUANTITIES, Scenario, read_value
from lastgood.budget.scenario_file import load_scenario, parse_scenario

MIN, H = 60e6, 3600e6
HEAD = "apiVersion: lastgood.dev/v1\nkind: PlanScenario\n"


def parse(body: str, head: str = HEAD) -> Scenario:
    return parse_scenario((head + body).encode(), source="plan.yaml")


def problems(body: str, head: str = HEAD) -> list[str]:
    with pytest.raises(Problems) as caught:
        parse(body, head)
    return str(caught.value).splitlines()


def test_a_bare_number_is_assumed_and_a_stated_basis_is_kept():
    scenario = parse(
        "spec:\n"
        "  checkpoint_cost: 1min\n"
        "  detection: {value: 30s, basis: measured, source: job 7, ci: [20s, 45s], n: 40}\n"
        "  recovery: {value: 2min, basis: fitted, source: drill}\n"
    )
    cost, detection = scenario.figure("checkpoint_cost"), scenario.figure("detection")
    assert (cost.value, cost.kind, cost.source) == (MIN, FigureKind.ASSUMED, "plan.yaml:4")
    assert (detection.kind, detection.n) == (FigureKind.MEASURED, 40)
    assert detection.interval == Interval(lo=20e6, hi=45e6, level=0.95, method="as given")
    assert scenario.figure("recovery").kind is FigureKind.MODELLED
    assert scenario.figure("work").value is None
    assert scenario.figure("retained_checkpoints").kind is FigureKind.ASSUMED


def test_a_count_in_a_window_is_a_mean_time_with_an_exact_interval():
    """419 events in 54 days: 3.0931 h; Garwood's limits of a Poisson count are 379.84 and 461.10."""
    scenario = parse('spec: {mtti: {events: 419, window: 54d, basis: reported, source: "x"}}\n')
    mean = scenario.figure("mtti")
    assert mean.value == pytest.approx(3.093079 * H, rel=1e-6)
    assert mean.interval is not None
    assert 54 * 24 * H / mean.interval.hi == pytest.approx(379.84, abs=0.02)
    assert 54 * 24 * H / mean.interval.lo == pytest.approx(461.10, abs=0.02)
    assert (mean.n, mean.kind) == (419, FigureKind.REPORTED)


def test_rates_of_domains_add_up():
    scenario = parse("spec: {stops: {gpu: 4h, network: 12h, host: 6h}}\n")
    joint = scenario.figure("mtti")
    assert joint.value == pytest.approx(2 * H)  # 1/4 + 1/12 + 1/6 = 1/2
    assert "independent" in joint.assumptions[0]
    scenario.require(("mtti",))


def test_every_problem_of_a_file_is_reported_at_once_with_its_line():
    found = problems(
        "spec:\n"
        "  mtti: {events: 0, window: 54, basis: reportd}\n"
        "  checkpoint_costt: 1min\n"
        "  checkpoint_cost: 60\n"
        "  detection: {value: -1min}\n"
        "  recovery: {valu: 1min}\n"
        "  devices: 1.5\n"
        "  snapshot_slowdown: 2\n"
        "  work: {value: 1d, basis: measured}\n"
        "  burst_gap: {value: 1min, ci: [2min, 3min]}\n"
        "  levels: [{name: a, mtti: 1h}]\n",
        head="apiVersion: lastgood.dev/v9\nkind: PlanScenario\n",
    )
    text = "\n".join(found)
    for line, words in (
        (1, "apiVersion: found lastgood.dev/v9"),
        (4, "spec.mtti.events: found 0"),
        (4, "spec.mtti.window: found '54'"),
        (4, "spec.mtti.basis: found reportd"),
        (5, "write checkpoint_cost"),
        (6, "spec.checkpoint_cost: found '60'"),
        (7, "spec.detection.value"),
        (8, "spec.recovery.valu: found an unknown key"),
        (9, "spec.devices: found 1.5, needs a whole number"),
        (10, "spec.snapshot_slowdown: found 2"),
        (11, "spec.work.source: found nothing, needs where this measured value comes from"),
        (12, "spec.burst_gap.ci"),
        (13, "spec.levels[0].checkpoint_cost"),
    ):
        assert any(one.startswith(f"plan.yaml:{line}:") and words in one for one in found), (
            line,
            words,
            text,
        )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("spec: {mtti: 1h, stops: {gpu: 2h}}\n", "needs one of them"),
        ("spec: 3\n", "spec: found 3, needs a mapping"),
        ("spec: {stops: {}}\n", "needs fault domains"),
        ("spec: {levels: 3}\n", "needs a list of 1 to 12 levels"),
        ("spec: {recovery_exposed: maybe}\n", "needs true or false"),
        ("spec: {mtti: {value: 1h, level: 2}}\n", "needs a level"),
    ],
)
def test_a_wrong_shape_says_what_is_needed(body, words):
    assert any(words in one for one in problems(body))


def test_a_file_that_is_not_there_or_empty_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load_scenario(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text(" \n")
    with pytest.raises(BadInput, match="empty scenario"):
        load_scenario(tmp_path / "empty.yaml")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (HEAD + text).encode()))
def test_any_bytes_end_in_a_scenario_or_in_problems(raw):
    codes = set()
    try:
        parse_scenario(raw, source="x")
    except LastgoodError as error:
        codes.add(error.exit_code)
    assert codes <= {2}


def test_a_typed_value_may_carry_its_interval():
    figure = read_value("mtti", "2.8h..3.09h..3.4h", where="--mtti")
    assert figure.value == pytest.approx(3.09 * H)
    assert figure.interval is not None
    assert figure.interval.lo == pytest.approx(2.8 * H)
    assert figure.kind is FigureKind.ASSUMED
    assert read_value("checkpoint-failure", "2%", where="x").value == pytest.approx(0.02)
    assert read_value("recovery_exposed", "false", where="x").value == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mtti", "3.09", "write 3.09s"),
        ("mtti", "0s", "more than zero"),
        ("mtti", "1h..2h", "LOW..VALUE..HIGH"),
        ("mtti", "3h..2h..4h", "low <= value <= high"),
        ("mti", "3h", "write mtti"),
        ("devices", "2.5", "whole number"),
        ("checkpoint_failure", "120%", "between 0 and 1"),
        ("weibull_shape", "x", "not a number"),
    ],
)
def test_a_typed_value_that_means_nothing_says_what_to_write(name, text, words):
    with pytest.raises(BadInput) as caught:
        read_value(name, text, where="--set")
    assert words in str(caught.value)


def test_missing_inputs_are_named_together():
    with pytest.raises(Problems) as caught:
        Scenario().require()
    assert "mtti is not given" in str(caught.value)
    assert "write --checkpoint-cost 1min" in str(caught.value)


def test_every_quantity_has_a_title_and_a_default_only_where_it_is_harmless():
    assert all(one.title and name == one.name for name, one in QUANTITIES.items())
    assert QUANTITIES["mtti"].default is None
    assert QUANTITIES["checkpoint_cost"].default is None


def uncertain(name, lo, value, hi):
    interval = Interval(lo=lo, hi=hi, level=0.95, method="test")
    kind = FigureKind.MEASURED
    return Figure(name=name, value=value, unit="us", kind=kind, interval=interval)


def test_drawn_inputs_have_the_interval_that_was_given():
    """The ends are quantiles at 2.5 and 97.5 %, the value is the median."""
    given = {"mtti": uncertain("mtti", 2.0, 3.0, 5.0), "checkpoint_cost": uncertain("c", 1, 1, 1)}
    samples = draw(Scenario(given=given), seed=1, count=40_000)
    values = sorted(samples.values["mtti"])
    assert values[1_000] == pytest.approx(2.0, rel=0.02)
    assert values[20_000] == pytest.approx(3.0, rel=0.02)
    assert values[39_000] == pytest.approx(5.0, rel=0.02)
    assert set(samples.values["detection"]) == {0.0}
    assert samples.varied == ("mtti", "checkpoint_cost")
    assert "detection, recovery held fixed" in samples.method
    made = interval_from(samples.values["mtti"], samples)
    assert made is not None
    assert (made.lo, made.hi) == pytest.approx((2.0, 5.0), rel=0.02)


def test_two_scenarios_that_share_an_input_draw_the_same_values_of_it():
    first = Scenario(
        given={"mtti": uncertain("mtti", 2, 3, 5), "checkpoint_cost": uncertain("c", 1, 2, 3)}
    )
    other = first.with_given({"checkpoint_cost": uncertain("c", 4, 5, 6)})
    a, b = (draw(one, seed=4, count=50) for one in (first, other))
    assert a.values["mtti"] == b.values["mtti"]
    assert a.values["checkpoint_cost"] != b.values["checkpoint_cost"]
    assert draw(first, seed=5, count=50).values["mtti"] != a.values["mtti"]


def test_domains_are_drawn_one_by_one():
    gpu, net = uncertain("gpu", 3, 4, 6), uncertain("net", 8, 12, 20)
    joint = draw(Scenario(stops={"gpu": gpu, "net": net}, given={"checkpoint_cost": gpu}), seed=1)
    assert joint.varied[0] == "mtti"
    middle = sorted(joint.values["mtti"])[len(joint.values["mtti"]) // 2]
    assert middle == pytest.approx(3.0, rel=0.03)  # 1/(1/4 + 1/12)


def test_an_interval_that_reaches_zero_is_drawn_without_a_logarithm():
    import numpy as np

    z = np.array([-10.0, -1.959964, 0.0, 1.959964])
    drawn = spread_around(1.0, Interval(lo=0.0, hi=3.0, level=0.95, method="x"), z)
    assert drawn.tolist() == pytest.approx([0.0, 0.0, 1.0, 3.0], abs=1e-6)


def test_inputs_are_drawn_independently_of_each_other():
    import numpy as np

    given = {name: uncertain(name, 2, 3, 5) for name in ("mtti", "checkpoint_cost", "detection")}
    values = draw(Scenario(given=given), seed=1, count=4_000).values
    correlation = np.corrcoef([values[name] for name in given]) - np.eye(3)
    assert np.abs(correlation).max() < 0.06  # about 3.8 standard errors


def test_an_input_at_the_top_of_a_file_is_sent_under_spec_and_a_typo_to_the_nearest_key():
    for key, write in (("mtti", "mtti"), ("stops", "stops"), ("checkpont-cost", "checkpoint_cost")):
        (line,) = problems(f"{key}: 3h\nspec: {{}}\n")
        assert line.startswith(f"plan.yaml:3: {key}: found an unknown key"), line
        assert line.endswith(f"needs every input of a plan under spec:; write {write} under spec:")
    (line,) = problems("metdata: {}\n")
    assert line.endswith("needs one of apiVersion, kind, metadata, spec; write metadata")
    (line,) = problems("spec: {checkpont_cost: 1min}\n")
    assert line.endswith("write checkpoint_cost")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3h..2h..4h", "3h..2h..4h"),
        ("0s", "0s"),
        ("", "nothing"),
        (" ", "nothing"),
        ("1h....3h", "'1h....3h'"),
    ],
)
def test_a_typed_value_is_shown_as_it_was_typed(text, found):
    with pytest.raises(BadInput) as caught:
        read_value("mtti", text, where="--mtti")
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("spec: {mtti: {value: 2h, ci: [3h, 4h]}}\n", "found 3h .. 2h .. 4h, needs low <= value"),
        ("spec: {mtti: 0s}\n", "found 0s, needs more than zero"),
        ("spec: {mtti: }\n", "found nothing, needs a duration with a unit"),
        ("spec: {devices: }\n", "found nothing, needs a whole number"),
        ("spec: {mtti: {value: }}\n", "found no value"),
        ("spec: {mtti: {events: , window: 54d}}\n", "found nothing, needs a whole number above 0"),
        ("spec: {mtti: {events: 3, window: }}\n", "found nothing, needs a duration with a unit"),
        ("spec: {levels: [{mtti: 3h}]}\n", "found nothing, needs a duration with a unit"),
        (
            "spec: {mtti: {value: 3h, ci: [null, 4h]}}\n",
            "found nothing, needs a duration with a unit",
        ),
    ],
)
def test_a_value_of_a_file_is_shown_as_it_was_written(body, found):
    assert any(found in line for line in problems(body)), problems(body)


@pytest.mark.parametrize(
    "name",
    ["burst_chance", "checkpoint_failure", "retention_risk", "snapshot_slowdown", "spare_chance", "ettr_wanted"],
)  # fmt: skip
def test_a_share_that_would_leave_nothing_is_refused_where_it_is_typed(name):
    with pytest.raises(BadInput) as caught:
        read_value(name, "100%", where=f"--set {name}=100%")
    assert (caught.value.found, caught.value.needs) == ("100%", "less than 1, or than 100 %")
    assert read_value(name, "99%", where="test").value == 0.99


def test_bursts_that_do_not_fit_are_told_in_words():
    from lastgood.budget.plan_finite import job_model

    typed = {"mtti": "3h", "checkpoint_cost": "1min", "work": "1d", "burst_chance": "50%", "burst_gap": "8h"}  # fmt: skip
    scenario = Scenario(given={n: read_value(n, text, where="test") for n, text in typed.items()})
    with pytest.raises(BadInput, match=r"found 0\.5 times 8 h"):
        job_model(scenario, work=20 * MIN)
