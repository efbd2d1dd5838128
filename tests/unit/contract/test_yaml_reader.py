"""YAML's surprises are problems with a line, never guesses and never tracebacks."""

import pytest

from lastgood.contract.yaml_reader import DEPTH_MAX, FILE_BYTES_MAX, parse_document, scalar_value


def problems_of(raw: bytes) -> list[str]:
    document = parse_document(raw, source="f")
    return [str(problem) for problem in document.problems]


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "Yes", "TRUE", "1:30", "2026-01-01", "010", "0x1F", "1_000",
                                  ".nan", ".inf", "1e999", "Null", "9" * 5000])  # fmt: skip
def test_what_other_readers_would_convert_stays_text(text):
    assert text == scalar_value(text)


def test_only_clear_scalars_are_converted():
    assert [
        scalar_value(text) for text in ("", "~", "null", "true", "false", "0", "-7", "2.5", "1e3")
    ] == [None, None, None, True, False, 0, -7, 2.5, 1e3]


def test_quoted_numbers_and_booleans_are_text():
    assert parse_document(b"a: '1'\nb: \"true\"\nc: |\n  1\n", source="f").value == {
        "a": "1",
        "b": "true",
        "c": "1\n",
    }


def test_a_repeated_key_is_refused_with_both_lines():
    assert problems_of(b"a:\n  b: 1\n  b: 2\n") == [
        "f:3: a.b: found the key again (first on line 2), needs each key once"
    ]


def test_the_same_key_in_two_mappings_is_fine():
    assert problems_of(b"a: {k: 1}\nb: {k: 1}\n") == []


@pytest.mark.parametrize(
    ("raw", "line", "part"),
    [
        (b"", 1, "an empty file"),
        (b"\n\n# only a comment\n", 1, "an empty file"),
        (b"a: 1\n---\nb: 2\n", 2, "a second document"),
        (b"a: &here 1\nb: *here\n", 1, "the anchor &here"),
        (b"a: &here 1\nb: *here\n", 2, "the alias *here"),
        (b"a: *nowhere\n", 1, "the alias *nowhere"),
        (b"a: 1\nb: !!int 3\n", 2, "the tag"),
        (b"a: 1\nb: !!python/object/apply:os.system [x]\n", 2, "the tag"),
        (b"a:\n\tb: 1\n", 2, "a tab"),
        (b"a: 1\n  b: 2\n", 2, "mapping values are not allowed here"),
        (b"a: [1, 2\n", 2, "valid YAML"),
        (b"a: 1\nb: \xff\n", 2, "byte 0xff that is not UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "that is not UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "needs printable text"),
        (b"\x7fELF\x02\x01\x01\x00", 1, "needs printable text"),
        (b"? [a, b]\n: 1\n", 1, "a key that is not text"),
        (b'a: 1\nb: "\\ud800"\n', 2, "half of a surrogate pair"),
        (b'a: "\\U00110000"\n', 1, "text that YAML cannot hold"),
        (b"%YAML 9.9\n---\na: 1\n", 1, "incompatible YAML"),
        (b"[" * 5000, 1, f"more than {DEPTH_MAX} levels"),
        (b"- " * 5000 + b"1", 1, f"more than {DEPTH_MAX} levels"),
        (b"a: " + b"x" * FILE_BYTES_MAX, 1, f"more than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_hostile_or_surprising_input_is_named_with_its_line(raw, line, part):
    found = problems_of(raw)
    assert any(problem.startswith(f"f:{line}: ") and part in problem for problem in found), found


def test_nesting_up_to_the_bound_is_read():
    assert problems_of(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX) == []


def test_a_byte_order_mark_is_no_problem():
    assert parse_document(b"\xef\xbb\xbfa: 1\n", source="f").value == {"a": 1}


def test_what_is_printed_holds_nothing_that_a_terminal_obeys():
    document = parse_document("k\u202ex: 1\n".encode(), source="f")
    document.add(("k\u202ex",), found="\u202eabc" + "y" * 500, needs="less")
    assert [str(p) for p in document.problems] == [
        "f:1: k?x: found ?abc" + "y" * 56 + "..., needs less"
    ]


def test_the_lines_of_keys_lists_and_missing_keys_are_known():
    document = parse_document(b"a:\n  b:\n    - 1\n    - c: 2\n", source="f")
    assert [
        document.line_of(path)
        for path in (
            ("a",),
            ("a", "b"),
            ("a", "b", 0),
            ("a", "b", 1),
            ("a", "b", 1, "missing"),
            ("a", "b", 9),
        )
    ] == [1, 2, 3, 4, 4, 2]


def test_a_syntax_problem_without_a_context_says_no_here():
    (problem,) = problems_of(b"a: 1\n  b: 2\n")
    assert "needs valid YAML" in problem
    assert "(here)" not in problem
