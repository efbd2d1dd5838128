"""Laws of reading a contract: any bytes end in a contract or in problems, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.base.errors import Problems
from lastgood.base.poisson import poisson_tail
from lastgood.contract.load import parse_contract
from lastgood.contract.starter import starter_text
from lastgood.contract.yaml_reader import parse_document

STARTER = starter_text()
LINES = STARTER.splitlines()
YAML_PIECES = st.sampled_from(["a", ":", " ", "\n", "- ", "[", "]", "{", "}", "&x", "*x", "!!int", "'", '"', "|", "\t", "?",
                               "#", "---", "...", "%", "\\u", "0", "<<", ",", ">", "@", "spec"])  # fmt: skip


def holds(raw: bytes) -> None:
    try:
        parse_contract(raw, needs_duties=True)
    except Problems as error:
        for problem in error.problems:
            assert (problem.where or "").startswith("contract")
            assert str(problem).isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_end_in_problems_and_never_in_a_traceback(raw):
    holds(raw)


@given(st.lists(YAML_PIECES, max_size=60).map("".join))
def test_any_pile_of_yaml_marks_ends_in_problems_and_never_in_a_traceback(text):
    holds(text.encode())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, len(LINES) - 1),
    st.one_of(st.none(), st.lists(YAML_PIECES, max_size=4).map("".join)),
)
def test_the_starter_with_any_line_removed_or_spoilt_never_ends_in_a_traceback(index, extra):
    lines = [*LINES]
    lines[index : index + 1] = [] if extra is None else [lines[index] + extra]
    holds("\n".join(lines).encode())


@given(st.recursive(st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_quoted_text_comes_through_unchanged(value):
    """Text in double quotes with escapes is what JSON writes, and JSON is YAML."""
    import json

    document = parse_document(json.dumps(value).encode(), source="f")
    if not document.problems:
        assert value == document.value


@given(st.integers(0, 200), st.floats(0.0, 300.0))
def test_a_tail_is_a_probability_and_falls_with_the_count(count, mean):
    assert 1.0 >= poisson_tail(count, mean) >= poisson_tail(count + 1, mean) >= 0.0
