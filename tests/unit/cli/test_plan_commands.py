"""`lastgood plan`, `what-if`, `project` and `reproduce chapter` as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.unit.evidence import made_fleet as made
from tests.unit.evidence.test_plan_records import drilled, growing

CHAPTER = (
    "--mtti",
    "185.584726min",
    "--checkpoint-cost",
    "1min",
    "--detection",
    "1min",
    "--recovery",
    "1min",
)


def words(result) -> str:
    return " ".join(result.stdout.split())


def test_a_plan_from_flags_names_kind_interval_and_the_command_that_gives_it_again(cli):
    result = cli("plan", *CHAPTER)
    assert result.exit_code == 0
    text = words(result)
    for part in (
        "Checkpoint about every 20 min of work (optimum 18.6 min; 16 min to 21.6 min are as good): at best 88.99 % of wall time is then useful (assumed)",
        "18.6 min assumed",
        "0.8901 assumed",
        "0.8853 assumed",
        "No input has an interval, so the result has none either.",
        "again: lastgood plan --mtti 185.584726min --checkpoint-cost 1min",
    ):
        assert part in text
    lines = [line for line in result.stdout.splitlines() if not line.startswith("again:")]
    assert max(map(len, lines)) <= 80


def test_a_plan_as_json_holds_every_figure_with_its_kind_and_interval(cli):
    told = cli("plan", *CHAPTER, "--set", "mtti=2.8h..3.09h..3.4h", "--json").json
    assert told["schema"] == "lastgood.plan/1"
    useful = told["figures"]["plan/useful fraction"]
    assert useful["kind"] == "assumed"
    assert useful["value"] == pytest.approx(0.8900, abs=2e-4)
    assert useful["interval"]["lo"] < useful["value"] < useful["interval"]["hi"]
    assert all(figure["kind"] for figure in told["figures"].values())


def test_the_same_command_gives_the_same_bytes_and_another_seed_other_draws(cli):
    arguments = ("plan", *CHAPTER, "--work", "2d", "--jobs", "50", "--json")
    first = cli(*arguments).stdout
    assert cli(*arguments).stdout == first
    assert cli(*arguments, "--seed", "1").stdout != first


def test_a_job_that_ends_has_quantiles_that_are_simulated(cli):
    told = cli("plan", *CHAPTER, "--work", "1d", "--jobs", "400", "--json").json
    figures = {figure["name"]: figure for figure in told["figures"].values()}
    for name in ("wall time, p50", "wall time, p90", "wall time, p99"):
        assert figures[name]["kind"] == "simulated"
        assert figures[name]["n"] == 400


def test_a_wanted_width_that_is_not_reached_is_exit_3_with_the_answer_printed(cli, monkeypatch):
    from lastgood.budget.montecarlo import replicate

    monkeypatch.setattr(replicate, "LEVEL", 0.999999)
    arguments = ("plan", *CHAPTER, "--work", "3h", "--jobs", "100", "--half-width", "0.0001%")
    monkeypatch.setattr(replicate, "BATCH_COUNT", 50)
    real = replicate.simulate
    monkeypatch.setattr(
        "lastgood.budget.plan_finite.simulate", lambda *a, **k: real(*a, **{**k, "count_max": 150})
    )
    result = cli(*arguments)
    assert result.exit_code == 3
    assert "p90 is wider than asked for" in result.stderr
    assert "Wall time until the last checkpoint" in result.stdout
    assert cli("plan", *CHAPTER, "--work", "3h", "--half-width", "wide").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--mtti", "10min"), 2, "checkpoint_cost is not given"),
        (("--mtti", "10"), 2, "write 10s"),
        ((*CHAPTER, "--set", "mti=3h"), 2, "write mtti"),
        ((*CHAPTER, "--set", "mtti"), 2, "needs NAME=VALUE"),
        (("none.yaml",), 2, "cannot be read"),
        (("--ledger", "none.db"), 2, "no such ledger"),
        (("--mtti", "10min", "--checkpoint-cost", "20min", "--first-order"), 3, "meaningless"),
        (
            ("--mtti", "10min", "--checkpoint-cost", "21min", "--rule", "young-period"),
            3,
            "not positive",
        ),
        ((*CHAPTER, "--html", "no/such/folder/plan.html"), 2, "cannot be written"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(
    cli, tmp_path, monkeypatch, arguments, exit_code, said
):
    monkeypatch.chdir(tmp_path)
    result = cli("plan", *arguments)
    assert (result.exit_code, result.stdout if exit_code != 2 else "") == (exit_code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "where", "needs"),
    [
        (("plan", *CHAPTER, "--half-width", "1%"), "--half-width", "needs --work"),
        (("plan", *CHAPTER, "--jobs", "1000"), "--jobs", "needs --work"),
        (("plan", *CHAPTER, "--engine", "auto"), "--engine", "needs --work"),
        (("plan", *CHAPTER, "--devices", "64"), "--devices", "needs --ledger"),
        (("plan", *CHAPTER, "--ledger", "l.db", "--devices", "64"), "--devices", "needs --ledger"),
        (("plan", *CHAPTER, "--set", "weibull_shape=0.7"), "--set weibull_shape", "needs --work"),
        (("plan", *CHAPTER, "--work", "1d", "--set", "burst_gap=1h"), "--set burst_gap", "needs --set burst_chance=..."),
        (("plan", *CHAPTER, "--set", "copies=3"), "--set copies", "machines=... and --set peer_copy"),
        (("what-if", *CHAPTER, "--work", "9d", "--change", "mtti=x2"), "--work", "needs one of: mtti"),
        (("what-if", *CHAPTER, "--devices", "64", "--change", "mtti=x2"), "--devices", "needs --ledger"),
        (("project", "--preset", "rsc-1", "--devices", "9", "--window", "3d"), "--window", "needs --events"),
        (("project", "--preset", "rsc-1", "--devices", "9", "--source-devices", "8"), "--source-devices", "one of the two"),
    ],
)  # fmt: skip
def test_an_option_that_would_change_nothing_is_refused(
    cli, tmp_path, monkeypatch, arguments, where, needs
):
    monkeypatch.chdir(tmp_path)
    growing().write(tmp_path / "l.db")
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert where in result.stderr
    assert needs in result.stderr


def test_an_input_of_a_file_that_the_plan_does_not_use_is_named(cli, tmp_path):
    head = "apiVersion: lastgood.dev/v1\nkind: PlanScenario\n"
    (tmp_path / "s.yaml").write_text(
        f"{head}spec: {{mtti: 5h, checkpoint_cost: 2min, copies: 3, snapshot_copy: 1s}}\n"
    )
    assert (
        "Given and not used: copies (needs machines and peer_copy_cost), snapshot_copy (needs snapshot_persist)."
        in words(cli("plan", tmp_path / "s.yaml"))
    )


def test_the_mean_time_of_a_file_is_not_replaced_by_a_ledger_at_the_devices_of_the_file(
    cli, tmp_path
):
    ledger = growing().write(tmp_path / "fleet.db")
    (tmp_path / "s.yaml").write_text(
        "apiVersion: lastgood.dev/v1\nkind: PlanScenario\n"
        "spec: {mtti: 5h, checkpoint_cost: 2min, devices: 1024}\n"
    )
    told = cli("plan", tmp_path / "s.yaml", "--ledger", ledger, "--json").json
    figures = {figure["name"]: figure for figure in told["figures"].values()}
    assert (figures["mtti"]["value"], figures["mtti"]["kind"]) == (5 * 3600e6, "assumed")


def test_flags_win_over_the_file_and_the_file_over_the_ledger(cli, tmp_path):
    ledger = growing().write(tmp_path / "fleet.db")
    (tmp_path / "s.yaml").write_text(
        "apiVersion: lastgood.dev/v1\nkind: PlanScenario\nspec: {mtti: 5h, checkpoint_cost: 2min}\n"
    )
    told = cli(
        "plan", tmp_path / "s.yaml", "--ledger", ledger, "--checkpoint-cost", "3min", "--json"
    ).json
    figures = {figure["name"]: figure for figure in told["figures"].values()}
    assert figures["mtti"]["value"] == 5 * 3600e6
    assert figures["checkpoint_cost"]["value"] == 3 * 60e6
    assert len(told["ledger_root"]) == 64


def test_what_is_counted_in_a_ledger_can_be_chosen_and_stands_in_the_command(cli, tmp_path):
    """The 8 hosts of a burst count once under a site-wide merge; the second half of the window is another count."""
    ledger = made.troubled().write(tmp_path / "fleet.db")
    base = ("plan", "--ledger", ledger, "--checkpoint-cost", "1min", "--json")
    for options, count in (
        ((), 153),
        (("--group", "links+merge:1s@site"), 146),
        (("--until", "2023-12-24"), None),
    ):
        told = cli(*base, *options).json
        figures = {figure["name"]: figure for figure in told["figures"].values()}
        found = figures["mean time between failures"]["n"]
        assert found == count if count else found < 100
        assert " ".join(options) in told["command"]
    for command in (
        ("plan", "--mtti", "3h", "--checkpoint-cost", "1min"),
        ("project", "--preset", "rsc-1", "--devices", "9"),
    ):
        refused = cli(*command, "--since", "2024-01-01")
        assert (refused.exit_code, "nothing to count" in refused.stderr) == (2, True)


def test_costs_of_the_ledger_stay_where_the_file_says_nothing(cli, tmp_path):
    ledger = drilled(body={"mode": "demo"}).write(tmp_path / "drill.db")
    (tmp_path / "s.yaml").write_text(
        "apiVersion: lastgood.dev/v1\nkind: PlanScenario\nspec: {stops: {gpu: 5h}, recovery: 1min}\n"
    )
    told = cli("plan", tmp_path / "s.yaml", "--ledger", ledger, "--json").json
    figures = {figure["name"]: figure for figure in told["figures"].values()}
    assert (figures["detection"]["kind"], figures["detection"]["value"]) == ("measured", 13e6)
    assert (figures["recovery"]["kind"], figures["recovery"]["value"]) == ("assumed", 60e6)


def test_a_ledger_at_another_size_is_projected_and_says_its_condition(cli, tmp_path):
    ledger = growing().write(tmp_path / "fleet.db")
    told = cli(
        "plan", "--ledger", ledger, "--checkpoint-cost", "1min", "--devices", "1024", "--json"
    ).json
    useful = told["figures"]["plan/useful fraction"]
    assert useful["kind"] == "projected"
    assert "scales linearly" in useful["condition"]
    assert "measured" in useful["kinds"]
    text = cli("plan", "--ledger", ledger, "--checkpoint-cost", "1min", "--devices", "1024")
    assert "The rate was carried to another size: it holds if every interrupting hazard" in words(
        text
    )
    without = made.fleet().write(tmp_path / "bare.db")
    refused = cli("plan", "--ledger", without, "--checkpoint-cost", "1min", "--devices", "64")
    assert refused.exit_code == 3
    assert "without exposure" in refused.stderr


def test_the_page_of_a_plan_from_a_ledger_names_root_and_inputs(cli, tmp_path):
    ledger = growing().write(tmp_path / "fleet.db")
    page = tmp_path / "plan.html"
    assert (
        cli("plan", "--ledger", ledger, "--checkpoint-cost", "1min", "--html", page).exit_code == 0
    )
    text = page.read_text(encoding="utf-8")
    assert (
        "The records under this root, the inputs above and the command give every number again."
        in text
    )
    assert "<dt>Ledger root</dt>" in text
    assert "<dt>Origin</dt>" not in text


def test_a_drill_gives_costs_but_its_rate_has_to_be_typed(cli, tmp_path):
    ledger = drilled(body={"mode": "demo"}).write(tmp_path / "drill.db")
    refused = cli("plan", "--ledger", ledger)
    assert refused.exit_code == 2
    assert "mtti is not given" in refused.stderr
    told = words(cli("plan", "--ledger", ledger, "--mtti", "3h"))
    assert "25 s measured" in told
    assert "5 injected faults are no rate" in told


def free_ledger(path):
    fleet = drilled(body={"mode": "demo"})
    for event in fleet.events:
        if event.kind == "checkpoint.commit":
            event.body["blocked_us"] = 0
    return fleet.write(path)


def test_checkpoints_that_block_nothing_are_an_answer_with_what_to_type(cli, tmp_path):
    """Writes of 2, 3 and 4 s: one every 3 s, and 4.5 s lost on average; 1 - (4.5 + 13 + 25)/10,800 is useful."""
    ledger = free_ledger(tmp_path / "l.db")
    answer = cli("plan", "--ledger", ledger, "--mtti", "3h")
    assert answer.exit_code == 0, answer.stderr
    told = words(answer)
    assert "3 checkpoints blocked the job for 0 s: what costs nothing has no best interval" in told
    assert "0 s measured" in told
    assert "lastgood run --checkpoint-every 3s" in told
    assert "--checkpoint-cost 30s makes the usual plan" in told
    figures = json.loads(cli("plan", "--ledger", ledger, "--mtti", "3h", "--json").stdout)
    figures = figures["figures"]
    assert (figures["plan/checkpoint_cost"]["value"], figures["plan/checkpoint_cost"]["n"]) == (0, 3)  # fmt: skip
    assert figures["plan/interval"]["value"] == pytest.approx(3e6, rel=1e-6)
    assert figures["plan/work_lost"]["value"] == pytest.approx(4.5e6, rel=1e-6)
    assert figures["plan/useful"]["value"] == pytest.approx(1 - 42.5 / 10_800, rel=1e-6)


def test_a_rate_is_not_needed_for_it_and_a_typed_cost_makes_the_usual_plan(cli, tmp_path):
    ledger = free_ledger(tmp_path / "l.db")
    without = cli("plan", "--ledger", ledger)
    assert without.exit_code == 0
    assert "useful" not in without.stdout.lower()
    usual = words(cli("plan", "--ledger", ledger, "--mtti", "3h", "--checkpoint-cost", "30s"))
    assert "Useful fraction E, exact" in usual


@pytest.mark.parametrize("more", [("--rule", "young"), ("--first-order",), ("--work", "30d")])
def test_what_needs_a_cost_is_refused_with_what_was_measured(cli, tmp_path, more):
    ledger = free_ledger(tmp_path / "l.db")
    refused = cli("plan", "--ledger", ledger, "--mtti", "3h", *more)
    assert refused.exit_code == 2
    assert "beside the job, in 3 s each, and blocked it for 0 s" in " ".join(refused.stderr.split())


def test_what_if_ranks_changes_and_says_how_sure_the_order_is(cli):
    result = cli(
        "what-if", *CHAPTER, "--set", "mtti=2.8h..3.09h..3.4h", "--change", "checkpoint_cost=30s", "--change", "mtti=x2"
    )  # fmt: skip
    assert result.exit_code == 0
    text = words(result)
    assert text.index("mtti=x2 ") < text.index("checkpoint_cost=30s ")
    assert "All changes rank as shown in 1.0000" in text
    assert "all together" in text
    lines = [line for line in result.stdout.splitlines() if not line.startswith("again:")]
    assert max(map(len, lines)) <= 80
    assert cli("what-if", *CHAPTER, "--change", "nothing=1").exit_code == 2
    told = cli("what-if", *CHAPTER, "--change", "mtti=x2", "--json").json
    assert told["schema"] == "lastgood.what_if/1"


def test_a_projection_is_never_a_bare_number(cli):
    result = cli("project", "--preset", "rsc-1", "--devices", "1024")
    assert result.exit_code == 0
    text = words(result)
    for part in (
        "If every interrupting hazard scales linearly with devices and nothing else changes",
        "28.8 h projected",
        "observed 11 months on 16,000 devices of RSC-1",
        "extrapolated",
        "7.9 h",
        "3.65",
        "too hopeful by a factor of 3.7",
    ):
        assert part in text
    told = cli("project", "--preset", "rsc-1", "--devices", "1024", "--json").json
    projected = [figure for figure in told["figures"].values() if "projected" in figure["kinds"]]
    assert len(projected) >= 3
    assert all(f["condition"] and f["source_window"] and f["extrapolation"] for f in projected)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--preset", "llama3", "--devices", "200000"), 3, "--accept extrapolation"),
        (("--events", "419", "--window", "54d", "--devices", "100000"), 3, "without exposure"),
        (("--ledger", "drill.db", "--devices", "64"), 3, "injected are not a rate"),
        (("--ledger", "bare.db", "--devices", "64"), 3, "without exposure"),
        (("simulated.yaml", "--devices", "64"), 3, "simulated figure is not a rate"),
        (("no-devices.yaml", "--devices", "64"), 3, "without exposure"),
        (("--devices", "64"), 2, "needs one source"),
        (("--preset", "rsc-1", "--ledger", "bare.db", "--devices", "64"), 2, "--ledger and --preset"),
        (("--events", "419", "--devices", "64"), 2, "needs its window"),
        (("--events", "419", "--window", "0s", "--source-devices", "8", "--devices", "64"), 2, "--window: a window lasts: found 0s"),
    ],
)  # fmt: skip
def test_what_is_no_rate_or_too_far_is_refused(
    cli, tmp_path, monkeypatch, arguments, exit_code, said
):
    monkeypatch.chdir(tmp_path)
    drilled(body={"mode": "demo"}).write(tmp_path / "drill.db")
    made.fleet().write(tmp_path / "bare.db")
    head = "apiVersion: lastgood.dev/v1\nkind: PlanScenario\n"
    (tmp_path / "simulated.yaml").write_text(
        f"{head}spec: {{devices: 64, mtti: {{value: 3h, basis: simulated, source: x}}}}\n"
    )
    (tmp_path / "no-devices.yaml").write_text(f"{head}spec: {{mtti: 3h}}\n")
    result = cli("project", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert said in result.stderr


def test_a_projection_names_the_option_that_was_typed(cli, tmp_path):
    ledger = made.fleet().write(tmp_path / "bare.db")
    text = words(
        cli("project", "--ledger", ledger, "--source-devices", "3200", "--devices", "1024")
    )
    assert "device-h, --source-devices 3200" in text
    assert "--devices 3200" not in text.replace("--source-devices 3200", "")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said", "unsaid"),
    [
        (("project", "--ledger", "bare.db", "--devices", "64"), 3, "give --source-devices", "lastgood project"),
        (("plan", "--ledger", "bare.db", "--checkpoint-cost", "1min", "--devices", "64"), 3, "lastgood project takes it: --source-devices N", "give --source"),
        (("project", "no-mean.yaml", "--devices", "64"), 2, "write mtti: 3.09h under spec:", "--mtti"),
        (("project", "--preset", "llama3", "--devices", "1000000"), 3, "1,000,000 devices, a factor of 61", "1e+06"),
        (("plan", "--ledger", "fleet.db", "--checkpoint-cost", "1min", "--devices", "9000"), 3, "lastgood project --accept extrapolation", "one of"),
        (("plan", "far.yaml", "--ledger", "fleet.db"), 3, "far.yaml:4", "--devices"),
    ],
)  # fmt: skip
def test_a_message_names_an_option_only_where_there_is_one(
    cli, tmp_path, monkeypatch, arguments, exit_code, said, unsaid
):
    monkeypatch.chdir(tmp_path)
    made.fleet().write(tmp_path / "bare.db")
    growing().write(tmp_path / "fleet.db")
    head = "apiVersion: lastgood.dev/v1\nkind: PlanScenario\nspec:\n"
    (tmp_path / "no-mean.yaml").write_text(f"{head}  devices: 64\n")
    (tmp_path / "far.yaml").write_text(f"{head}  devices: 9000\n  checkpoint_cost: 1min\n")
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert said in result.stderr
    assert unsaid not in result.stderr


def test_the_source_chapter_is_printed_beside_the_exact_numbers(cli):
    result = cli("reproduce", "chapter")
    assert result.exit_code == 0
    text = words(result)
    for part in (
        "3.09 h",
        "19.3 min",
        "88.5 %",
        "30.4 min projected",
        "Exact: checkpoint after 18.60 min of work, 89.01 % of wall time is useful.",
        "First order: 19.27 min and 88.54 %.",
        "if every interrupting hazard scales linearly",
    ):
        assert part in text
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    table = cli("reproduce", "chapter", "--json").json["section"]["tables"][0]
    printed, recomputed, exact = (table["rows"][2][i] for i in (1, 2, 3))
    assert (printed["kind"], printed["value"]) == ("reported", 88.5)
    assert (recomputed["kind"], exact["kind"]) == ("assumed", "assumed")
    assert (recomputed["value"], exact["value"]) == (88.5412, 89.0118)


def test_the_names_of_the_commands_load_no_numpy():
    code = (
        "import sys\nfrom lastgood.cli.main import main\n"
        "import lastgood.cli.plan_commands, lastgood.cli.reproduce_chapter\n"
        "code = main(['plan', '--help'])\n"
        "print(sorted({'numpy', 'scipy', 'numba', 'rich'} & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stderr.strip() == "[]"
