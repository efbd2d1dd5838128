"""Laws of the tape: what is written reads back equal, and any bytes end in a tape or in problems."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.base.errors import Problems
from lastgood.base.figures import FigureKind
from lastgood.faults.spec import Fault, FaultKind, Repeat, Target, When, find_problems
from lastgood.faults.tape import Provenance, Tape, parse_tape, tape_digest, write_tape

TARGETS = st.one_of(
    st.builds(Target, rank=st.integers(0, 10**6)),
    st.builds(Target, domain=st.sampled_from(["host:a", "power:feed 2", "switch:leaf:3"])),
)
REPEATS = st.none() | st.builds(Repeat, count=st.integers(1, 5), every_steps=st.integers(1, 9))


@st.composite
def tapes(draw) -> Tape:
    steps = sorted(draw(st.lists(st.integers(0, 10**6), max_size=12)))
    faults = tuple(
        Fault(
            id=f"f{number}",
            kind=draw(st.sampled_from([FaultKind.SIGKILL, FaultKind.SIGSTOP, FaultKind.EXCEPTION])),
            target=draw(TARGETS),
            when=When(step=step, after_recovered=draw(st.booleans())),
            repeat=draw(REPEATS),
            seed=draw(st.integers(0, 2**32)),
        )
        for number, step in enumerate(steps)
    )
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    provenance = Provenance(kind=draw(st.sampled_from(FigureKind)), source=draw(text))
    return Tape(faults=faults, seed=draw(st.integers(0, 2**63 - 1)), provenance=provenance)


def written(tape: Tape) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_tape(tape, Path(folder) / "tape")
        return (Path(folder) / "tape").read_bytes()


@given(tapes())
def test_a_tape_reads_back_equal_with_an_equal_digest(tape):
    again = parse_tape(written(tape))
    assert again == tape
    assert tape_digest(again) == tape_digest(tape)


@given(tapes(), st.data())
def test_a_tape_with_any_line_taken_away_is_refused(tape, data):
    lines = written(tape).splitlines(keepends=True)
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    with pytest.raises(Problems):
        parse_tape(b"".join(lines))


@given(tapes())
def test_expanding_keeps_every_fault_and_the_order_of_steps(tape):
    single = tape.expanded()
    assert len(single) == sum(fault.repeat.count if fault.repeat else 1 for fault in tape.faults)
    assert [one.when.step for one in single] == sorted(one.when.step for one in single)
    assert len({one.id for one in single}) == len(single)
    assert [problem for one in single for problem in find_problems(one, where="")] == []


@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["tape", "seed", "count", "id", "kind", "when", "target", "provenance", "step", "rank"]), inner, max_size=4),
    max_leaves=12,
).map(msgspec.json.encode)))  # fmt: skip
def test_any_bytes_that_are_no_tape_end_in_problems_and_never_in_a_traceback(raw):
    with pytest.raises(Problems) as caught:
        parse_tape(raw)
    assert all((problem.where or "").startswith("tape:") for problem in caught.value.problems)
