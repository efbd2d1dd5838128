"""`lastgood rates` as a person runs it: rates only over exposure, intervals that are said, nothing injected in them."""

from __future__ import annotations

import csv
import io

import pytest

from tests.unit.evidence import made_fleet as made

RATES = "rates"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fleets")


@pytest.fixture(scope="module")
def plain(folder):
    return made.troubled().write(folder / "plain.db")


@pytest.fixture(scope="module")
def again(folder):
    """The same records in a ledger of their own."""
    return made.troubled().write(folder / "again.db")


@pytest.fixture(scope="module")
def exposed(folder):
    return made.troubled(with_exposure=True).write(folder / "exposed.db")


def row_of(document, by, group):
    return next(r for r in document["rows"] if (r["by"], r["group"]) == (by, group))


# --- exposure -----------------------------------------------------------------------------------------------


def test_without_exposure_there_are_counts_and_never_a_rate(cli, plain):
    text = cli(RATES, "--ledger", plain).stdout
    assert "exposure unknown; give --devices or node events" in " ".join(text.split()).lower()
    told = cli(RATES, "--ledger", plain, "--json").json
    assert told["exposure"] is None
    assert {row["rate"] for row in told["rows"]} == {None}
    assert {row["mean_time_h"] for row in told["rows"]} == {None}
    assert row_of(told, "all", "all")["count"] == 153


def test_a_rate_is_the_count_over_the_device_hours_of_the_records(cli, exposed):
    told = cli(RATES, "--ledger", exposed, "--json").json
    assert told["exposure"] == {
        "value": made.DEVICE_HOURS, "unit": "device-h", "source": "join and leave records", "is_assumed": False,
    }  # fmt: skip
    row = row_of(told, "all", "all")
    assert row["rate"] == pytest.approx(1_000_000 * 153 / made.DEVICE_HOURS)
    assert (row["rate_unit"], row["kind"]) == ("per million device-h", "measured")
    assert row["mean_time_h"] == pytest.approx(made.HOURS / 153)


def test_a_typed_number_of_devices_makes_the_rate_an_assumed_one(cli, plain):
    row = row_of(cli(RATES, "--ledger", plain, "--devices", "320", "--json").json, "all", "all")
    assert (row["kind"], row["exposure"]) == ("assumed", made.DEVICE_HOURS)


# --- intervals ----------------------------------------------------------------------------------------------


def test_the_headline_interval_holds_the_rate_and_is_wider_than_the_exact_one_on_bursts(cli, plain):
    row = row_of(cli(RATES, "--ledger", plain, "--nodes", "40", "--json").json, "all", "all")
    assert row["rate_lo"] < row["exact_lo"] < row["rate"] < row["exact_hi"] < row["rate_hi"]
    assert row["method"] == "by-node"
    assert row["choice"].startswith("chosen by test: nodes differ more than chance")


def test_an_interval_fixed_in_advance_is_said_to_be_no_choice_of_a_test(cli, plain):
    asked = (RATES, "--ledger", plain, "--nodes", "40", "--interval", "exact")
    row = row_of(cli(*asked, "--json").json, "all", "all")
    assert (row["rate_lo"], row["rate_hi"]) == pytest.approx((row["exact_lo"], row["exact_hi"]))
    assert row["choice"].startswith("fixed in advance")
    assert "Fixed in advance" in cli(*asked).stdout


def test_six_events_give_count_exposure_and_exact_interval_and_nothing_is_tested(cli, folder):
    """Six events in 54 days: one every 216 h, 99 to 589 by Garwood."""
    ledger = made.few().write(folder / "few.db")
    told = cli(RATES, "--ledger", ledger, "--nodes", "6", "--json").json
    row = row_of(told, "all", "all")
    assert row["mean_time_h"] == pytest.approx(216)
    assert (row["mean_time_lo_h"], row["mean_time_hi_h"]) == pytest.approx((99.2, 588.6), abs=0.1)
    assert (row["method"], row["trend"], row["trend_p"]) == ("exact", "too few", None)
    assert "too few to test" in " ".join(cli(RATES, "--ledger", ledger).stdout.split()).lower()


# --- groups -------------------------------------------------------------------------------------------------


def test_a_fleet_without_a_trend_has_a_part_that_rises_and_one_that_falls(cli, plain):
    told = cli(RATES, "--ledger", plain, "--by", "label", "--json").json
    assert row_of(told, "all", "all")["trend"] == "not shown"
    assert row_of(told, "label", "Hardware/GPU")["trend"] == "rising"
    assert row_of(told, "label", "Hardware/Cable")["trend"] == "falling"
    assert row_of(told, "label", "Hardware/Cable")["trend_p_holm"] < 0.05


def test_only_the_tables_that_were_asked_for_are_made(cli, plain):
    told = cli(RATES, "--ledger", plain, "--by", "cause", "--by", "class", "--json").json
    assert {row["by"] for row in told["rows"]} == {"all", "cause", "class"}


def test_every_row_names_its_layer_and_its_rule(cli, plain):
    told = cli(RATES, "--ledger", plain, "--group", "links+merge:1s@site", "--json").json
    assert {row["layer"] for row in told["rows"]} == {"incidents"}
    assert all(row["rule"].startswith("links+merge:1s@site") for row in told["rows"])
    assert told["counts"]["incidents"] == 153 - 7


def test_an_injected_fault_is_in_no_count_and_its_fence_is_printed(cli, plain):
    told = cli(RATES, "--ledger", plain, "--json").json
    assert told["counts"]["injected_left_out"] == 1
    assert "caused on purpose" in cli(RATES, "--ledger", plain).stdout


def test_a_window_is_cut_by_dates_and_says_how_it_is_known(cli, plain):
    told = cli(
        RATES, "--ledger", plain, "--since", "2023-12-01", "--until", "2023-12-31T00:00:00+00:00", "--json",
    ).json  # fmt: skip
    assert told["window"]["end_us"] - told["window"]["begin_us"] == 30 * 86_400 * 10**6
    assert told["window"]["known"].endswith("cut by --since, cut by --until")


# --- forms --------------------------------------------------------------------------------------------------


def test_csv_holds_the_numbers_of_json(cli, exposed):
    rows = list(csv.DictReader(io.StringIO(cli(RATES, "--ledger", exposed, "--format", "csv").stdout)))  # fmt: skip
    told = cli(RATES, "--ledger", exposed, "--format", "json").json["rows"]
    assert [float(r["rate"]) for r in rows if r["rate"]] == [r["rate"] for r in told if r["rate"]]
    assert [r["group"] for r in rows] == [r["group"] for r in told]


def test_latex_is_a_table_with_escaped_names_and_its_caption(cli, folder):
    fleet = made.fleet()
    fleet.fault(3, "h_1", "gpu.memory", label="50%_bad/x&y")
    ledger = fleet.write(folder / "odd.db")
    text = cli(RATES, "--ledger", ledger, "--format", "latex", "--by", "label").stdout
    assert text.startswith("\\begin{table}")
    assert r"50\%\_bad" in text
    assert text.count("{") == text.count("}")
    assert "Incidents by the rule" in text


def test_the_text_fits_80_columns(cli, exposed):
    text = cli(RATES, "--ledger", exposed).stdout
    assert max(len(line) for line in text.splitlines()) <= 80


# --- comparison ---------------------------------------------------------------------------------------------


def test_two_halves_of_one_ledger_are_compared_by_their_dates(cli, plain):
    middle = "2024-01-03T22:13:20"
    told = cli(
        RATES, "--ledger", plain, "--nodes", "40", "--compare", f"..{middle}", f"{middle}..", "--json",
    ).json  # fmt: skip
    rows = {row["group"]: row for row in told["ratios"]}
    # 60 (t/100)^2 faults up to day t: 15 in the first half, 45 in the second.
    assert rows["Hardware/Cable"]["ratio"] == pytest.approx(15 / 45)
    assert rows["Hardware/Cable"]["hi"] < 1
    assert told["a"]["count"] + told["b"]["count"] == 153


def test_two_equal_ledgers_show_no_difference_and_that_is_an_answer(cli, plain, again):
    text = cli(RATES, "--nodes", "40", "--compare", plain, again).stdout
    assert "No difference shown" in text
    assert "Not shown is not equal" in text


@pytest.mark.parametrize(
    "pair",
    [("LEDGER", "LEDGER"), ("..2024-01-03", "2024-01-02.."), ("2023-12-01..", "2024-01-02..")],
)
def test_one_incident_on_both_sides_is_refused(cli, plain, pair):
    if pair[0] == "LEDGER":
        result = cli(RATES, "--nodes", "40", "--compare", plain, plain)
    else:
        result = cli(RATES, "--ledger", plain, "--nodes", "40", "--compare", *pair)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "share incidents" in result.stderr
    assert "--compare ..TIME TIME.." in result.stderr


def test_a_group_whose_difference_is_gone_after_holm_says_so_itself(cli, folder):
    """Cables fail 24 times before and 8 after, one of eleven groups: little by itself and nothing among eleven."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for group in range(10):
        for i in range(24):
            fleet.fault(0.1 + 4.15 * i + 0.3 * group, made.host(i), "gpu.memory", label=f"Part {group}")  # fmt: skip
    days = [0.5 + 2 * i for i in range(24)] + [51 + 6 * i for i in range(8)]
    for i, day in enumerate(days):
        fleet.fault(day, made.host(i), "network.cable", label="Cable")
    ledger = fleet.write(folder / "cables.db")
    asked = (RATES, "--ledger", ledger, "--nodes", "40", "--compare", "..2024-01-03T22:13:20", "2024-01-03T22:13:20..")  # fmt: skip
    rows = {row["group"]: row for row in cli(*asked, "--json").json["ratios"]}
    cable = rows["Cable"]
    assert (cable["count_a"], cable["count_b"]) == (24, 8)
    assert cable["p"] < 0.05 < cable["p_holm"]
    assert cable["verdict"] == "lower, not after Holm"
    assert cable["sentence"].startswith("The rate of Cable in B is 0.333 times that of Cable in A")
    assert "not a difference any more" in cable["sentence"]
    text = cli(*asked).stdout
    assert "p, Holm" in text
    assert "lower, not" in text


def test_a_group_that_is_gone_on_one_side_is_compared_with_none(cli, folder):
    """24 incidents and then none, over one exposure: the ratio is 0, and one that comes only later has no upper end."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(24):
        fleet.fault(1 + 2 * i, made.host(i), "gpu.memory", label="Gone")
        fleet.fault(51 + 2 * i, made.host(i), "gpu.memory", label="New")
    ledger = fleet.write(folder / "gone.db")
    windows = ("..2024-01-03T22:13:20", "2024-01-03T22:13:20..")
    asked = (RATES, "--ledger", ledger, "--nodes", "40", "--by", "label", "--compare", *windows)
    rows = {row["group"]: row for row in cli(*asked, "--json").json["ratios"]}
    gone, new = rows["Gone"], rows["New"]
    assert (gone["ratio"], gone["lo"], gone["verdict"]) == (0, 0, "lower")
    # Twice the chance that 24 coins fall on one side, adjusted for two groups.
    assert gone["p"] == pytest.approx(2 / 2**24)
    assert gone["p_holm"] == pytest.approx(4 / 2**24)
    assert (new["ratio"], new["hi"], new["verdict"]) == (None, None, "higher")
    assert cli(*asked).exit_code == 0


def test_rates_of_unknown_exposure_are_not_compared(cli, plain, again):
    told = cli(RATES, "--compare", plain, again, "--json").json
    assert {row["ratio"] for row in told["ratios"]} == {None}
    assert "cannot be compared" in told["sentences"][0]


# --- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ledger", "none.db"), "no such ledger"),
        (("--ledger", "LEDGER", "--since", "soon"), "not a time"),
        (("--ledger", "LEDGER", "--group", "gap"), "not a grouping rule"),
        (("--ledger", "LEDGER", "--since", "2030-01-01"), "nothing is observed"),
        (("--ledger", "LEDGER", "--mapping", "xid"), "not a mapping"),
        (("--ledger", "LEDGER", "--nodes", "0"), "a fleet has at least one"),
        (("--compare", "A.db", "B.db"), "no such ledger"),
    ],
)
def test_a_mistake_is_named_with_exit_2(cli, plain, words, said):
    result = cli(RATES, *(plain if word == "LEDGER" else word for word in words))
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def quick_and_slow(folder, name, *, recover_h):
    """Forty faults whose detection takes a tenth of their recovery."""
    fleet = made.Fleet()
    fleet.covers(0, 100)
    for i in range(40):
        hour_us = 3_600_000_000
        times = {"detect_us": round(recover_h * hour_us / 10 * (1 + i / 40)), "recover_us": round(recover_h * hour_us * (1 + i / 40))}  # fmt: skip
        fleet.fault(2.4 * i, made.host(i), "gpu.memory", **times)
    return fleet.write(folder / name)


def test_a_faster_recovery_is_shown_with_its_interval(cli, folder):
    a = quick_and_slow(folder, "slow.db", recover_h=10)
    b = quick_and_slow(folder, "quick.db", recover_h=2)
    told = cli(RATES, "--nodes", "40", "--compare", a, b, "--json").json
    found = {d["name"]: d for d in told["durations"]}
    # Medians: recover_h (1 + 19/40) by nearest rank of forty values.
    assert found["recovery"]["median_a_h"] == pytest.approx(14.75)
    assert found["recovery"]["median_b_h"] == pytest.approx(2.95)
    assert found["recovery"]["lo_h"] <= found["recovery"]["difference_h"] <= found["recovery"]["hi_h"] < 0  # fmt: skip
    assert found["detection"]["median_a_h"] == pytest.approx(1.475)
    text = " ".join(cli(RATES, "--nodes", "40", "--compare", a, b).stdout.split())
    assert "recovery is faster" in text
    assert "Not recorded on both sides" not in text
