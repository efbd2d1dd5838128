"""The words of taxonomy v1 never change under their name."""

import hashlib
import json
from collections import Counter
from importlib import resources
from pathlib import Path

from lastgood.contract import taxonomy
from lastgood.contract.taxonomy import (
    AXES,
    Cause,
    CountedClass,
    FailureClass,
    Symptom,
    class_of,
)

FROZEN = Path(taxonomy.__file__).with_name("taxonomy_v1.json")
FROZEN_SHA256 = "7e1dbdd26d9230deed31dea8094e100f85651fe8838b6084752bba9e7ce3d0fc"
"""Typed here a second time on purpose: code and file cannot drift together unseen."""


def test_the_frozen_file_still_has_the_hash_it_was_frozen_with():
    assert hashlib.sha256(FROZEN.read_bytes()).hexdigest() == FROZEN_SHA256
    assert f"lastgood-taxonomy/1@sha256:{FROZEN_SHA256}" == taxonomy.TAXONOMY_ID


def test_every_enum_holds_exactly_the_words_of_the_frozen_file():
    frozen = json.loads(FROZEN.read_bytes())
    assert frozen["taxonomy"] == taxonomy.TAXONOMY_NAME
    assert frozen["axes"] == {
        name: [member.value for member in axis] for name, axis in AXES.items()
    }


def test_every_symptom_a_detector_can_name_is_a_word_of_the_taxonomy():
    from lastgood.signals.reading import Symptom as Detected

    assert {member.value for member in Detected} <= {member.value for member in Symptom}


def test_every_symptom_a_detector_can_name_has_one_class():
    from lastgood.signals.reading import Symptom as Detected

    assert {class_of(member) for member in Detected} == {*FailureClass} - {FailureClass.PLANNED}
    assert {class_of("hang"), class_of("slow")} == {FailureClass.FAIL_SLOW}, "the process lives"


def test_no_mapping_calls_a_process_that_lives_and_stands_still_anything_but_slow():
    """Of the tables that are taken now: an older version keeps its bytes, because ledgers name it."""
    folder = resources.files("lastgood.ledger.importers").joinpath("mappings")
    newest = {
        path.name.rpartition("-")[0]: path
        for path in sorted(folder.iterdir(), key=lambda p: p.name)
    }
    rows = [
        (path.name, code, row)
        for path in newest.values()
        for code, row in json.loads(path.read_bytes())["rows"].items()
        if row.get("symptom") in {"hang", "slow"} and "class" in row
    ]
    assert len(rows) > 5
    assert [(name, code) for name, code, row in rows if row["class"] != "fail_slow"] == []


def test_correlated_is_countable_but_no_class():
    assert "correlated" not in set(FailureClass)
    assert [*FailureClass, "correlated"] == list(CountedClass)


def test_the_cause_tree_has_the_branches_of_the_source():
    leaves = [cause.value.partition(".") for cause in Cause]
    count = Counter(branch for branch, _, _ in leaves)
    assert (count["gpu"], count["host"], count["data"]) == (7, 7, 1)
    assert {"nic", "cable", "switch", "fabric"} == {
        leaf for branch, _, leaf in leaves if branch == "network"
    }


def test_no_symptom_is_also_a_cause_except_unknown():
    assert {"unknown"} == {s.value for s in Symptom} & {c.value for c in Cause}
