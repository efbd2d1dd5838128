"""A bundle for strangers: no name is left in it, it recomputes and verifies, and its numbers are those of the original."""

from __future__ import annotations

import json
import re
import shutil

import msgspec
import pytest

from lastgood.base.clock import ManualClock
from lastgood.contract.load import contract_digest, parse_contract
from lastgood.contract.model import contract_text
from lastgood.contract.starter import starter_text
from lastgood.evidence import archive
from lastgood.evidence.bundle import write_bundle
from lastgood.evidence.pseudonyms import Pseudonyms
from lastgood.evidence.public_words import public_words
from lastgood.evidence.recompute import recompute_bundle
from lastgood.evidence.report import figures_in
from lastgood.ledger.importers.driver import import_files
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.store import open_store, read_store
from lastgood.ledger.verify import verify_ledger
from lastgood.training.report.section import build_section
from tests.unit.evidence import sample_run
from tests.unit.evidence.share_cases import bytes_of, names_in, surviving
from tests.unit.ledger.importers.import_cases import NOW_US as IMPORT_US
from tests.unit.ledger.importers.import_cases import SAMPLES

BUILDERS = {"training": build_section}
KEY = bytes(range(32))


def bundled(ledger, target, *, key=None, now_us=sample_run.START_US + 10**9, **options):
    return write_bundle(
        ledger,
        target,
        contract=options.pop("contract", None),
        run=options.pop("run", None),
        now_us=now_us,
        version="0.1.0",
        builders=BUILDERS,
        share_key=key,
    )


@pytest.fixture(scope="module")
def run_ledger(tmp_path_factory):
    """Two supervised runs; the newer one under a contract with an owner, and told on by a prolog."""
    path = tmp_path_factory.mktemp("ledger") / "live.db"
    contract = parse_contract(starter_text())
    events = sample_run.five_faults()
    body = {
        **events[0].body,
        "contract": contract_text(contract),
        "contract_digest": contract_digest(contract),
        "command": ["/home/mlops7/exp-42/train.py", "--data=/mnt/vault9/set-a", "--mail", "ada9@lab-3.example"],
        "host": "host-a",
    }  # fmt: skip
    events[0] = msgspec.structs.replace(events[0], body=body)
    with open_store(path) as store:
        store.append(sample_run.undisturbed(last_step=5))
        store.append(events)
    return path


@pytest.fixture(scope="module")
def import_ledger(tmp_path_factory):
    """Every sample log of every format in one ledger."""
    path = tmp_path_factory.mktemp("ledger") / "site.db"
    skipped = {"faults.csv", "nodes.csv"}  # these need a column map, which is beside them
    for file in sorted(SAMPLES.iterdir()):
        if file.name not in skipped and not file.name.endswith("-map.yaml"):
            # A spool has a folder for each host, and is named by its files here.
            import_files(
                sorted(file.rglob("*.jsonl")) if file.name == "spool" else [file],
                ledger=path,
                options=Options(host="node-17", year=2026, zone="UTC"),
                clock=ManualClock(IMPORT_US),
            )
    return path


@pytest.fixture(scope="module")
def shared_run(run_ledger, tmp_path_factory):
    target = tmp_path_factory.mktemp("shared") / "b"
    return bundled(run_ledger, target, key=KEY)


@pytest.fixture(scope="module")
def shared_import(import_ledger, tmp_path_factory):
    target = tmp_path_factory.mktemp("shared") / "b"
    return bundled(import_ledger, target, key=KEY, now_us=IMPORT_US + 10**9)


def manifest(made):
    return json.loads((made.path / archive.MANIFEST).read_bytes())


# --- nothing is left --------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["run", "import"])
def test_no_name_of_the_ledger_is_in_the_bundle(request, which):
    made = request.getfixturevalue(f"shared_{which}")
    names = names_in(request.getfixturevalue(f"{which}_ledger"))
    assert len(names) > {"run": 90, "import": 300}[which]
    assert surviving(names, made.path) == []


def test_the_same_search_finds_them_all_in_a_bundle_that_is_not_shared(run_ledger, tmp_path):
    bundled(run_ledger, tmp_path / "b")
    names = names_in(run_ledger)
    assert surviving(names, tmp_path / "b") == sorted(names)


def test_parts_of_the_command_line_are_gone_too(shared_run):
    raw = bytes_of(shared_run.path)
    for part in (b"mlops7", b"exp-42", b"vault9", b"set-a", b"ada9", b"lab-3", b"train.py"):
        assert part not in raw


def test_a_name_in_the_middle_of_prose_is_gone(tmp_path):
    """Masking knows shapes; sharing keeps only public words, so a name needs no shape to go."""
    events = sample_run.undisturbed(last_step=3)
    note = sample_run.Recorder(run="quiet-1", now_us=events[-1].t_occurred_us)
    note.events = list(events)
    note.add(
        "annotation",
        body={"reason": "Marlene says rack Zugspitze was hot; ask Өнөр, ext 5551234567890"},
    )
    with open_store(tmp_path / "l.db") as store:
        store.append(note.events)
    bundled(tmp_path / "l.db", tmp_path / "b", key=KEY)
    assert surviving({"Marlene", "Zugspitze", "Өнөр", "5551234567890"}, tmp_path / "b") == []


@pytest.mark.parametrize(
    "address",
    ["00:11:22:33:44:55", "2001:10:20:30::1", "10.1.2.3", "http://10.1.2.3:80/", "1@2.org"],
)
def test_an_address_of_numbers_alone_is_gone_though_numbers_stay(address):
    shared = Pseudonyms(KEY).text(f"step 12 at 03:04:05 from {address} took 1.5 s")
    assert re.fullmatch(r"step 12 at 03:04:05 from address-[0-9a-f]{10} took 1.5 s", shared)


def test_first_names_are_no_public_words():
    names = "alice bob carol dave eve frank grace heidi ivan judy mallory peter chris maria anna kim lee"
    assert not [name for name in names.split() if public_words().has_word(name)]


def test_the_contract_goes_in_without_its_owner(run_ledger, tmp_path):
    text = starter_text().replace("name: ", "name: secret-lab9-", 1)
    assert text != starter_text()
    (tmp_path / "c.yaml").write_text("# kept by quine77\n" + text)
    bundled(run_ledger, tmp_path / "b", key=KEY, contract=tmp_path / "c.yaml")
    assert surviving({"secret-lab9", "quine77"}, tmp_path / "b") == []
    assert recompute_bundle(tmp_path / "b", builders=BUILDERS, version="0.1.0").is_equal


# --- and it is still evidence -----------------------------------------------------------------------


@pytest.mark.parametrize("which", ["run", "import"])
def test_a_shared_bundle_recomputes_equal_and_verifies(request, which):
    made = request.getfixturevalue(f"shared_{which}")
    result = recompute_bundle(made.path, builders=BUILDERS, version="0.1.0")
    assert (result.is_equal, result.first_difference) == (True, None)
    assert "not that of the original" in result.notes[0]
    checked = verify_ledger(made.path / archive.LEDGER, head=made.head)
    assert checked.ok


@pytest.mark.parametrize("which", ["run", "import"])
def test_its_root_is_its_own_and_the_original_one_is_in_the_manifest(request, which):
    made = request.getfixturevalue(f"shared_{which}")
    original = verify_ledger(request.getfixturevalue(f"{which}_ledger")).head
    told = manifest(made)["share"]["original"]
    assert told == {"origin": original.origin, "size": original.size, "root": original.root_hex}
    assert (made.head.size, made.head.origin != original.origin) == (original.size, True)
    assert made.head.root != original.root


@pytest.mark.parametrize("which", ["run", "import"])
def test_every_figure_has_the_value_that_it_has_in_the_original(request, which, tmp_path):
    ledger, made = (
        request.getfixturevalue(f"{which}_ledger"),
        request.getfixturevalue(f"shared_{which}"),
    )
    now_us = {"run": sample_run.START_US, "import": IMPORT_US}[which] + 10**9
    original = bundled(ledger, tmp_path / "b", now_us=now_us)
    said, shared = (
        [(f.value, f.unit, str(f.kind), f.n) for _, f in figures_in(b.report)]
        for b in (original, made)
    )
    # Tables of groups are in the order of names, which are others here: the values are compared as a collection.
    assert sorted(map(repr, _rounded(shared))) == sorted(map(repr, _rounded(said)))
    assert len(said) > 100


def _rounded(rows):
    return [(round(v, 9) if isinstance(v, float) else v, *rest) for v, *rest in rows]


def test_the_order_of_events_of_one_instant_is_kept(run_ledger, shared_run):
    with open_store(run_ledger) as before, read_store(shared_run.path / archive.LEDGER) as after:
        old = [event.seq for event in sorted(before.events(), key=lambda e: e.id)]
        new = [event.seq for event in sorted(after.events(), key=lambda e: e.id)]
        assert old == new
        assert [e.t_recorded_us for e in before.events()] == [
            e.t_recorded_us for e in after.events()
        ]


def test_a_correction_still_corrects_the_same_event(tmp_path):
    events = sample_run.undisturbed(last_step=3)
    later = msgspec.structs.replace(
        events[-1],
        id="zz-later",
        links=msgspec.convert({"supersedes": events[2].id}, type(_links())),
    )
    with open_store(tmp_path / "l.db") as store:
        store.append([*events, later])
    bundled(tmp_path / "l.db", tmp_path / "b", key=KEY)
    with read_store(tmp_path / "b" / archive.LEDGER) as store:
        shared = list(store.events())
    assert shared[-1].links.supersedes == shared[2].id


def _links():
    from lastgood.ledger.event import Links

    return Links()


def test_the_run_still_stands_under_the_contract_that_it_was_started_with(shared_run):
    declared = parse_contract((shared_run.path / archive.CONTRACT).read_bytes())
    with read_store(shared_run.path / archive.LEDGER) as store:
        start = list(store.events(kinds=["run.start"]))[-1]
    assert start.body["contract_digest"] == contract_digest(declared)
    assert parse_contract(start.body["contract"]) == declared


def test_one_name_has_one_pseudonym_wherever_it_stands(shared_run):
    with read_store(shared_run.path / archive.LEDGER) as store:
        events = list(store.events())
    hosts = {d.id for e in events for d in e.domain if d.kind == "host"}
    assert len(hosts) == 1
    assert {e.clock.id for e in events} == hosts
    assert {e.body["host"] for e in events if e.kind == "run.start"} == hosts


def test_another_key_gives_other_pseudonyms(run_ledger, shared_run, tmp_path):
    other = bundled(run_ledger, tmp_path / "b", key=bytes(32))
    assert other.report.subject != shared_run.report.subject
    assert other.share.replaced == shared_run.share.replaced


def test_the_manifest_counts_what_was_replaced_and_removed(
    shared_run, shared_import, run_ledger, import_ledger
):
    told = manifest(shared_run)["share"]
    assert told["distinct"]["host"] == 1
    assert told["distinct"]["run"] == 2
    assert told["distinct"]["incident"] == 5
    with open_store(run_ledger) as store:
        assert told["replaced"]["topology"] == store.size
    with open_store(import_ledger) as store:
        raw_count = sum(1 for e in store.events() if e.source and e.source.raw_sha256)
    assert manifest(shared_import)["share"]["removed"] == {"hash of a raw row": raw_count}


def test_a_bundle_that_is_not_shared_says_nothing_of_sharing(run_ledger, tmp_path):
    made = bundled(run_ledger, tmp_path / "b")
    assert "share" not in manifest(made)


def test_a_named_run_is_the_one_that_is_reported(run_ledger, tmp_path):
    made = bundled(run_ledger, tmp_path / "b", key=KEY, run="quiet-1")
    with read_store(made.path / archive.LEDGER) as store:
        quiet = {e.run for e in store.events() if e.kind == "run.start" and e.body["mode"] == "run"}
    assert quiet == {made.report.subject}


def test_fields_of_a_newer_writer_are_left_out_and_counted(tmp_path):
    events = sample_run.undisturbed(last_step=3)
    events[1] = msgspec.structs.replace(events[1], extra={"tenant": "acme-77"})
    with open_store(tmp_path / "l.db") as store:
        store.append(events)
    made = bundled(tmp_path / "l.db", tmp_path / "b", key=KEY)
    assert made.share.removed == {"field of a newer writer": 1}
    assert surviving({"acme-77", "tenant"}, tmp_path / "b") == []


# --- on the command line ----------------------------------------------------------------------------


def test_share_on_the_command_line_says_what_left_and_recomputes(cli, run_ledger, tmp_path):
    ledger = shutil.copy(run_ledger, tmp_path / "my-cluster9.db")
    made = cli("bundle", ledger, "-o", tmp_path / "for-acme8.tar", "--share")
    assert made.exit_code == 0
    assert "1 host" in made.stderr
    assert f"not the root of the original, {verify_ledger(run_ledger).head.root_hex}" in made.stderr
    raw = (tmp_path / "for-acme8.tar").read_bytes()
    assert b"my-cluster9" not in raw
    assert b"for-acme8" not in raw
    again = cli("recompute", tmp_path / "for-acme8.tar")
    assert again.exit_code == 0
    assert "note: shared copy" in again.stdout


def test_two_shares_of_one_ledger_cannot_be_joined(cli, run_ledger, tmp_path):
    runs = set()
    for name in ("a", "b"):
        assert cli("bundle", run_ledger, "-o", tmp_path / name, "--share").exit_code == 0
        with read_store(tmp_path / name / archive.LEDGER) as store:
            runs |= {event.run for event in store.events()}
    assert len(runs) == 4
