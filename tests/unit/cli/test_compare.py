"""`lastgood compare`: the exit code is the answer, and a person learns what would be needed."""

import json

import pytest

from lastgood.cli.main import main
from lastgood.ledger.store import open_store
from tests.unit.evidence.claim_cases import TEN, side_events, write_side

HALF = [v / 2 for v in TEN]


@pytest.fixture
def sides(tmp_path):
    def write(name, detect_s=TEN, **given):
        return str(write_side(tmp_path / f"{name}.db", name, detect_s, **given))

    return write


def test_a_claim_that_is_shown_exits_with_0_and_says_by_how_much(sides, capsys):
    assert main(["compare", sides("a"), sides("b", HALF), "--claim", "detection_latency"]) == 0
    out = capsys.readouterr().out
    assert "claim: detection_latency is better after: SHOWN" in out
    assert "before  n=10, median 1.01 s" in out
    assert "before over after" in out
    assert "INJECTED" in out
    assert max(map(len, out.splitlines())) <= 80 + len(str(sides))


@pytest.mark.parametrize(
    ("detect_s", "given", "code", "answer"),
    [
        (TEN[::-1], {}, 1, "NOT SHOWN"),
        ([v * 2 for v in TEN], {}, 1, "WORSE"),
        (HALF[:3], {}, 3, "CANNOT TELL"),
        (HALF, {"world": 8}, 3, "CANNOT TELL"),
    ],
)
def test_every_other_answer_has_its_own_exit_code(sides, capsys, detect_s, given, code, answer):
    before = sides("a", TEN if len(detect_s) > 3 else TEN[:3])
    arguments = ["compare", before, sides("b", detect_s, **given), "--claim", "detection_latency"]
    assert main(arguments) == code
    assert answer in capsys.readouterr().out


def test_what_was_changed_on_purpose_is_named(sides, capsys):
    before, after = sides("a"), sides("b", HALF, floor_us=400_000)
    arguments = ["compare", before, after, "--claim", "detection_latency"]
    assert main(arguments) == 3
    assert "--changed" in capsys.readouterr().out
    assert main([*arguments, "--changed", "limits"]) == 0
    assert (
        "differs: limits: hang after 1 s before, hang after 400 ms after" in capsys.readouterr().out
    )
    assert main([*arguments, "--changed", "limit"]) == 2
    assert "contract, injected, job" in capsys.readouterr().err


def test_what_no_record_tells_is_no_improvement_and_can_be_accepted(tmp_path, capsys):
    sides = []
    for name, times in (("a", TEN), ("b", HALF)):
        path = tmp_path / f"{name}.db"
        with open_store(path) as store:
            store.append([e for e in side_events(name, times) if e.kind != "run.start"])
        sides.append(str(path))
    arguments = ["compare", *sides, "--claim", "detection_latency"]
    assert main(arguments) == 3
    out = capsys.readouterr().out
    assert "CANNOT TELL" in out
    assert "because: no conditions on record" in out
    assert "--changed job,limits,machine,world" in " ".join(out.split())
    assert main([*arguments, "--changed", "job,limits,machine,world"]) == 0


def test_json_holds_every_number_and_both_sides(sides, capsys):
    main([
        "compare", sides("a"), sides("b", HALF), "--claim", "detection_latency", "--claim", "ettr", "--json",
    ])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    first, second = found["claims"]
    assert (first["claim"], first["answer"], second["claim"]) == (
        "detection_latency",
        "shown",
        "ettr",
    )
    assert first["effect"] == pytest.approx(2, rel=0.05)
    assert first["kind"] == "measured"
    assert found["before"]["conditions"]["world"] == ["4"]


def test_a_side_with_nothing_to_compare_says_so_in_words(sides, capsys):
    """No count of nothing, no median of it, and no method that was not used."""
    arguments = [
        "compare",
        sides("a"),
        sides("b", []),
        "--claim",
        "recovery_time",
        "--claim",
        "ettr",
    ]
    assert main(arguments) == 3
    out = capsys.readouterr().out
    assert out.count("  before  nothing to compare\n") == 2
    assert out.count("  after   nothing to compare\n") == 2
    for word in ("n=0", "none", "effect", "method"):
        assert word not in out


def test_an_adjusted_chance_is_never_smaller_than_the_plain_one(sides, capsys):
    arguments = [
        "compare",
        sides("a"),
        sides("b", kinds=("crash",)),
        "--claim",
        "recovery_time",
        "--claim",
        "ettr",
    ]
    assert main([*arguments, "--json"]) == 3
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert all(claim["p_adjusted"] >= claim["p"] for claim in claims)
    assert (
        "before has more of: sigstop (10 more); after has more of: crash (10 more)"
        in claims[1]["reasons"][0]
    )


def test_a_run_that_is_not_there_is_answered_with_those_that_are_near(tmp_path, capsys):
    path = tmp_path / "many.db"
    for number in range(12):
        write_side(path, f"run-{number:02}", TEN[:1])
    assert main(["compare", f"{path}#run-3", str(path), "--claim", "ettr"]) == 2
    told = capsys.readouterr().err
    assert "one of its 12 runs" in told
    assert "run-03" in told
    assert "run-11" in told
    assert "lastgood.open(" in told


def test_a_ledger_is_not_compared_with_itself(sides, capsys):
    path = sides("a")
    assert main(["compare", path, path, "--claim", "ettr"]) == 2
    assert "share incidents" in capsys.readouterr().err


def test_two_folders_of_drills_may_name_their_runs_alike(tmp_path, capsys):
    for name, times in (("before", TEN), ("after", HALF)):
        (tmp_path / name).mkdir()
        write_side(tmp_path / name / "ledger.db", "drill-kill-rank", times)
    sides = [str(tmp_path / name / "ledger.db") for name in ("before", "after")]
    assert main(["compare", *sides, "--claim", "detection_latency"]) == 0


@pytest.mark.parametrize("name", ["nothing.db", "a.db#c"])
def test_a_side_that_is_not_there_is_refused_with_what_there_is(sides, tmp_path, capsys, name):
    path = sides("a")
    assert main(["compare", path, str(tmp_path / name), "--claim", "ettr"]) == 2
    assert "no such" in capsys.readouterr().err


def test_a_bundle_is_a_side_too(sides, tmp_path, capsys):
    before, after = sides("a"), sides("b", HALF)
    bundle = str(tmp_path / "b.tar")
    assert main(["bundle", after, "-o", bundle]) == 0
    assert main(["compare", before, bundle, "--claim", "detection_latency"]) == 0
