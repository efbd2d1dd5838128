"""The event tape: an ordered list of faults with its seed and where it comes from, as JSON lines.

The first line is the header, every other line one fault:

    {"tape":"lastgood-tape/1","seed":7,"provenance":{"kind":"assumed","source":"lastgood demo"},"count":2}
    {"id":"f1","kind":"sigkill","target":{"rank":2},"when":{"step":8}}
    {"id":"f2","kind":"sigkill","target":{"rank":0},"when":{"step":14,"after_recovered":true}}

Faults are played in the order of their lines: times never fall and steps never fall. Injection and
the simulated job share this format; the provenance says what a tape is worth as evidence, and that follows it
into every figure that rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.canonical import canonical_bytes, sha256_hex, with_hex_floats
from lastgood.base.errors import Problem, Problems
from lastgood.base.figures import FigureKind
from lastgood.base.rng import stream
from lastgood.base.units import US_PER_H
from lastgood.faults.spec import FOR_A_WHILE, Fault, FaultKind, Target, When, expand, find_problems

TAPE_FORMAT = "lastgood-tape/1"
TAPE_BYTES_MAX = 256 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024
PROBLEM_COUNT_MAX = 100


class Provenance(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Where a tape comes from."""

    kind: FigureKind
    """`measured` for a tape cut from records, `simulated` for a generated one, `assumed` for a typed one."""
    source: str
    """The generator, the ledger or the person, in words."""
    parameters: dict[str, int | float | str] = {}
    """What the generator was given."""


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line."""

    tape: str
    seed: int
    provenance: Provenance
    count: int


class Tape(msgspec.Struct, frozen=True, kw_only=True):
    """An ordered list of faults."""

    faults: tuple[Fault, ...]
    seed: int
    provenance: Provenance

    def expanded(self) -> tuple[Fault, ...]:
        """Every fault once for every time that it repeats, in the order in which they are due."""
        single = [one for fault in self.faults for one in expand(fault)]
        units = {fault.when.step is None for fault in single}
        if len(units) != 1 or all(fault.repeat is None for fault in self.faults):
            return tuple(single)  # steps and times have no common order but that of the lines
        return tuple(sorted(single, key=lambda fault: (fault.when.t_us or 0, fault.when.step or 0)))


def tape_digest(tape: Tape) -> str:
    """SHA-256 of what the tape says, in hex."""
    return sha256_hex(canonical_bytes(with_hex_floats(msgspec.to_builtins(tape))))


def write_tape(tape: Tape, path: Path) -> None:
    """Write a tape; refuses one that could not be read back."""
    problems = _order_problems(list(enumerate(tape.faults, 2)), source=str(path))
    problems += [
        p
        for n, fault in enumerate(tape.faults, 2)
        for p in find_problems(fault, where=f"{path}:{n}")
    ]
    if problems:
        raise Problems(problems[:PROBLEM_COUNT_MAX], code="LG-F02")
    header = Header(
        tape=TAPE_FORMAT, seed=tape.seed, provenance=tape.provenance, count=len(tape.faults)
    )
    path.write_bytes(msgspec.json.Encoder().encode_lines([header, *tape.faults]))


def read_tape(path: Path) -> Tape:
    """Read a tape. Raises `Problems` with every problem and its line."""
    try:
        with path.open("rb") as file:
            raw = file.read(TAPE_BYTES_MAX + 1)
    except OSError as error:
        problem = Problem(
            where=str(path),
            what="the tape",
            found=(error.strerror or "").lower(),
            needs="a readable file",
        )
        raise Problems([problem], code="LG-F02") from None
    if len(raw) > TAPE_BYTES_MAX:
        problem = Problem(
            where=str(path),
            what="the tape",
            found="a huge file",
            needs=f"at most {TAPE_BYTES_MAX} bytes",
        )
        raise Problems([problem], code="LG-F02")
    return parse_tape(raw, source=str(path))


def parse_tape(raw: bytes, *, source: str = "tape") -> Tape:
    """Read a tape from bytes; `source` stands in the problems where a file name would."""
    lines = raw.split(b"\n")
    problems: list[Problem] = []
    header = _decode(lines[0], Header, where=f"{source}:1", problems=problems)
    if header is not None and header.tape != TAPE_FORMAT:
        problems.append(
            Problem(where=f"{source}:1", what="tape", found=header.tape[:60], needs=TAPE_FORMAT)
        )
    numbered: list[tuple[int, Fault]] = []
    for number, line in enumerate(lines[1:], 2):
        if line.strip() and len(problems) < PROBLEM_COUNT_MAX:
            fault = _decode(line, Fault, where=f"{source}:{number}", problems=problems)
            if fault is not None:
                numbered.append((number, fault))
                problems += find_problems(fault, where=f"{source}:{number}")
    problems += _order_problems(numbered, source=source)
    if header is not None and not problems and header.count != len(numbered):
        problems.append(
            Problem(
                where=f"{source}:1",
                what="count",
                found=str(len(numbered)) + " faults",
                needs=f"the {header.count} of the header (a cut or edited tape)",
            )
        )
    if problems or header is None:
        raise Problems(problems[:PROBLEM_COUNT_MAX], code="LG-F02")
    return Tape(
        faults=tuple(fault for _, fault in numbered), seed=header.seed, provenance=header.provenance
    )


def _decode(line: bytes, kind: type[Any], *, where: str, problems: list[Problem]) -> Any:
    if len(line) > LINE_BYTES_MAX:
        problems.append(
            Problem(
                where=where,
                what="line",
                found="a huge line",
                needs=f"at most {LINE_BYTES_MAX} bytes",
            )
        )
        return None
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        needs = "the header of a tape" if kind is Header else "one fault as JSON"
        problems.append(Problem(where=where, what=str(error)[:200] or "line", needs=needs))
        return None


def _order_problems(numbered: list[tuple[int, Fault]], *, source: str) -> list[Problem]:
    """Times never fall, steps never fall, ids are used once."""
    problems: list[Problem] = []
    seen: set[str] = set()
    t_us = step = -1
    for number, fault in numbered:
        where = f"{source}:{number}"
        if fault.id in seen:
            problems.append(
                Problem(where=where, what="id", found=f"{fault.id} again", needs="an id of its own")
            )
        seen.add(fault.id)
        if fault.when.t_us is not None:
            if fault.when.t_us < t_us:
                problems.append(
                    Problem(
                        where=where,
                        what="when.t_us",
                        found=str(fault.when.t_us),
                        needs=f"{t_us} or later",
                    )
                )
            t_us = max(t_us, fault.when.t_us)
        if fault.when.step is not None:
            if fault.when.step < step:
                problems.append(
                    Problem(
                        where=where,
                        what="when.step",
                        found=str(fault.when.step),
                        needs=f"{step} or later",
                    )
                )
            step = max(step, fault.when.step)
    return problems


# --- generators ---------------------------------------------------------------------------------


def poisson_tape(
    seed: int,
    *,
    world: int,
    duration_us: int,
    rate_per_rank_hour: float,
    kinds: dict[FaultKind, float],
) -> Tape:
    """A tape of independent faults at one constant rate for every rank, over a stretch of time.

    Args: `kinds` gives each kind its weight (any scale). Assumes: a homogeneous Poisson process, ranks alike;
    real fleets have bursts and lemons, so a figure that rests on this tape is simulated at best.
    """
    arrivals, targets, draws = (
        stream(seed, "faults/tape", name) for name in ("arrivals", "targets", "kinds")
    )
    rate_per_us = rate_per_rank_hour * world / US_PER_H
    faults: list[Fault] = []
    for t_us in _arrivals(arrivals, rate_per_us, duration_us):
        fault = Fault(
            id=f"f{len(faults) + 1}",
            kind=_draw(draws, kinds),
            target=Target(rank=targets.randrange(world)),
            when=When(t_us=t_us),
            seed=targets.getrandbits(32),
        )
        faults.append(_with_options(fault))
    parameters: dict[str, int | float | str] = {
        "world": world,
        "duration_us": duration_us,
        "rate_per_rank_hour": rate_per_rank_hour,
    }
    parameters |= {f"weight.{kind}": weight for kind, weight in kinds.items()}
    provenance = Provenance(kind=FigureKind.SIMULATED, source="poisson_tape", parameters=parameters)
    return Tape(faults=tuple(faults), seed=seed, provenance=provenance)


def stepped_tape(
    seed: int,
    *,
    world: int,
    steps: int,
    count: int,
    kinds: Iterable[FaultKind],
    after_recovered: bool = True,
) -> Tape:
    """A tape of `count` faults at random steps, for drills and for sweeps of the recovery loop."""
    draws = stream(seed, "faults/tape", "stepped")
    menu = tuple(kinds)
    assert menu, "a tape needs at least one kind"
    assert steps > 0, "a run has at least one step"
    due = sorted(draws.randrange(1, steps + 1) for _ in range(count))
    faults = [
        _with_options(
            Fault(
                id=f"f{number}",
                kind=draws.choice(menu),
                target=Target(rank=draws.randrange(world)),
                when=When(step=step, after_recovered=after_recovered and number > 1),
                seed=draws.getrandbits(32),
            )
        )
        for number, step in enumerate(due, 1)
    ]
    provenance = Provenance(
        kind=FigureKind.SIMULATED,
        source="stepped_tape",
        parameters={"world": world, "steps": steps, "count": count},
    )
    return Tape(faults=tuple(faults), seed=seed, provenance=provenance)


def _arrivals(random: Any, rate_per_us: float, duration_us: int) -> Iterator[int]:
    """Times of a Poisson process within [0, duration); none at a rate of zero."""
    t_us = 0.0
    while rate_per_us > 0:
        t_us += random.expovariate(rate_per_us)
        if t_us >= duration_us:
            return
        yield int(t_us)


def _draw(random: Any, kinds: dict[FaultKind, float]) -> FaultKind:
    return random.choices(list(kinds), weights=list(kinds.values()))[0]


def _with_options(fault: Fault) -> Fault:
    """Fill in what a kind cannot do without."""
    if fault.kind is FaultKind.SLOW:
        return msgspec.structs.replace(fault, duration_us=5_000_000, stopped_ratio=0.5)
    if fault.kind in FOR_A_WHILE:
        return msgspec.structs.replace(fault, duration_us=2_000_000)
    if fault.kind is FaultKind.SLOW_STEP:
        return msgspec.structs.replace(fault, factor=3.0)
    if fault.kind in (FaultKind.FLIP_SNAPSHOT, FaultKind.TRUNCATE_SNAPSHOT):
        return msgspec.structs.replace(fault, then_sigkill=True)
    return fault
