"""Every format against broken, cut and hostile files: always a table in which every row is counted, never a traceback.

Samples of each format are mutated by bytes, by lines and by values, and read in memory by the same steps as the driver
takes. A reason that begins with *not understood* is a failure of the format here: it stands for an exception that
nobody thought of, and it would hide a defect behind a table.
"""

import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.base.clock import ManualClock
from lastgood.base.errors import BadInput
from lastgood.base.rng import stream
from lastgood.ledger.event import decode_event, encode_event
from lastgood.ledger.importers import registry
from lastgood.ledger.importers.clean import Cleaner
from lastgood.ledger.importers.driver import import_files, read_events
from lastgood.ledger.importers.importer import Context, Head, Options
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.importers.source import Source
from lastgood.ledger.masking import Masker
from lastgood.ledger.verify import verify_ledger

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "import"
IS_NIGHTLY = os.environ.get("LASTGOOD_HYPOTHESIS_PROFILE") == "nightly"
EXAMPLE_COUNT = int(os.environ.get("LASTGOOD_FUZZ_EXAMPLES") or (10_000 if IS_NIGHTLY else 50))
NOW_US = 1_795_000_000_000_000
MASKER = Masker(b"k" * 32)


def samples() -> dict[str, list[tuple[str, bytes]]]:
    """Format -> the files in the folder of samples that it recognises before every other format."""
    found: dict[str, list[tuple[str, bytes]]] = {name: [] for name in registry.FORMATS}
    for path in sorted(SAMPLES.rglob("*")):
        if path.is_file() and not path.name.endswith("-map.yaml"):
            data = path.read_bytes()
            matches = registry.detect(Head(data, data.decode(errors="replace"), path.name))
            if matches:
                found[matches[0].name].append((path.name, data))
    return found


SAMPLE_FILES = samples()
ALL_FILES = [data for files in SAMPLE_FILES.values() for _, data in files]

HOSTILE = [
    b"", b"\x00", b"\xff\xfe", b"\xc3", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n\n", b'"', b"'", b"\\", b"|", b",", b"\x1f",
    b"\t", b"{", b"}", b"[", b"]", b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"1.5",
    b"-0.0", b"18446744073709551616", b'""', b'"\\ud800"', b'"\\u0000"', "\u2028\u202e\U0001f525".encode(), b"[" * 300,
    b'{"a":' * 120, b"../../etc/passwd", b"%s%n{0}", b"x" * 3000, b"None", b"Unknown", b"2026-02-30T25:61:61Z",
    b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59Z", b"1969-12-31T23:59:59-12:00", b"99999999999999",
    b'{"stringValue": []}', b"[]", b"{}", b'[null, 5, "x", {}]', b"gpu-[0001-9999999]", b"a[1-3", b"- ", b": ", b"!!x ",
    b"&a *a", b"---\n", b"# ", b"\x80\x05]q\x00.", b"cos\nsystem\n(S'x'\ntR.",
]  # fmt: skip
VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.:T+Z\-]*|\w+', re.DOTALL)

place = st.floats(0, 1, exclude_max=True)
Mutation = Callable[[bytes], bytes]


def spot(data: bytes, where: float) -> int:
    return int(where * (len(data) + 1))


def replace_value(data: bytes, where: float, new: bytes) -> bytes:
    """A number, word or quoted text becomes something else."""
    matches = list(VALUE.finditer(data))
    if not matches:
        return data + new
    match = matches[int(where * len(matches))]
    return data[: match.start()] + new + data[match.end() :]


def swap_lines(data: bytes, one: float, two: float) -> bytes:
    lines = data.split(b"\n")
    i, j = int(one * len(lines)), int(two * len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def drop_line(data: bytes, where: float, _: float) -> bytes:
    lines = data.split(b"\n")
    del lines[int(where * len(lines))]
    return b"\n".join(lines)


def repeat_line(data: bytes, where: float, times: float) -> bytes:
    lines = data.split(b"\n")
    i = int(where * len(lines))
    return b"\n".join([*lines[:i], *[lines[i]] * int(times * 5), *lines[i:]])


def cut(data: bytes, one: float, two: float) -> bytes:
    i, j = sorted((spot(data, one), spot(data, two)))
    return data[:i] + data[j:]


def double(data: bytes, one: float, two: float) -> bytes:
    i, j = sorted((spot(data, one), spot(data, two)))
    return data[:j] + data[i:j] + data[j:]


def truncate(data: bytes, where: float, _: float) -> bytes:
    return data[: spot(data, where)]


def flip(data: bytes, where: float, bit: float) -> bytes:
    if not data:
        return data
    i = int(where * len(data))
    return data[:i] + bytes([data[i] ^ 1 << int(bit * 8)]) + data[i + 1 :]


def encode(data: bytes, which: float, _: float) -> bytes:
    text = data.decode(errors="replace")
    return [text.encode("utf-16"), text.encode("latin-1", "replace"), text.encode("utf-16-le")][
        int(which * 3)
    ]


def splice(data: bytes, where: float, other: float) -> bytes:
    """Half of another format in the middle."""
    more = ALL_FILES[int(other * len(ALL_FILES))]
    i = spot(data, where)
    return data[:i] + more[: len(more) // 2] + data[i:]


BY_PLACE = (swap_lines, drop_line, repeat_line, cut, double, truncate, flip, encode, splice)
mutations = st.one_of(
    st.builds(lambda w, n: lambda data: replace_value(data, w, n), place, st.sampled_from(HOSTILE)),
    st.builds(lambda w, n: lambda data: data[: spot(data, w)] + n + data[spot(data, w) :], place, st.sampled_from(HOSTILE) | st.binary(max_size=8)),
    st.builds(lambda act, a, b: lambda data: act(data, a, b), st.sampled_from(BY_PLACE), place, place),
)  # fmt: skip


@st.composite
def mutated(draw, name: str) -> tuple[str, bytes]:
    file, data = draw(st.sampled_from(SAMPLE_FILES[name]))
    for mutate in draw(st.lists(mutations, min_size=1, max_size=5)):
        data = mutate(data)
    return file, data


options = st.sampled_from([
    Options(year=2026, zone="UTC", boot_us=NOW_US - 10**12, host="h1", devices_per_node=8, cluster="c"),
    Options(),
    Options(year=2026, zone="Europe/Berlin", run="r"),
])  # fmt: skip


def with_map(name: str, file: str, chosen: Options) -> Options:
    """A table needs a column map, or the name of a preset: this test is about rows and not about a missing map."""
    if name != "table":
        return chosen
    presets = {
        "philly": "philly",
        "acme-seren": "acme-seren",
        "acme-kalos": "acme-kalos",
        "helios": "helios",
    }
    known = presets.get(file.partition(".")[0])
    return replace(chosen, column_map=SAMPLES / "faults-map.yaml" if known is None else Path(known))


def read(name: str, file: str, data: bytes, chosen: Options) -> Quality:
    """The table of one file, with every event checked; the same steps as the driver takes, without a ledger."""
    importer = registry.importer(name)
    score = importer.recognises(Head(data[:65_536], data[:65_536].decode(errors="replace"), file))
    assert 0 <= score <= 100
    quality = Quality()
    source = Source(file, stream=io.BytesIO(data))
    chosen = with_map(name, file, chosen)
    context = Context(importer, source, options=chosen, cleaner=Cleaner(MASKER), quality=quality)
    try:
        events = list(read_events(importer, source, context))
    except BadInput as error:  # said to the person, before any row: the map does not fit the file, or it is packed
        assert quality.accepted == 0, error  # noqa: PT017 - either end is right
        return quality
    finish = getattr(importer, "finish", None)
    events += list(finish(context)) if finish is not None else ()
    for event in events:
        encoded = encode_event(event)
        assert encode_event(decode_event(encoded)) == encoded
        assert event.t_occurred_us is not None
        assert event.source.importer == name
    assert quality.read == quality.accepted + quality.ignored_count + quality.rejected_count
    assert json.dumps(quality.to_plain())
    return quality


@pytest.mark.parametrize("name", list(registry.FORMATS))
def test_every_format_has_a_sample_that_gives_events(name):
    assert SAMPLE_FILES[name], f"put a file of the format {name} into {SAMPLES}"
    chosen = Options(year=2026, zone="UTC", devices_per_node=8)
    assert any(read(name, file, data, chosen).accepted for file, data in SAMPLE_FILES[name])


@pytest.mark.timeout(1800 if IS_NIGHTLY else 60)
@pytest.mark.parametrize("name", list(registry.FORMATS))
def test_any_mutated_file_ends_in_a_table(name):
    @settings(max_examples=EXAMPLE_COUNT, suppress_health_check=list(HealthCheck))
    @given(mutated(name), options)
    def check(case, chosen):
        file, data = case
        quality = read(name, file, data, chosen)
        strange = [reason for reason in quality.rejected if reason.startswith("not understood")]
        assert not strange, {reason: quality.rejected[reason].examples[0] for reason in strange}

    check()


@pytest.mark.parametrize("name", list(registry.FORMATS))
@pytest.mark.parametrize(
    "data",
    [b"", b"\n" * 50, b"\x00" * 5_000, b"\xff" * 500, b"[" * 20_000, b'{"a":' * 5_000, b'"' * 999, stream(1, "noise").randbytes(20_000)],
    ids=["nothing", "empty lines", "zeros", "no text", "brackets", "objects", "quotes", "noise"],
)  # fmt: skip
def test_a_file_that_is_nothing_at_all_ends_in_a_table(name, data):
    quality = read(name, SAMPLE_FILES[name][0][0], data, Options(year=2026))
    assert not [reason for reason in quality.rejected if reason.startswith("not understood")]


@pytest.mark.parametrize("name", list(registry.FORMATS))
@settings(max_examples=200 if IS_NIGHTLY else 3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_mutated_file_goes_through_the_whole_import_and_its_ledger_verifies(
    name, data, tmp_path_factory
):
    file, content = data.draw(mutated(name))
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / file).write_bytes(content)

    def run():
        chosen = with_map(name, file, Options(year=2026, zone="UTC"))
        return import_files(
            [folder / file],
            ledger=folder / "l.db",
            format=name,
            options=chosen,
            clock=ManualClock(NOW_US),
        )

    try:
        first = run()
    except BadInput:  # as above
        return
    again = run()
    assert again.total.events_new == 0, "importing twice changes nothing"
    assert again.total.events_merged == first.total.events_new + first.total.events_merged
    assert verify_ledger(folder / "l.db").ok
