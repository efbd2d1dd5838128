"""`lastgood reproduce llama3` as a person runs it: 80 columns, the row that disagrees, and JSON."""

from __future__ import annotations


def test_llama3_prints_reported_beside_recomputed_within_80_columns(cli):
    result = cli("reproduce", "llama3")
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines() if "sha256" not in line) <= 80
    text = " ".join(result.stdout.split())
    for words in (
        "466 interruptions in 54 days: 47 planned and 419 unexpected",
        "3.09 h reported",
        "58.7 % reported",
        "268 of 419 is 64.0 %",
        "row Faulty GPU: printed 30.1 %, but 148 of 419 is 35.3 %",
        "Silent data corruption 6 216.00 99.24 588.58",
    ):
        assert words in text


def test_llama3_as_json_carries_source_hash_and_kinds(cli):
    told = cli("reproduce", "llama3", "--json").json
    assert told["source"].startswith("The Llama 3 Herd of Models")
    assert len(told["sha256"]) == 64
    kinds = {row["figure"]["kind"] for row in told["section"]["figures"]}
    assert kinds == {"reported"}


def test_reproduce_alone_names_what_can_be_reproduced(cli):
    assert "llama3" in cli("reproduce", "--help").stdout
