"""Events out of rows: deterministic ids, checked words, masked and bounded texts, and a count of every row."""

import io
import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.errors import BadInput
from lastgood.ledger.event import content_id, decode_event, encode_event
from lastgood.ledger.importers.clean import TEXT_CHARS_MAX, Cleaner
from lastgood.ledger.importers.importer import Context, Options, RowProblem, StrictStop
from lastgood.ledger.importers.json_scan import Broken, Item
from lastgood.ledger.importers.quality import Quality
from lastgood.ledger.importers.source import Line, Source
from lastgood.ledger.masking import Masker

AT_US = 1_793_589_247_000_000
MASKER = Masker(b"k" * 32, names=["mallory"])


class Format:
    name = "sample"
    version = "3"
    title = "a sample"


def context_of(**options) -> Context:
    return Context(
        Format(),
        Source("x.log", stream=io.BytesIO(b"")),
        options=Options(**options),
        cleaner=Cleaner(MASKER),
        quality=Quality(),
    )


def line(text: str, number: int = 1) -> Line:
    return Line(number, text.encode(), text)


def observe(context: Context, row: Line | None = None, **fields):
    return context.event("observation", row=row or line("raw"), t_us=AT_US, **fields)


# --- ids ------------------------------------------------------------------------------------------


def test_the_id_is_made_of_format_host_repeat_and_row():
    """The oracle is `content_id`, which makes the same bytes in the slow and plain way."""
    context = context_of()
    first, second = line("same \u00e9 row", 1), line("same \u00e9 row", 2)
    ids = [observe(context, row, host="h\u00f6st 1").id for row in (first, second)]
    assert ids == [
        content_id(source="sample|h\u00f6st 1", locator=str(repeat), raw=first.raw)
        for repeat in (0, 1)
    ]


def test_equal_rows_of_two_files_are_one_event_and_of_two_hosts_are_two():
    assert observe(context_of(), host="a").id == observe(context_of(), host="a").id
    assert observe(context_of(), host="a").id != observe(context_of(), host="b").id


def test_several_events_of_one_row_have_ids_of_their_own():
    context = context_of()
    row = line("raw")
    assert len({observe(context, row).id for _ in range(3)}) == 3


def test_an_identity_decides_alone_together_with_the_kind():
    def made(kind: str, text: str, *identity, **fields):
        return context_of().event(kind, row=line(text), t_us=AT_US, identity=identity, **fields).id

    assert made("run.start", "a", "job", 5) == made("run.start", "other text", "job", 5, host="h")
    assert made("run.start", "a", "job", 5) != made("run.end", "a", "job", 5)
    assert made("run.start", "a", "job", 5) != made("run.start", "a", "job", 6)
    assert made("run.start", "a", "job", 5) != made("run.start", "a", "job5")


def test_beyond_the_window_of_repeats_the_count_starts_again(monkeypatch):
    from lastgood.ledger.importers import importer

    monkeypatch.setattr(importer, "REPEAT_WINDOW_ROWS", 2)
    context = context_of()
    first = observe(context, line("a", 1)).id
    for number, text in enumerate("bcd", 2):
        observe(context, line(text, number))
    assert observe(context, line("a", 9)).id == first


def test_an_incident_gets_the_same_name_from_the_same_records():
    assert context_of().incident_id("node", 4) == context_of().incident_id("node", "4")
    assert context_of().incident_id("a", "b") != context_of().incident_id("ab")
    assert context_of().incident_id("a").startswith("sample:")


# --- what an event carries ---------------------------------------------------------------------------


def test_an_event_says_where_it_was_read():
    event = observe(context_of(), line("raw", 1841), inferred=True)
    assert (event.source.importer, event.source.version, event.source.locator) == (
        "sample",
        "3",
        "x.log#1841",
    )
    assert event.source.raw_sha256 == sha256(b"raw").hexdigest()
    assert event.clock.source == "inferred"


def test_names_paths_and_secrets_in_a_body_are_masked():
    event = observe(
        context_of(),
        body={
            "text": "mallory wrote /home/eve/job.py token=abc",
            "user": "eve",
            "n": [{"password": "hunter2"}],
        },
        run="run of mallory",
    )
    said = json.dumps(event.body) + event.run
    for word in ("mallory", "eve", "job.py", "abc", "hunter2"):
        assert word not in said
    assert event.body["user"] == MASKER.pseudonym("user", "eve")
    assert event.body["text"].startswith(MASKER.pseudonym("user", "mallory"))


def test_a_float_becomes_hex_and_a_long_text_is_cut():
    body = observe(context_of(), body={"x": 1.5, "text": "y" * 20_000}).body
    assert body == {"x": "0x1.8000000000000p+0", "text": "y" * TEXT_CHARS_MAX}


def test_a_lone_surrogate_becomes_the_replacement_character_and_text_is_nfc():
    event = observe(
        context_of(), host="h\ud800", body={"k\ud800": "a\ud800b", "e\u0301": "e\u0301"}
    )
    assert event.body == {"k\ufffd": "a\ufffdb", "\xe9": "\xe9"}
    assert event.domain[0].id == "h\ufffd"
    assert encode_event(event)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cause": "gremlins"}, "taxonomy v1 has no such cause"),
        ({"class_": "sad"}, "taxonomy v1 has no such class"),
        ({"domain": [("planet", "mars")]}, "taxonomy v1 has no such domain"),
        ({"body": {"n": 2**63}}, "a number of more than 64 bits"),
        ({"devices": 2**63}, "devices has more than 64 bits"),
        ({"devices": "8"}, "devices is not a whole number"),
        ({"observed_us": 2**70}, "a time of more than 64 bits"),
        ({"body": {"o": object()}}, "a value that has no place in a record"),
        ({"body": {"l": list(range(20_000))}}, "a list with too many items"),
    ],
)
def test_what_cannot_be_recorded_rejects_its_row(fields, reason):
    with pytest.raises(RowProblem, match=reason):
        observe(context_of(), **fields)


def test_a_body_that_is_too_deep_rejects_its_row():
    deep: list = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(RowProblem, match="nested too deeply"):
        observe(context_of(), body={"deep": deep})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=())), JSON, max_size=4),
    st.text(),
    st.text(),
)
def test_any_json_gives_an_event_that_can_be_hashed_or_a_row_problem(body, host, run):
    """Lone surrogates, NaN, keys that are one after NFC, numbers of 100 digits: none may stop a whole batch."""
    try:
        event = observe(context_of(), body=body, host=host, run=run)
    except RowProblem:
        return
    data = encode_event(event)
    assert encode_event(decode_event(data)) == data


def test_hosts_and_devices_are_domains_without_control_characters():
    event = observe(
        context_of(),
        host=" gpu\x00-1 ",
        device="gpu-1/0",
        domain=[("rack", "r1"), ("host", "gpu\ufffd-1")],
    )
    assert [(d.kind, d.id) for d in event.domain] == [
        ("host", "gpu\ufffd-1"),
        ("device", "gpu-1/0"),
        ("rack", "r1"),
    ]


def test_the_run_of_the_options_is_that_of_every_event():
    assert observe(context_of(run="pretrain"), run="5123").run == "pretrain"
    assert observe(context_of(), run="5123").run == "5123"


# --- rows -------------------------------------------------------------------------------------------


def test_every_row_is_accepted_ignored_or_rejected():
    context = context_of()

    def parse(row):
        match row.text:
            case "good":
                return [observe(context, row)]
            case "twice":
                return [observe(context, row), observe(context, row)]
            case "dull":
                context.ignore(row, "dull")
            case "bad":
                raise RowProblem("bad", "why")
            case "bug":
                raise KeyError("column")
        return None

    rows = [
        line(text, n)
        for n, text in enumerate(["good", "twice", "dull", "bad", "bug", "none", "bad"], 1)
    ]
    rows.append(Item(8, b"{", Broken("not JSON")))
    events = list(context.rows(rows, parse))
    quality = context.quality
    assert len(events) == 3
    assert (quality.read, quality.accepted, quality.ignored_count, quality.rejected_count) == (
        8,
        2,
        2,
        4,
    )
    assert quality.ignored == {"dull": 1, "nothing to record in it": 1}
    assert {reason: r.count for reason, r in quality.rejected.items()} == {
        "bad": 2,
        "not understood: KeyError": 1,
        "not JSON": 1,
    }
    assert [(e.locator, e.detail) for e in quality.rejected["bad"].examples] == [
        ("x.log#4", "why"),
        ("x.log#7", "why"),
    ]


def test_a_row_that_fails_half_way_leaves_none_of_its_events():
    context = context_of()

    def parse(row):
        yield observe(context, row, class_="fail_stop", inferred=True)
        raise RowProblem("half way")

    assert list(context.rows([line("x")], parse)) == []
    quality = context.quality
    assert quality.rejected_count == 1
    assert quality.inferred_times == 0


def test_recursion_and_overflow_cost_their_row_only():
    context = context_of()

    def forever(n=0):
        return forever(n + 1)

    for act in (forever, lambda: int(1e400), b"\xff".decode):
        list(context.rows([line("x")], lambda _, act=act: act()))
    assert context.quality.rejected_count == 3


def test_the_first_rejected_row_stops_a_strict_import():
    context = context_of(is_strict=True)

    def parse(row):
        raise RowProblem("bad", "why")

    with pytest.raises(StrictStop, match=r"x\.log#3: bad: why"):
        list(context.rows([line("x", 3)], parse))


def test_a_mistake_in_the_options_is_no_bad_row():
    context = context_of()

    def parse(row):
        raise BadInput("no such column map")

    with pytest.raises(BadInput):
        list(context.rows([line("x")], parse))


def test_a_row_that_is_rejected_behind_its_ignoring_is_counted_once():
    context = context_of()

    def parse(row):
        context.ignore(row, "not about failures")
        if row.number == 2:
            raise RowProblem("not a time")

    rows = [Line(number, b"x", "x", is_damaged=False) for number in (1, 2)]
    assert list(context.rows(rows, parse)) == []

    quality = context.quality
    assert dict(quality.ignored) == {"not about failures": 1}
    assert (quality.read, quality.rejected_count) == (2, 1)


def test_the_examples_of_rejected_rows_are_masked():
    context = context_of()

    def parse(row):
        raise RowProblem("bad", "of mallory")

    list(context.rows([line("mallory was here")], parse))
    (example,) = context.quality.rejected["bad"].examples
    assert "mallory" not in example.raw + example.detail


def test_coverage_is_the_span_of_everything_seen():
    context = context_of()
    for t_us in (5, 3, 9, 4):
        context.coverage(t_us)
    assert (context.coverage_begin_us, context.coverage_end_us, context.is_window_declared) == (
        3,
        9,
        False,
    )
    context.declare_window(1, 20)
    assert (context.coverage_begin_us, context.coverage_end_us, context.is_window_declared) == (
        1,
        20,
        True,
    )


PIECES = st.sampled_from([
    "mallory", "eve", " ", ":", "=", "@", "/", "\\", "user", "User=", "by user ", "for user ", "uid=", "owner", "account:",
    "token", "SECRET_KEY=", "passwd", "pass phrase", "api-key ", "access_key", "credential", "Bearer ", "Basic ", "/home/",
    "C:\\Users\\", "/nfs/users/", "hf_", "ghp_", "gho-", "npm-", "pypi_", "glpat-", "dop_v1_", "shpat_", "sk-", "xoxb-",
    "AKIA", "ASIA", "AIza", "eyJ", "github_pat_", "-----BEGIN PRIVATE KEY-----", "://", "abcdefghij0123456789ABCDEFGHIJ",
    ".", "x", "example.org", "node-7", "\u017fecret=", "\u212aey", "log\u0130n=",
])  # fmt: skip


@given(st.lists(PIECES, max_size=8).map("".join))
def test_a_text_that_is_passed_over_had_nothing_to_mask(text):
    """The oracle is the same masker with its short cut taken out."""

    class Thorough(Masker):
        def _may_hold(self, text):
            return True

    assert MASKER.text(text) == Thorough(b"k" * 32, names=["mallory"]).text(text)


@given(PIECES, st.lists(PIECES, max_size=6).map("".join))
def test_a_key_says_the_same_about_its_text_as_before(key, text):
    """The oracle is the pattern over `key=text`, which was applied to every pair once."""
    from lastgood.ledger import masking

    if text and masking._NAMED_SECRET.fullmatch(f"{key}=x"):
        expected = MASKER.pseudonym("token", text)
    elif masking._NAMED_USER.fullmatch(f"{key}={text}"):
        expected = MASKER._name(text)
    else:
        expected = MASKER.text(text)
    assert MASKER.value({key: text})[key] == expected
