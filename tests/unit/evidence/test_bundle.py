"""A bundle end to end: written from a live ledger, recomputed elsewhere, and every edit of it found and named."""

from __future__ import annotations

import hashlib
import json
import shutil

import apsw
import pytest

from lastgood.base.canonical import canonical_bytes, float_hex
from lastgood.base.errors import BadInput, LastgoodError
from lastgood.contract.starter import starter_text
from lastgood.evidence import archive
from lastgood.evidence.assemble import events_of_run, run_names
from lastgood.evidence.bundle import write_bundle
from lastgood.evidence.recompute import recompute_bundle
from lastgood.ledger.event import Event
from lastgood.ledger.store import open_store
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run

BUILDERS = {"training": build_section}
VERSION = "0.1.0"
NOW_US = sample_run.START_US + 10**9


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "live.db"
    with open_store(path) as store:
        store.append(sample_run.undisturbed(last_step=5))
        store.append(sample_run.five_faults())
    return path


@pytest.fixture(scope="module")
def contract(tmp_path_factory):
    path = tmp_path_factory.mktemp("contract") / "contract.yaml"
    path.write_text(starter_text())
    return path


def bundled(ledger, target, *, contract=None, run=None):
    return write_bundle(
        ledger,
        target,
        contract=contract,
        run=run,
        now_us=NOW_US,
        version=VERSION,
        builders=BUILDERS,
    )


@pytest.fixture(scope="module")
def pristine(ledger, contract, tmp_path_factory):
    target = tmp_path_factory.mktemp("bundle") / "b"
    bundled(ledger, target, contract=contract)
    return target


@pytest.fixture
def copy(pristine, tmp_path):
    """A folder bundle that a test may spoil."""
    return shutil.copytree(pristine, tmp_path / "copy")


def recomputed(path):
    return recompute_bundle(path, builders=BUILDERS, version=VERSION)


def sign_again(folder):
    """What a forger does after an edit: make the manifest fit."""
    manifest = json.loads((folder / archive.MANIFEST).read_bytes())
    for name, entry in manifest["files"].items():
        raw = (folder / name).read_bytes()
        entry["sha256"], entry["bytes"] = hashlib.sha256(raw).hexdigest(), len(raw)
    (folder / archive.MANIFEST).write_bytes(canonical_bytes(manifest))


def edit_figures(folder, change):
    figures = json.loads((folder / archive.FIGURES).read_bytes())
    change(figures)
    (folder / archive.FIGURES).write_bytes(canonical_bytes(figures))
    sign_again(folder)


# --- equal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b.tar", "b"])
def test_a_bundle_recomputes_equal(ledger, contract, tmp_path, name):
    made = bundled(ledger, tmp_path / name, contract=contract)
    result = recomputed(tmp_path / name)
    assert (result.is_equal, result.first_difference) == (True, None)
    assert result.figure_count == made.figure_count > 100
    assert result.notes == ("the page is, byte for byte, the drawing of these values",)


def test_a_bundle_without_a_contract_recomputes_equal(ledger, tmp_path):
    bundled(ledger, tmp_path / "b")
    assert recomputed(tmp_path / "b").is_equal
    assert (
        json.loads((tmp_path / "b" / archive.MANIFEST).read_bytes())["contract_is_declared"]
        is False
    )


def test_a_run_that_still_goes_on_recomputes_equal_later(tmp_path):
    with open_store(tmp_path / "live.db") as store:
        store.append(sample_run.still_running())
    bundled(tmp_path / "live.db", tmp_path / "b")
    assert recomputed(tmp_path / "b").is_equal


def test_an_empty_ledger_gives_a_bundle_too(tmp_path):
    open_store(tmp_path / "live.db").close()
    bundled(tmp_path / "live.db", tmp_path / "b")
    assert recomputed(tmp_path / "b").is_equal


def test_the_same_ledger_gives_the_same_bytes(ledger, contract, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        bundled(ledger, tmp_path / name / "b.tar", contract=contract)
    assert (tmp_path / "one" / "b.tar").read_bytes() == (tmp_path / "two" / "b.tar").read_bytes()


def test_the_bundle_does_not_change_the_ledger_and_recomputing_does_not_change_the_bundle(
    ledger, tmp_path
):
    with open_store(ledger) as store:
        before = store.head()
    bundled(ledger, tmp_path / "b")
    with open_store(ledger) as store:
        assert store.head() == before
    files = {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()}
    recomputed(tmp_path / "b")
    assert {p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()} == files


def test_another_run_of_the_ledger_can_be_bundled(ledger, tmp_path):
    bundled(ledger, tmp_path / "b", run="quiet-1")
    assert recomputed(tmp_path / "b").run == "quiet-1"


def test_an_unknown_run_is_refused_with_those_that_are_there(ledger, tmp_path):
    with pytest.raises(BadInput, match=f"quiet-1, {sample_run.RUN}"):
        bundled(ledger, tmp_path / "b", run="nope")
    assert not (tmp_path / "b").exists()


def test_a_contract_with_mistakes_is_refused_before_anything_is_written(ledger, tmp_path):
    (tmp_path / "c.yaml").write_text("kind: nonsense\n")
    with pytest.raises(LastgoodError, match=r"c\.yaml:1"):
        bundled(ledger, tmp_path / "b", contract=tmp_path / "c.yaml")
    assert not (tmp_path / "b").exists()


def test_no_machine_path_gets_into_a_bundle(ledger, pristine):
    for name in (archive.MANIFEST, archive.FIGURES, archive.PAGE, archive.HEAD):
        assert str(ledger.parent).encode() not in (pristine / name).read_bytes()


def test_an_existing_target_is_refused_before_any_work(ledger, tmp_path):
    (tmp_path / "b.tar").write_text("older evidence")
    stages: list[str] = []
    with pytest.raises(BadInput, match="already there"):
        write_bundle(ledger, tmp_path / "b.tar", contract=None, run=None, now_us=NOW_US, version=VERSION,
                     builders=BUILDERS, on_stage=stages.append)  # fmt: skip
    assert stages == []


def test_the_report_of_a_finished_run_holds_as_of_its_last_record(pristine):
    manifest = json.loads((pristine / archive.MANIFEST).read_bytes())
    assert manifest["as_of_us"] == sample_run.five_faults()[-1].t_observed_us


def test_a_workload_that_nobody_can_report_on_is_bad_input(ledger, tmp_path):
    with pytest.raises(BadInput, match="cannot be built here"):
        write_bundle(
            ledger,
            tmp_path / "b",
            contract=None,
            run=None,
            now_us=NOW_US,
            version=VERSION,
            builders={},
        )


def test_a_run_that_started_again_is_the_newest(tmp_path):
    with open_store(tmp_path / "l.db") as store:
        for name, run in (("1", "a"), ("2", "b"), ("3", "a")):
            store.append([Event(kind="run.start", id=name, run=run, t_occurred_us=int(name))])
        assert run_names(store) == ["b", "a"]


def test_records_without_a_run_count_only_while_it_lasted(tmp_path):
    events = sample_run.five_faults()
    begin_us, end_us = events[0].t_observed_us, events[-1].t_observed_us
    outside = [
        Event(kind="record", id=f"r{t}", t_occurred_us=t, t_observed_us=t)
        for t in (begin_us - 1, begin_us, end_us, end_us + 1)
    ]
    with open_store(tmp_path / "l.db") as store:
        store.append([*events, *outside])
        kept = {e.id for e in events_of_run(store, sample_run.RUN) if e.run is None}
    assert kept == {f"r{begin_us}", f"r{end_us}"}


# --- different ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in archive.NAMES if n != archive.MANIFEST])
def test_one_changed_byte_in_any_file_is_found_by_the_manifest(copy, name):
    raw = bytearray((copy / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (copy / name).write_bytes(raw)
    if name == archive.HEAD:  # its base64 no longer reads as a root, or reads as another one
        assert is_refused(copy)
        return
    result = recomputed(copy)
    assert not result.is_equal
    assert result.first_difference.where == name


def is_refused(folder) -> bool:
    """True when the bundle is called different, or bad input with exit code 1 or 2; anything else is raised."""
    try:
        return not recomputed(folder).is_equal
    except LastgoodError as error:
        return error.exit_code in {1, 2}


def test_an_edited_integer_is_named_with_both_values(copy):
    def change(figures):
        row = next(r for r in figures["sections"][0]["figures"] if r["label"] == "Accepted steps")
        row["figure"]["value"] = 500

    edit_figures(copy, change)
    difference = recomputed(copy).first_difference
    assert difference.where.startswith("figure accepted steps (")
    assert (difference.stored, difference.recomputed) == ("500", "400")


@pytest.mark.parametrize(
    ("factor", "is_equal"), [(1 + 1e-12, True), (1 + 1e-10, True), (1 + 1e-8, False)]
)
def test_floats_agree_within_a_billionth(copy, factor, is_equal):
    def change(figures):
        figure = figures["sections"][0]["figures"][0]["figure"]
        figure["value"] = float_hex(float.fromhex(figure["value"]) * factor)

    edit_figures(copy, change)
    assert recomputed(copy).is_equal is is_equal


def test_the_first_of_several_differences_is_named(copy):
    def change(figures):
        rows = figures["sections"][0]["figures"]
        rows[1]["figure"]["value"] += 1
        rows[3]["figure"]["value"] += 1

    edit_figures(copy, change)
    assert recomputed(copy).first_difference.where.startswith("figure wall time (")


@pytest.mark.parametrize(
    "what",
    [
        "a word",
        "a chart's datum",
        "a moment",
        "a missing part",
        "one more row",
        "kind",
        "a bool as a number",
        "an added key",
        "a float as text",
    ],
)
def test_an_edit_outside_the_numbers_is_found_too(copy, what):
    def change(figures):
        section = figures["sections"][0]
        parts = {p["name"]: p for p in section["parts"]}
        if what == "a word":
            section["headline"]["sentence"] = "All is well."
        elif what == "a chart's datum":
            section["charts"][0]["data"]["rows"][0][2] = float_hex(99.0)
        elif what == "a moment":
            parts["incidents"]["cards"][0]["moments"][1]["since_onset_us"] = 1
        elif what == "a missing part":
            section["parts"].pop()
        elif what == "one more row":
            parts["stops"]["tables"][0]["rows"].append(parts["stops"]["tables"][0]["rows"][0])
        elif what == "a bool as a number":
            section["is_injected"] = 1
        elif what == "an added key":
            section["figures"][0]["figure"]["remark"] = "trust me"
        elif what == "kind":
            section["figures"][0]["figure"]["kind"] = "reported"
        else:
            section["figures"][0]["figure"]["value"] = "0.84"

    edit_figures(copy, change)
    assert not recomputed(copy).is_equal


def test_an_edited_page_is_found_with_its_line(copy):
    page = (copy / archive.PAGE).read_text()
    (copy / archive.PAGE).write_text(page.replace("All 5 injected faults", "All 5 real faults"))
    sign_again(copy)
    difference = recomputed(copy).first_difference
    assert difference.where.startswith("report.html line ")
    assert "real" in difference.stored


def test_a_redrawn_chart_is_said_and_its_data_are_what_counts(copy):
    page = (copy / archive.PAGE).read_text()
    (copy / archive.PAGE).write_text(page.replace("M0,0", "M1,1", 1))
    sign_again(copy)
    result = recomputed(copy)
    assert result.is_equal
    assert "charts are drawn differently" in result.notes[0]


def test_a_page_of_another_version_is_not_compared_and_that_is_said(copy):
    (copy / archive.PAGE).write_text("<p>old layout</p>")
    manifest = json.loads((copy / archive.MANIFEST).read_bytes())
    (copy / archive.MANIFEST).write_bytes(canonical_bytes(manifest))
    sign_again(copy)
    result = recompute_bundle(copy, builders=BUILDERS, version="0.2.0")
    assert result.is_equal
    assert "not compared" in result.notes[0]


def test_an_edited_event_is_found_with_its_row(copy):
    with_connection(
        copy,
        'UPDATE event SET body = CAST(replace(body, \'"kind":"detect"\', \'"kind":"detekt"\') AS BLOB)',
    )
    sign_again(copy)
    difference = recomputed(copy).first_difference
    assert difference.where.startswith("ledger.db, first bad row ")


def test_a_cut_tail_is_found_by_the_bundled_tree_head(copy):
    with_connection(copy, "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)")
    sign_again(copy)
    assert recomputed(copy).first_difference.where.startswith("ledger.db, first bad row")


def test_a_ledger_that_grew_after_the_head_is_found(copy):
    with open_store(copy / archive.LEDGER) as store:
        store.append(sample_run.five_faults(run="smuggled"))
        store.connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    sign_again(copy)
    difference = recomputed(copy).first_difference
    assert difference.where == archive.LEDGER
    assert "events" in difference.recomputed


def test_the_ledger_of_another_run_is_found(copy, tmp_path):
    with open_store(tmp_path / "other.db") as store:
        store.append(sample_run.five_faults())
        (copy / archive.LEDGER).unlink()
        store.copy_to(copy / archive.LEDGER)
    sign_again(copy)
    difference = recomputed(copy).first_difference
    assert difference.where == archive.LEDGER
    assert "another ledger" in difference.recomputed


def with_connection(folder, sql):
    connection = apsw.Connection(str(folder / archive.LEDGER))
    connection.execute(sql).fetchall()
    connection.close()


def test_an_error_names_the_file_inside_the_bundle(copy):
    (copy / archive.LEDGER).write_bytes(b"not a database at all" * 1000)
    sign_again(copy)
    with pytest.raises(BadInput, match=r"^ledger\.db: not a ledger"):
        recomputed(copy)


# --- not a bundle -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (archive.MANIFEST, b""),
        (archive.MANIFEST, b"[" * 100_000),
        (archive.MANIFEST, b'{"schema": 3}'),
        (archive.MANIFEST, b"\xff\xfe"),
        (archive.HEAD, b""),
        (archive.HEAD, b"\xff\xfe"),
        (archive.CONTRACT, b"a: [\n"),
        (archive.CONTRACT, b"\x00\xff"),
        (archive.FIGURES, b"["),
        (archive.FIGURES, b"[" * 100_000),
        (archive.FIGURES, b"3"),
        (archive.LEDGER, b""),
        (archive.LEDGER, b"not a database at all" * 1000),
    ],
)
def test_a_file_that_is_not_what_it_should_be_never_gives_a_traceback(copy, name, content):
    (copy / name).write_bytes(content)
    if name != archive.MANIFEST:
        sign_again(copy)
    assert is_refused(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "nope"},
        {"run": None},
        {"as_of_us": 0},
        {"as_of_us": 2**62},
        {"schema": "lastgood.bundle/9"},
        {"files": {}},
    ],
)
def test_an_edited_manifest_is_bad_input_or_a_difference(copy, change):
    manifest = json.loads((copy / archive.MANIFEST).read_bytes())
    (copy / archive.MANIFEST).write_bytes(canonical_bytes(manifest | change))
    assert is_refused(copy)
