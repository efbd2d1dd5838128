"""Like with like: the incidents of both sides by kind of fault and by what their run was started with.

Only what both sides have is compared. What is left out is said, and when it is more than half of a side, or when more
than a tenth of what is compared has no value on record, nothing can be told. The rest of the unknown values counts
against the answer: an improvement has to hold with the worst value after and the best one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lastgood.budget.rank_shift import Stratum
from lastgood.evidence.claim_conditions import (
    Key,
    differences,
    key_of,
    missing,
    pooled,
    unexcused,
)
from lastgood.evidence.claim_records import StratumRow
from lastgood.evidence.claim_sides import UNKNOWN_KIND, Counted, Side

UNKNOWN_MAX = 0.10
"""A larger share of unknown values than this leaves nothing to tell."""
WORDS = ("before", "after")
_Cell = tuple[str, Key]


@dataclass(slots=True)
class Group:
    """The values of one kind under one set of conditions, and how many are not known."""

    label: str = ""
    known: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    unknown: list[int] = field(default_factory=lambda: [0, 0])

    def count(self, side: int) -> int:
        """All incidents of a side."""
        return len(self.known[side]) + self.unknown[side]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strata:
    """What is compared, what is not, and why nothing can be told."""

    groups: tuple[Group, ...]
    left_out: tuple[str, ...]
    obstacles: tuple[str, ...]
    to_name: tuple[str, ...]
    """Conditions that would be no obstacle if somebody named them as changed."""

    @property
    def known(self) -> tuple[Stratum, ...]:
        """The values on record."""
        return tuple(Stratum(*group.known) for group in self.groups)

    @property
    def has_unknown(self) -> bool:
        """Some incident that is compared has no value on record."""
        return any(sum(group.unknown) for group in self.groups)

    def filled(self, before: float, after: float) -> tuple[Stratum, ...]:
        """The same with these values for the unknown ones of either side."""
        return tuple(
            Stratum(
                [*group.known[0], *[before] * group.unknown[0]],
                [*group.known[1], *[after] * group.unknown[1]],
            )
            for group in self.groups
        )

    def all_of(self, side: int) -> list[float]:
        """The values on record of a side."""
        return [value for group in self.groups for value in group.known[side]]

    def rows(self, middle: Callable[[Sequence[float]], float | None]) -> tuple[StratumRow, ...]:
        """One row for each."""
        return tuple(
            StratumRow(
                kind=group.label, n_before=len(group.known[0]), n_after=len(group.known[1]),
                before=middle(group.known[0]), after=middle(group.known[1]),
                unknown_before=group.unknown[0], unknown_after=group.unknown[1],
            )
            for group in self.groups
        )  # fmt: skip


def strata_of(
    take: Callable[[Counted], float | None], before: Side, after: Side, changed: frozenset[str]
) -> Strata:
    """The incidents of both sides, each among its like."""
    apart_not = pooled(before.conditions, after.conditions, changed)
    cells: dict[_Cell, Group] = {}
    bare: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    unrecorded: set[str] = set()
    for number, side in enumerate((before, after)):
        for counted in side.counted:
            lacks = missing(counted.conditions, changed)
            unrecorded.update(lacks)
            if lacks or counted.kind == UNKNOWN_KIND:
                bare[number][counted.kind] += 1
                continue
            group = cells.setdefault((counted.kind, key_of(counted.conditions, apart_not)), Group())
            value = take(counted)
            if value is None:
                group.unknown[number] += 1
            else:
                group.known[number].append(value)
    _name(cells)
    apart = Apart.of(cells, bare, unrecorded)
    shared = {cell: cells[cell] for cell in sorted(cells) if _is_shared(cells[cell])}
    unlike = unexcused(differences(before.conditions, after.conditions, changed), apart_not)
    reasons, to_name = apart.obstacles(unlike, has_shared=bool(shared))
    return Strata(
        groups=tuple(shared.values()),
        left_out=(*apart.left_out(), *_unknown_words(shared.values())),
        obstacles=(*reasons, *_too_unknown(shared.values())),
        to_name=to_name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How many incidents of each side have nothing alike on the other, by why."""

    totals: tuple[int, int]
    of_kind: tuple[dict[str, int], dict[str, int]]
    """The other side lacks the kind of fault."""
    of_conditions: tuple[dict[str, int], dict[str, int]]
    """The other side has the kind, under other conditions."""
    bare: tuple[int, int]
    """The conditions are not on record."""
    of_no_kind: tuple[int, int]
    """Neither a fault nor a symptom is on record."""
    unrecorded: tuple[str, ...]

    @classmethod
    def of(
        cls, cells: Mapping[_Cell, Group], bare: Sequence[Counter[str]], unrecorded: Iterable[str]
    ) -> Apart:
        """Count what is not shared."""
        kinds = [
            {kind for (kind, _), group in cells.items() if group.count(i)} | bare[i].keys()
            for i in (0, 1)
        ]
        of_kind: tuple[dict[str, int], ...] = ({}, {})
        of_conditions: tuple[dict[str, int], ...] = ({}, {})
        for (kind, _), group in sorted(cells.items()):
            if _is_shared(group):
                continue
            side = 0 if group.count(0) else 1
            into = of_conditions if kind in kinds[1 - side] else of_kind
            label = group.label if kind in kinds[1 - side] else kind
            into[side][label] = into[side].get(label, 0) + group.count(side)
        strange = [bare[i][UNKNOWN_KIND] for i in (0, 1)]
        totals = [sum(g.count(i) for g in cells.values()) + bare[i].total() for i in (0, 1)]
        return cls(
            totals=(totals[0], totals[1]),
            of_kind=(of_kind[0], of_kind[1]),
            of_conditions=(of_conditions[0], of_conditions[1]),
            bare=(bare[0].total() - strange[0], bare[1].total() - strange[1]),
            of_no_kind=(strange[0], strange[1]),
            unrecorded=tuple(sorted(unrecorded)),
        )

    def left_out(self) -> list[str]:
        """In words, what has no match."""
        lines = []
        for side, word in enumerate(WORDS):
            alone = self.of_kind[side] | self.of_conditions[side]
            if alone:
                lost = sum(alone.values())
                lines.append(f"only {word}: {'; '.join(alone)} ({lost} of {self.totals[side]})")
            if self.bare[side]:
                lines.append(
                    f"{self.bare[side]} of {self.totals[side]} {word}: nobody recorded their {self._names()}"
                )
            if self.of_no_kind[side]:
                lines.append(self._strange(side))
        return lines

    def _strange(self, side: int) -> str:
        return f"{self.of_no_kind[side]} of {self.totals[side]} {WORDS[side]}: neither a fault nor a symptom on record"

    def obstacles(
        self, unlike: Mapping[str, str], *, has_shared: bool
    ) -> tuple[list[str], tuple[str, ...]]:
        """Why so little is alike that nothing can be told; and which conditions it hangs on."""
        if not all(self.totals):
            empty = [word for word, total in zip(WORDS, self.totals, strict=True) if not total]
            return [f"no incident {word} has this on record" for word in empty], ()
        reasons = [
            f"{self._strange(i)}, and more than {UNKNOWN_MAX:.0%} unknown could be anything"
            for i in (0, 1)
            if self.of_no_kind[i] > UNKNOWN_MAX * self.totals[i]
        ]
        names: set[str] = set()
        parts = [
            (sum(self.of_kind[i].values()), sum(self.of_conditions[i].values()), self.bare[i])
            for i in (0, 1)
        ]
        short = [i for i in (0, 1) if 2 * sum(parts[i]) > self.totals[i]]
        if any(parts[i][1] for i in short):
            reasons += unlike.values()
            names.update(unlike)
        for i in short:
            kind, conditions, bare = parts[i]
            total, word = self.totals[i], WORDS[i]
            if conditions:
                reasons.append(
                    f"unlike conditions: {conditions} of {total} {word} happened under some that the other side lacks"
                )
            if kind:
                reasons.append(
                    f"different faults: {kind} of {total} {word} are of a kind that the other side lacks"
                )
            if bare:
                reasons.append(
                    f"no conditions on record: nothing says whether {bare} of {total} {word} had the same "
                    f"{self._names()} as the other side"
                )
                names.update(self.unrecorded)
        if not has_shared and not any(map(any, (self.of_conditions, self.bare, self.of_no_kind))):
            reasons.append("no kind of fault is on both sides")
        return reasons, tuple(sorted(names))

    def _names(self) -> str:
        return ", ".join(self.unrecorded)


def _is_shared(group: Group) -> bool:
    return all(group.count(side) for side in (0, 1))


def _name(cells: Mapping[_Cell, Group]) -> None:
    """Each group by its kind, and by what is not the same for all of them."""
    seen: dict[str, set[str | None]] = {}
    every = [dict(key) for _, key in cells]
    for name in {name for conditions in every for name in conditions}:
        seen[name] = {conditions.get(name) for conditions in every}
    varying = sorted(name for name, values in seen.items() if len(values) > 1)
    for (kind, key), group in cells.items():
        conditions = dict(key)
        group.label = ", ".join(
            [kind, *(f"{name} {conditions.get(name, 'not recorded')}" for name in varying)]
        )


def _unknown_words(groups: Collection[Group]) -> list[str]:
    counts = [sum(group.unknown[i] for group in groups) for i in (0, 1)]
    return [
        f"{count} incidents {word} without this on record: for the answer each counts as what speaks against it"
        for count, word in zip(counts, WORDS, strict=True)
        if count
    ]


def _too_unknown(groups: Collection[Group]) -> list[str]:
    reasons = []
    for side, word in enumerate(WORDS):
        total = sum(group.count(side) for group in groups)
        unknown = sum(group.unknown[side] for group in groups)
        if total and unknown == total:
            reasons.append(f"no incident {word} has this on record")
        elif unknown > UNKNOWN_MAX * total:
            reasons.append(
                f"{unknown} of {total} incidents {word} are without this on record, and more than {UNKNOWN_MAX:.0%} "
                "unknown could be anything"
            )
    return reasons
