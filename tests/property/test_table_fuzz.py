"""Tables through column maps: mutated tables end in a table of quality, mutated maps in sentences, guesses never raise.

The formats' own fuzz test reads tables by their presets only; here both the table and its map are anything.
"""

import dataclasses
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.base.errors import BadInput, Problems
from lastgood.ledger.importers.importer import Options
from lastgood.ledger.importers.source import Source
from lastgood.ledger.importers.table_guess import guess_map
from lastgood.ledger.importers.table_map import PRESETS, load_preset_text, parse_column_map
from tests.property.test_import_fuzz import mutations, read

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "import"
IS_NIGHTLY = os.environ.get("LASTGOOD_HYPOTHESIS_PROFILE") == "nightly"
EXAMPLE_COUNT = 10_000 if IS_NIGHTLY else 60

SIGNAL_MAP = b"rows: signal\ncolumns: {time: at.when, host: [node, at.node], label: kind, class: kind}\nwords: {class: {'*': sdc}}\n"
ROWS = b'{"at":{"when":"2026-11-02T03:14:00Z","node":"n1"},"kind":"a"}\n{"at":{"when":1793589247,"node":["n1","n2"]},"kind":"b"}\n'
PAIRS = [
    ((SAMPLES / "faults.csv").read_bytes(), (SAMPLES / "faults-map.yaml").read_bytes()),
    (ROWS, SIGNAL_MAP),
    ((SAMPLES / "philly.json").read_bytes(), load_preset_text("philly").encode()),
    ((SAMPLES / "helios.csv").read_bytes(), load_preset_text("helios").encode()),
]
MAPS = [map_ for _, map_ in PAIRS] + [load_preset_text(name).encode() for name in PRESETS]
LEFT_TO_A_PERSON = {"no time", "no start", "no columns", "neither id nor run"}
fuzzed = settings(
    max_examples=EXAMPLE_COUNT, deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    for mutate in draw(st.lists(mutations, min_size=1, max_size=4)):
        data = mutate(data)
    return data


@pytest.mark.timeout(1800 if IS_NIGHTLY else 60)
@fuzzed
@given(data=st.data())
def test_a_mutated_table_through_a_map_ends_in_a_table_of_quality(data, tmp_path_factory):
    table, column_map = data.draw(st.sampled_from(PAIRS))
    path = tmp_path_factory.getbasetemp() / "map.yaml"
    path.write_bytes(column_map)
    quality = read(
        "table", "t.csv", data.draw(changed(table)), Options(zone="UTC", column_map=path)
    )

    assert not [reason for reason in quality.rejected if reason.startswith("not understood")], (
        quality.rejected
    )


@pytest.mark.timeout(1800 if IS_NIGHTLY else 60)
@fuzzed
@given(data=st.data())
def test_a_mutated_map_is_a_map_or_a_list_of_problems(data):
    try:
        column_map = parse_column_map(
            data.draw(changed(data.draw(st.sampled_from(MAPS)))), source="map.yaml"
        )
    except (BadInput, Problems) as error:
        assert str(error)  # noqa: PT017
    else:
        assert dataclasses.asdict(column_map)["rows"] in {"fault", "signal", "job", "exposure"}


@pytest.mark.timeout(1800 if IS_NIGHTLY else 60)
@fuzzed
@given(data=st.data())
def test_a_guess_of_a_mutated_table_is_yaml_that_this_reader_reads(data):
    table, _ = data.draw(st.sampled_from(PAIRS))
    mutated = data.draw(changed(table))
    try:
        guess = guess_map(Source("-", stream=io.BytesIO(mutated)))
    except BadInput as error:  # a file that begins like a packed one is told to be unpacked
        assert "packed" in str(error), error  # noqa: PT017
        return
    try:
        parse_column_map(guess.text.encode(), source="map.yaml")
    except Problems as error:
        assert {p.found for p in error.problems} <= LEFT_TO_A_PERSON  # noqa: PT017
