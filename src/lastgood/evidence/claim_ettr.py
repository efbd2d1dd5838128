"""The claim about useful time, in numbers: shares of the time of runs that were started alike.

Time of which nobody knows what it was counts against the answer: for a claim to hold it was useful before and useless
after. More than a tenth of it on a side leaves nothing to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lastgood.budget import share_shift
from lastgood.budget.share_shift import PIECES_MIN, Piece, PieceStratum
from lastgood.evidence.claim_conditions import (
    Key,
    differences,
    key_of,
    missing,
    pooled,
    unexcused,
)
from lastgood.evidence.claim_records import (
    POWER,
    TOO_FEW,
    Asked,
    ClaimName,
    Found,
    SideSummary,
    make_result,
)
from lastgood.evidence.claim_sides import Side, TimePiece
from lastgood.evidence.claim_strata import UNKNOWN_MAX, WORDS

_WORDS = "useful time over wall time without planned stops, all runs together"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """The time of both sides by what its runs were started with."""

    keys: frozenset[Key]
    pieces: tuple[tuple[tuple[TimePiece, ...], tuple[TimePiece, ...]], ...]
    left_out: tuple[str, ...]
    obstacles: tuple[str, ...]
    to_name: tuple[str, ...]

    def strata(self, *, unknown_before: bool, unknown_after: bool) -> list[PieceStratum]:
        """With the unknown time of a side as useful or not."""
        return [
            PieceStratum(
                [_piece(p, is_unknown_useful=unknown_before) for p in a],
                [_piece(p, is_unknown_useful=unknown_after) for p in b],
            )
            for a, b in self.pieces
        ]


def ettr(before: Side, after: Side, asked: Asked) -> Found:
    """The claim that more of the time was useful."""
    alike = _alike(before, after, asked.changed)
    seen = alike.strata(unknown_before=False, unknown_after=False)
    for_it = alike.strata(unknown_before=True, unknown_after=False)
    against_it = alike.strata(unknown_before=False, unknown_after=True)
    shift = share_shift.share_shift_within(seen, level=asked.level) if seen else None
    worst = share_shift.share_shift_within(for_it, level=asked.level) if seen else None
    best = share_shift.share_shift_within(against_it, level=asked.level) if seen else None
    p = share_shift.p_of_waste_ratio_within(for_it, asked.at_least) if seen else 1.0
    n = share_shift.pieces_needed(shift, seen) if shift else None
    needed = (
        "" if n is None or shift is None
        else f"To show the difference that was seen ({shift.difference:+.2g}) in {POWER:.0%} of trials takes about {n} "
        "pieces between incidents on each side."
    )  # fmt: skip
    claimed = 0.0 if worst is None else (1 - worst.share_a) - asked.at_least * (1 - worst.share_b)
    result = make_result(
        ClaimName.ETTR, asked, measure=_WORDS, unit="ratio", statistic="share", effect_unit="share",
        before=_summary(before, seen, 0, None if shift is None else shift.share_a),
        after=_summary(after, seen, 1, None if shift is None else shift.share_b),
        effect=None if shift is None else shift.difference, lo=None if shift is None else shift.lo,
        hi=None if shift is None else shift.hi, p=p, method=share_shift.METHOD, needed=needed, strata=(),
        left_out=alike.left_out, is_injected=before.is_injected or after.is_injected,
    )  # fmt: skip
    return Found(
        result=result,
        p_better=p,
        p_any=1.0 if best is None else best.p,
        is_better=claimed > 0,
        is_worse=best is not None and best.difference < 0,
        obstacles=(*alike.obstacles, *_different_injections(before, after, alike, asked.changed)),
        to_name=alike.to_name,
        has_unknown=any(x.unknown_us for pair in alike.pieces for pieces in pair for x in pieces),
    )


def _piece(piece: TimePiece, *, is_unknown_useful: bool) -> Piece:
    useful = piece.piece.useful_us + (piece.unknown_us if is_unknown_useful else 0)
    return Piece(useful, piece.piece.length_us)


def _alike(before: Side, after: Side, changed: frozenset[str]) -> _Alike:
    apart_not = pooled(before.conditions, after.conditions, changed)
    cells: tuple[dict[Key, list[TimePiece]], ...] = ({}, {})
    for cell, side in zip(cells, (before, after), strict=True):
        for piece in side.pieces:
            if not missing(piece.conditions, changed):
                cell.setdefault(key_of(piece.conditions, apart_not), []).append(piece)
    both = sorted(cells[0].keys() & cells[1].keys())
    keys = [k for k in both if min(len(cells[0][k]), len(cells[1][k])) >= PIECES_MIN]
    unlike = unexcused(differences(before.conditions, after.conditions, changed), apart_not)
    left_out: list[str] = []
    obstacles: list[str] = []
    to_name: set[str] = set()
    for side, cell, word in zip((before, after), cells, WORDS, strict=True):
        total = _length(side.pieces)
        if not total:
            obstacles.append(f"no run {word} has its steps on record")
            continue
        recorded = _length([p for pieces in cell.values() for p in pieces]) / total
        shared = _length([p for k in both for p in cell[k]]) / total
        compared = _length([p for k in keys for p in cell[k]]) / total
        left_out += _left_out(word, recorded, shared, compared)
        if recorded < 0.5:
            names = sorted({n for p in side.pieces for n in missing(p.conditions, changed)})
            obstacles.append(
                f"no conditions on record: nothing says whether the runs {word} had the same {', '.join(names)} "
                "as those of the other side"
            )
            to_name.update(names)
        elif shared < 0.5:
            obstacles += [
                *unlike.values(),
                f"unlike conditions: {1 - shared:.0%} of the time {word}",
            ]
            to_name.update(unlike)
        elif compared < 0.5:
            obstacles.append(_too_few(both, cells))
    pieces = tuple((tuple(cells[0][k]), tuple(cells[1][k])) for k in keys)
    obstacles += _too_unknown(before, after, pieces)
    return _Alike(
        keys=frozenset(keys), pieces=pieces, left_out=tuple(left_out), obstacles=tuple(dict.fromkeys(obstacles)),
        to_name=tuple(sorted(to_name)),
    )  # fmt: skip


def _left_out(word: str, recorded: float, shared: float, compared: float) -> list[str]:
    parts = [
        (1 - recorded, "whose runs nobody recorded the conditions of"),
        (recorded - shared, "under conditions that the other side lacks"),
        (shared - compared, f"under conditions with less than {PIECES_MIN} pieces on a side"),
    ]
    return [f"{part:.0%} of the time {word}, {why}" for part, why in parts if part > 1e-9]


def _length(pieces: Collection[TimePiece]) -> float:
    return sum(p.piece.length_us for p in pieces)


def _too_few(both: Sequence[Key], cells: Sequence[dict[Key, list[TimePiece]]]) -> str:
    counts = [sum(len(cell[k]) for k in both) for cell in cells]
    alike = "" if len(both) == 1 else f" under {len(both)} sets of conditions"
    return (
        f"{TOO_FEW}: {counts[0]} and {counts[1]} pieces between incidents{alike}, and {PIECES_MIN} on each side of "
        "one are the least that scatter"
    )


def _too_unknown(
    before: Side, after: Side, pieces: Sequence[tuple[Sequence[TimePiece], Sequence[TimePiece]]]
) -> list[str]:
    reasons = []
    for number, (side, word) in enumerate(zip((before, after), WORDS, strict=True)):
        compared = [p for pair in pieces for p in pair[number]]
        unworked = _length(side.unworked)
        total = _length(compared) + unworked
        unknown = sum(p.unknown_us for p in compared) + unworked
        if compared and unknown > UNKNOWN_MAX * total:
            reasons.append(
                f"{unknown / total:.0%} of the time {word} is unknown, and more than {UNKNOWN_MAX:.0%} could be anything"
            )
    return reasons


def _different_injections(
    before: Side, after: Side, alike: _Alike, changed: frozenset[str]
) -> list[str]:
    """In the field the mix of faults is part of the answer; on purpose it is what somebody chose."""
    if not (before.is_injected or after.is_injected):
        return []
    apart_not = pooled(before.conditions, after.conditions, changed)
    counts = [
        Counter(
            (c.kind, key)
            for c in side.counted
            if (key := _started_with(key_of(c.conditions, apart_not))) in map(_started_with, alike.keys)
        )
        for side in (before, after)
    ]  # fmt: skip
    if counts[0] == counts[1]:
        return []
    more = [
        [
            f"{kind} ({count} more)"
            for (kind, _), count in sorted((counts[i] - counts[1 - i]).items())
        ]
        for i in (0, 1)
    ]
    words = [
        f"{word} has more of: {', '.join(extra)}"
        for word, extra in zip(WORDS, more, strict=True)
        if extra
    ]
    return [f"different faults were injected: {'; '.join(words)}"]


def _started_with(key: Key) -> Key:
    """Without what only an incident knows of itself."""
    return tuple(pair for pair in key if pair[0] != "injected")


def _summary(side: Side, seen: Sequence[PieceStratum], number: int, share: float | None) -> SideSummary:  # fmt: skip
    n = sum(len(stratum[number]) for stratum in seen)
    return SideSummary(name=side.name, n=n, value=share, lo=None, hi=None)
