"""A tape reads back as it was written, names the line of every problem, and repeats under its seed."""

import pytest

from lastgood.base.errors import Problems
from lastgood.base.figures import FigureKind
from lastgood.base.units import US_PER_DAY, US_PER_H
from lastgood.faults.spec import Fault, FaultKind, Repeat, Target, When, find_problems
from lastgood.faults.tape import (
    Provenance,
    Tape,
    parse_tape,
    poisson_tape,
    read_tape,
    stepped_tape,
    tape_digest,
    write_tape,
)

HEADER = b'{"tape":"lastgood-tape/1","seed":7,"provenance":{"kind":"assumed","source":"a test"},"count":%d}\n'
GOOD = b'{"id":"a","kind":"sigkill","target":{"rank":2},"when":{"step":8}}\n'


def tape_of(*faults: Fault) -> Tape:
    return Tape(
        faults=faults, seed=7, provenance=Provenance(kind=FigureKind.ASSUMED, source="a test")
    )


def fault(name: str, **changes) -> Fault:
    values = {"id": name, "kind": FaultKind.SIGKILL, "target": Target(rank=0), "when": When(step=3)}
    return Fault(**(values | changes))


def problems_of(raw: bytes) -> list[str]:
    with pytest.raises(Problems) as caught:
        parse_tape(raw, source="t")
    return [str(problem) for problem in caught.value.problems]


def test_the_format_is_one_header_line_and_one_line_for_each_fault(tmp_path):
    path = tmp_path / "t.jsonl"
    write_tape(tape_of(fault("a", target=Target(rank=2), when=When(step=8))), path)
    assert path.read_bytes() == HEADER % 1 + GOOD


def test_a_tape_reads_back_equal_with_an_equal_digest(tmp_path):
    tape = stepped_tape(3, world=4, steps=50, count=20, kinds=FaultKind)
    write_tape(tape, tmp_path / "t.jsonl")
    again = read_tape(tmp_path / "t.jsonl")
    assert again == tape
    assert tape_digest(again) == tape_digest(tape)
    assert tape_digest(
        stepped_tape(4, world=4, steps=50, count=20, kinds=FaultKind)
    ) != tape_digest(tape)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", ["t:1: "]),
        (b"\xff\xfe", ["t:1: "]),
        (b'{"tape":"other/9","seed":1,"provenance":{"kind":"assumed","source":""},"count":0}\n', ["t:1: tape: found other/9"]),
        (HEADER % 2 + GOOD, ["t:1: count: found 1 faults"]),
        (HEADER % 1 + b"not json\n", ["t:2: "]),
        (HEADER % 1 + b'{"id":"a","kind":"explode","target":{"rank":0},"when":{"step":1}}\n', ["t:2: Invalid enum value 'explode'"]),
        (HEADER % 1 + b'{"id":"a","kind":"sigkill","target":{"rnak":0},"when":{"step":1}}\n', ["t:2: Object contains unknown field `rnak`"]),
        (HEADER % 1 + b'{"id":"a","kind":"sigkill","target":{"rank":"0"},"when":{"step":1}}\n', ["t:2: Expected `int | null`, got `str`"]),
        (HEADER % 1 + b"[" * 3000 + b"\n", ["t:2: "]),
        (HEADER % 2 + GOOD + GOOD, ["t:3: id: found a again"]),
        (HEADER % 2 + GOOD + GOOD.replace(b'"a"', b'"b"').replace(b"8", b"7"), ["t:3: when.step: found 7, needs 8 or later"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tape_is_named_with_its_line(raw, expected):
    found = problems_of(raw)
    assert len(found) == len(expected)
    assert all(have.startswith(want) for have, want in zip(found, expected, strict=True)), found


def test_problems_of_several_lines_come_at_once():
    bad = b'{"id":"","kind":"sigkill","target":{},"when":{}}\n'
    assert [line.split(":")[1] for line in problems_of(HEADER % 3 + bad + GOOD + b"{\n")] == [
        "2",
        "2",
        "2",
        "4",
    ]


def test_a_tape_that_could_not_be_read_back_is_not_written(tmp_path):
    path = tmp_path / "t.jsonl"
    with pytest.raises(Problems):
        write_tape(tape_of(fault("a"), fault("a")), path)
    assert not path.exists()
    with pytest.raises(Problems, match="no such file"):
        read_tape(path)


def test_repeats_are_played_between_the_others_in_the_order_of_steps():
    repeated = fault("r", when=When(step=1), repeat=Repeat(count=3, every_steps=4))
    single = tape_of(repeated, fault("s", when=When(step=6))).expanded()
    assert [one.id for one in single] == ["r", "r#2", "s", "r#3"]


def test_a_generated_tape_repeats_under_its_seed_and_says_that_it_is_simulated():
    make = lambda seed: poisson_tape(
        seed,
        world=64,
        duration_us=7 * US_PER_DAY,
        rate_per_rank_hour=0.01,
        kinds={FaultKind.SIGKILL: 3, FaultKind.SLOW: 1},
    )
    assert make(5) == make(5)
    assert make(5) != make(6)
    assert make(5).provenance.kind is FigureKind.SIMULATED
    assert [p for one in make(5).faults for p in find_problems(one, where="")] == []


def test_a_generated_tape_has_its_rate():
    """Expected count 64 ranks x 168 h x 0.05 = 537.6; five standard deviations are 116."""
    tape = poisson_tape(
        11,
        world=64,
        duration_us=168 * US_PER_H,
        rate_per_rank_hour=0.05,
        kinds={FaultKind.SIGKILL: 1.0},
    )
    assert abs(len(tape.faults) - 537.6) < 116
    times = [one.when.t_us for one in tape.faults]
    assert times == sorted(times)
    assert {one.target.rank for one in tape.faults} == set(range(64))


def test_a_rate_of_zero_has_no_faults():
    assert (
        poisson_tape(
            1, world=8, duration_us=US_PER_H, rate_per_rank_hour=0.0, kinds={FaultKind.SIGKILL: 1.0}
        ).faults
        == ()
    )


def test_a_stepped_tape_can_be_written_for_every_kind(tmp_path):
    for seed in range(20):
        write_tape(
            stepped_tape(seed, world=3, steps=9, count=5, kinds=FaultKind), tmp_path / f"{seed}"
        )
