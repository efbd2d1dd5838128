"""Tables of codes: their bytes are pinned, a user's own replaces one, and re-mapping is a view that writes nothing."""

import json
from importlib import resources

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.importers.mapping import load_mapping, mapping_names, remap
from lastgood.ledger.store import read_store

LINE = "2026-11-02T03:14:07+00:00 gpu-0007 kernel: NVRM: Xid (PCI:0000:41:00): {}, pid=1, name=x, Ch 8\n"


def own_table(folder, rows: dict, **change):
    path = folder / "own.json"
    path.write_text(
        json.dumps({"mapping": "xid", "version": "2-site", "source": "us", "rows": rows} | change)
    )
    return path


def test_the_bytes_of_the_shipped_tables_are_pinned(golden):
    """A table that changes without a new version would make old ledgers lie about what they were made with."""
    golden("mapping_tables", {name: load_mapping(name).id for name in mapping_names()})


@pytest.mark.parametrize("name", mapping_names())
def test_every_shipped_table_loads_and_names_its_source(name):
    mapping = load_mapping(name)
    assert mapping.source
    assert mapping.rows
    assert mapping.id.startswith(f"{name}/{mapping.version}@sha256:")


def test_no_shipped_file_is_left_out():
    folder = resources.files("lastgood.ledger.importers").joinpath("mappings")
    assert {e.name.rpartition("-")[0] for e in folder.iterdir()} == set(mapping_names())


@pytest.mark.parametrize(
    ("codes", "class_", "cause", "role"),
    [
        ((13, 31, 8, 11, 25, 32, 39, 40, 41, 69), "fail_stop", "software.user", "initiating"),
        ((46, 62, 109, 110, 119, 120, 143, 158), "fail_stop", "gpu.firmware", "initiating"),
        ((48, 140, 64, 94, 95), "fail_stop", "gpu.memory", "initiating"),
        ((63, 92, 156), None, "gpu.memory", "context"),
        ((74, 136, 137, *range(144, 151), 155), "fail_stop", "gpu.link", "initiating"),
        ((79,), "fail_stop", "gpu.bus", "initiating"),
        ((54,), "fail_stop", "host.power", "initiating"),
        ((43,), "fail_stop", "unknown", "cascade"),
        ((45,), "fail_stop", "unknown", "teardown"),
        ((154,), None, None, "context"),
    ],
)
def test_the_table_of_xids_says_what_the_catalogue_says(codes, class_, cause, role):
    rows = [load_mapping("xid").rows[str(code)] for code in codes]
    assert {(row.class_, row.cause, row.role) for row in rows} == {(class_, cause, role)}


def test_causes_of_the_user_are_only_a_hypothesis():
    """An Xid 13 or 31 that comes again on one GPU is hardware: a table that settles it would hide that."""
    rows = load_mapping("xid").rows.values()
    assert {row.cause_status for row in rows if row.cause == "software.user"} == {"hypothesis"}


def test_a_code_falls_back_to_its_base_then_to_its_suffix_then_to_any(tmp_path):
    mapping = load_mapping("xid", own_table(tmp_path, {
        "149": {"meaning": "base"}, "149/x": {"meaning": "own"}, "*/x": {"meaning": "suffix"}, "*": {"meaning": "any"},
    }))  # fmt: skip
    found = {code: mapping.row(code).meaning for code in ("149/x", "149/y", "7/x", "7/y", "7")}
    assert found == {"149/x": "own", "149/y": "base", "7/x": "suffix", "7/y": "any", "7": "any"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "not a mapping table"),
        ('{"mapping": "xid"}', "not a mapping table"),
        ('{"mapping": "other", "version": "1", "source": "x", "rows": {}}', "another name"),
        ('{"mapping": "xid", "version": "1", "source": "x", "rows": {"1": {"class": "bad"}}}', "rows.1: taxonomy v1 has no such class"),
        ('{"mapping": "xid", "version": "1", "source": "x", "rows": {"1": {"klass": "x"}}}', "klass"),
        ("[" * 5000, "not a mapping table"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_table_is_the_persons_mistake(tmp_path, text, found):
    path = tmp_path / "own.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=found):
        load_mapping("xid", path)


def test_a_table_that_does_not_exist_names_those_that_do():
    with pytest.raises(BadInput, match=r"needs .*xid"):
        load_mapping("xids")


def test_remapping_is_a_view_and_the_ledger_keeps_what_it_holds(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(LINE.format(31) + LINE.format(4711))
    import_files([log], ledger=tmp_path / "l.db")
    own = load_mapping("xid", own_table(tmp_path, {
        "31": {"class": "fail_stop", "cause": "gpu.compute", "cause_status": "supported", "role": "initiating"},
        "4711": {"class": "fail_slow", "cause": "gpu.thermal"},
    }))  # fmt: skip

    def view(mapping):
        with read_store(tmp_path / "l.db") as store:
            return [
                (e.body["code"], e.class_, e.cause)
                for e in remap(store.events(kinds=["observation"]), mapping)
            ]

    shipped = [("31", "fail_stop", "software.user"), ("4711", None, "unknown")]
    assert view(own) == [("31", "fail_stop", "gpu.compute"), ("4711", "fail_slow", "gpu.thermal")]
    assert view(load_mapping("xid")) == shipped
    with read_store(tmp_path / "l.db") as store:
        assert [
            (e.body["code"], e.class_, e.cause) for e in store.events(kinds=["observation"])
        ] == shipped


def test_events_of_another_table_pass_as_they_are(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(
        "2026-11-02T03:14:07Z h1 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28\n"
    )
    import_files([log], ledger=tmp_path / "l.db")
    with read_store(tmp_path / "l.db") as store:
        events = list(store.events())
    assert list(remap(events, load_mapping("xid"))) == events


def test_an_import_with_an_own_table_names_it_in_every_event(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(LINE.format(31))
    path = own_table(tmp_path, {"31": {"class": "fail_stop", "cause": "gpu.compute"}})
    import_files([log], ledger=tmp_path / "l.db", options=Options(mappings={"xid": path}))
    with read_store(tmp_path / "l.db") as store:
        (event,) = store.events(kinds=["observation"])
    assert (event.cause, event.body["mapping"]) == ("gpu.compute", load_mapping("xid", path).id)
    assert event.body["mapping"].startswith("xid/2-site@sha256:")
