from __future__ import annotations

import io

import pytest

from lastgood.base.errors import BadInput, Problems
from lastgood.ledger.importers.source import Source
from lastgood.ledger.importers.table_guess import guess_file, guess_map
from lastgood.ledger.importers.table_map import PRESETS, load_column_map, parse_column_map
from tests.unit.ledger.importers.import_cases import SAMPLES, import_one, import_text


def problems_of(text: str) -> list[str]:
    with pytest.raises(Problems) as caught:
        parse_column_map(text.encode(), source="map.yaml")
    return str(caught.value).splitlines()


def guess(tmp_path, text: str, name: str = "t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return guess_file(path)


# --- the file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_whole_map_and_says_what_it_rests_on(name):
    column_map = load_column_map(name)

    assert column_map.rows == "job"
    assert "the files themselves were not read" in (column_map.note or "")


def test_all_problems_of_a_map_come_at_once_with_their_lines():
    found = problems_of(
        "rows: falt\ndelimiter: ab\nzone: Mars/Olympus\ncolour: red\ncolumns:\n  strat: x\n  device: [a]\n"
        "words:\n  class: {a: fail_stopp}\n  foo: {a: b}\ndefaults: {cause: dimm}\nencoding: utf-16\nlast_only: stat\n"
    )

    assert [line.split(": found")[0] for line in found] == [
        "map.yaml:1: rows", "map.yaml:2: delimiter", "map.yaml:3: zone", "map.yaml:4: colour", "map.yaml:6: columns.strat",
        "map.yaml:7: columns.device", "map.yaml:9: words.class.a", "map.yaml:10: words.foo", "map.yaml:11: defaults.cause",
        "map.yaml:12: encoding", "map.yaml:13: last_only",
    ]  # fmt: skip
    assert "write fail_stop" in found[6]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("rows: signal\ncolumns: {start: a}\n", "time: the column with the moment"),
        ("rows: fault\ncolumns: {time: a}\n", "start: the column with the begin"),
        ("rows: job\ncolumns: {start: a}\n", "id: the column that names a job"),
        ("rows: exposure\ncolumns: {start: a}\n", "host: the column that names a node"),
        ("rows: fault\n", "columns: which column holds what"),
        ("columns: {start: a}\n", "one of fault, signal, job, exposure"),
        ("- a list\n", "a mapping with rows and columns"),
        (
            "rows: fault\ncolumns: {start: a}\nwords: {class: planned}\n",
            "a mapping: word of the file",
        ),
        ("rows: fault\ncolumns: [start]\n", "a mapping"),
    ],
)
def test_a_map_says_what_its_rows_need(text, needs):
    assert any(needs in line for line in problems_of(text))


def test_columns_and_words_may_look_like_numbers(tmp_path):
    column_map = parse_column_map(
        b"rows: signal\ncolumns: {time: 0, state: 1}\nwords: {class: {7: null}}\n", source="m"
    )

    assert (column_map.columns.time, column_map.words) == (("0",), {"class": {"7": None}})


@pytest.mark.parametrize(
    "raw", [b"", b"  \n", b"\xff\xfe", b"{", b"a: &x 1\n", b"rows: fault\n" * 3]
)
def test_hostile_bytes_end_in_a_sentence(raw):
    with pytest.raises((BadInput, Problems)):
        parse_column_map(raw, source="map.yaml")


def test_a_map_that_is_not_there_names_the_presets(tmp_path):
    with pytest.raises(BadInput, match="acme-seren"):
        load_column_map(tmp_path / "none.yaml")


def test_a_wrong_map_changes_nothing_though_another_file_comes_first(tmp_path):
    with pytest.raises(BadInput):
        import_text(tmp_path, "a,b\n", format="table", column_map=tmp_path / "none.yaml")
    assert not (tmp_path / "ledger.db").exists()


# --- the guess ----------------------------------------------------------------------------------------


def test_a_guess_can_be_given_back_as_it_is(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text(guess_file(SAMPLES / "faults.csv").text)
    read = import_one(tmp_path, SAMPLES / "faults.csv", format="table", column_map=path, zone="UTC")

    assert {i.domain[0].id: (i.class_, i.cause) for i in read.incidents} == {
        "gpu-0001": ("fail_stop", "host.memory"), "gpu-0002": ("fail_stop", "host.power"),
        "gpu-0003": ("planned", "unknown"),
    }  # fmt: skip


def test_a_column_without_a_word_in_it_gets_no_list_of_words(tmp_path):
    text = "node,start,cause\nn1,2026-11-02T03:14:00Z,\nn2,2026-11-03T03:14:00Z,\n"
    found = guess(tmp_path, text)

    parse_column_map(found.text.encode(), source="guess.yaml")
    assert "words:" not in found.text


def test_a_text_too_long_for_a_key_is_no_word_of_the_map(tmp_path):
    text = f"node,start,cause\nn1,2026-11-02T03:14:00Z,DIMM\nn2,2026-11-03T03:14:00Z,{'x' * 3000}\n"
    found = guess(tmp_path, text)

    parse_column_map(found.text.encode(), source="guess.yaml")
    assert "DIMM" in found.text
    assert "x" * 100 not in found.text


def test_a_guess_says_what_it_is_unsure_of(tmp_path):
    found = guess_file(SAMPLES / "faults.csv")

    assert any("the times name no zone" in sentence for sentence in found.unsure)
    assert any(
        "begin_of_fault: only part of the name fits; 17%" in sentence for sentence in found.unsure
    )
    assert "# unsure" in found.text
    assert "remark" in found.text


def test_two_columns_that_fit_alike_are_a_doubt(tmp_path):
    found = guess(tmp_path, "start,begin,node\n2026-11-02T03:14:00Z,2026-11-02T03:15:00Z,n1\n")

    assert any("it could also be begin" in sentence for sentence in found.unsure)


def test_a_table_of_jobs_gets_its_states_as_words(tmp_path):
    found = guess(
        tmp_path,
        "JobID,Start,End,Status,GPUs\n1,1793589247,1793589999,FAILED,8\n2,1793589247,1793589999,DONE,8\n",
    )
    column_map = parse_column_map(found.text.encode(), source="m")

    assert (column_map.rows, column_map.columns.devices, column_map.columns.id) == (
        "job",
        "GPUs",
        ("JobID",),
    )
    assert column_map.words["class"] == {"FAILED": "fail_stop", "DONE": None, "*": None}


def test_json_rows_are_guessed_by_their_dotted_names(tmp_path):
    found = guess(
        tmp_path, '{"at":{"when":"2026-11-02T03:14:00Z"},"node":{"name":"n1"},"parts":[{"x":1}]}\n'
    )
    column_map = parse_column_map(found.text.encode(), source="m")

    assert (column_map.rows, column_map.columns.time) == ("signal", ("at.when",))
    assert any("parts holds a list" in sentence for sentence in found.unsure)


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        (["03/04/2026 01:00", "25/04/2026 01:00"], "day-first"), (["03/04/2026", "04/25/2026"], "month-first"),
        (["25/04/2026"], "day-first"), (["2026-04-25"], None),
    ],
)  # fmt: skip
def test_the_order_of_day_and_month_is_read_from_the_dates_that_decide(tmp_path, dates, expected):
    found = guess(tmp_path, "start,node\n" + "".join(f"{date},n1\n" for date in dates))

    assert parse_column_map(found.text.encode(), source="m").dates == expected


def test_where_no_date_decides_the_order_is_a_doubt(tmp_path):
    assert any(
        "can be two days" in s for s in guess(tmp_path, "start,node\n03/04/2026,n1\n").unsure
    )


def test_a_published_schema_is_answered_with_its_preset():
    found = guess_file(SAMPLES / "philly.json")

    assert any("preset philly" in sentence for sentence in found.unsure)
    assert parse_column_map(found.text.encode(), source="m").each == "attempts"


def test_a_hand_kept_log_is_told_from_a_table():
    assert any("handkept" in sentence for sentence in guess_file(SAMPLES / "incidents.csv").unsure)


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "a\n", "{}", "[1,2", '{"a":', '"', "a,b\n1\n" * 3, "\x00\x01,\x02\n", 'x: y,"#\\\n2026-01-01,1\n', ",,,\n,,,\n"],
)  # fmt: skip
def test_a_guess_of_anything_is_a_map_or_says_what_is_missing(text):
    found = guess_map(Source("-", stream=io.BytesIO(text.encode())))

    assert found.unsure
    assert _missing(found.text) in {None, "no time", "no start", "no columns"}


def _missing(text: str) -> str | None:
    """The one thing that this map does not have; None for a whole one."""
    try:
        parse_column_map(text.encode(), source="m")
    except Problems as error:
        (problem,) = error.problems
        return problem.found
    return None


def test_the_command_prints_the_map_and_its_doubts_apart(cli):
    result = cli("import", "table", SAMPLES / "faults.csv", "--guess")

    assert result.exit_code == 0
    assert parse_column_map(result.stdout.encode(), source="m").rows == "fault"
    assert "the times name no zone" in result.stderr
    assert "nothing was imported" in result.stderr


def test_the_command_takes_a_preset_by_its_name(cli, tmp_path):
    result = cli(
        "import",
        "table",
        SAMPLES / "acme-seren.csv",
        "--map",
        "acme-seren",
        "--ledger",
        tmp_path / "l",
        "--json",
    )

    assert (result.exit_code, result.json["total"]["rows"]["accepted"]) == (0, 3)


def test_an_order_of_dates_that_nothing_decides_is_proposed_as_a_comment(tmp_path):
    """A map that is taken as it was guessed must not choose a month: the import asks, row by row."""
    table = "start,node\n" + "".join(f"0{n}/04/2026 01:00,n1\n" for n in (3, 5, 7))
    found = guess(tmp_path, table)

    assert "\n# dates: month-first   # unsure" in found.text
    assert parse_column_map(found.text.encode(), source="m").dates is None
    assert any("write dates" in sentence for sentence in found.unsure)
    (tmp_path / "map.yaml").write_text(found.text)
    quality = import_text(
        tmp_path, table, name="t.csv", format="table", column_map=tmp_path / "map.yaml"
    ).quality
    assert (quality.accepted, quality.rejected_count) == (0, 3)
    assert any("dates: day-first" in note for note in quality.notes)


def test_a_date_far_down_the_file_decides_the_order(tmp_path):
    rows = ["03/04/2026 01:00"] * 400 + ["25/04/2026 01:00"]
    found = guess(tmp_path, "start,node\n" + "".join(f"{date},n1\n" for date in rows))
    assert "\ndates: day-first\n" in found.text


def test_dates_that_contradict_each_other_decide_nothing(tmp_path):
    rows = ["03/04/2026 01:00", "25/04/2026 01:00", "04/25/2026 01:00"]
    found = guess(tmp_path, "start,node\n" + "".join(f"{date},n1\n" for date in rows))
    assert "\n# dates:" in found.text
