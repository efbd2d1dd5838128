"""The rule by which events become incidents: declared, with parameters, and printed beside every count.

How lines become incidents changes a count twofold on real fleets, so no count is shown without its rule. Three parts,
each of them optional but the first:

1. *links*: what events declare themselves (`links.incident`) always comes first;
2. *gap*: failures that declare nothing join one incident while they follow each other on one domain within a gap;
3. *merge*: incidents whose starts follow each other within a gap, on one domain or anywhere, count as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lastgood.base.errors import BadInput
from lastgood.base.units import US_PER_MIN, format_duration, parse_duration_us
from lastgood.contract.taxonomy import DomainKind

SITE = str(DomainKind.SITE)
"""As the kind of a gap or a merge: everywhere, whatever domain the events name."""
CORRELATED_US = 5_000_000
_PART = re.compile(r"(gap|merge|correlated)\s*:\s*([^@]+?)\s*(?:@\s*(\S+))?")
_NEEDS = (
    "links, gap:DURATION@KIND, merge:DURATION@KIND, or several joined by +, "
    "such as gap:10min@host or links+merge:30min@site"
)
_UNITS_US = (
    ("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How events become incidents. Print it beside what was counted with it."""

    gap_us: int | None = None
    """Failures without a declared incident join one when they touch the same domain of `gap_kind` within this gap;
    None leaves them out."""
    gap_kind: str = "host"
    """A kind of fault domain, or `site` for everywhere."""
    merge_us: int | None = None
    """Incidents whose starts follow each other within this gap on one domain of `merge_kind` count as one."""
    merge_kind: str = SITE
    correlated_us: int = CORRELATED_US
    """Two members of a shared domain that fail within this window are correlated."""

    def __post_init__(self) -> None:
        """Refuses a rule that means nothing."""
        gaps = (self.gap_us or 0, self.merge_us or 0, self.correlated_us)
        if min(gaps) < 0:
            raise BadInput("a grouping rule needs gaps of zero or more", found=str(min(gaps)))
        for kind in (self.gap_kind, self.merge_kind):
            if kind not in set(DomainKind):
                raise BadInput(
                    "no such kind of fault domain",
                    where="grouping rule",
                    found=repr(kind),
                    needs=" | ".join(DomainKind),
                )

    @property
    def spec(self) -> str:
        """The rule as `parse_rule` reads it."""
        parts = ["links"]
        if self.gap_us is not None:
            parts.append(f"gap:{_short(self.gap_us)}@{self.gap_kind}")
        if self.merge_us is not None:
            parts.append(f"merge:{_short(self.merge_us)}@{self.merge_kind}")
        if self.correlated_us != CORRELATED_US:
            parts.append(f"correlated:{_short(self.correlated_us)}")
        return "+".join(parts)

    def __str__(self) -> str:
        """The rule in words."""
        text = f"{self.spec}: declared incidents"
        if self.gap_us is not None:
            where = "anywhere" if self.gap_kind == SITE else f"of one {self.gap_kind}"
            text += f", unlinked events {where} within {format_duration(self.gap_us)}"
        if self.merge_us is not None:
            where = "anywhere" if self.merge_kind == SITE else f"on one {self.merge_kind}"
            text += (
                f"; those that start {where} within {format_duration(self.merge_us)} of the one "
                "before count as one"
            )
        return f"{text}; correlated within {format_duration(self.correlated_us)}"


LINKS = Rule()
"""Only what events declare: the rule of a supervised run, which declares everything."""


def by_gap(gap_us: int, *, kind: str = "host", correlated_us: int = CORRELATED_US) -> Rule:
    """The rule for imported logs: failures of one domain that follow each other within a gap are one incident."""
    return Rule(gap_us=gap_us, gap_kind=kind, correlated_us=correlated_us)


REPORT_RULE = by_gap(10 * US_PER_MIN)
"""The rule of reports unless another is named. A dying device writes for minutes, and a host is what gets repaired."""


def parse_rule(text: str, *, where: str = "--group") -> Rule:
    """The rule that a person wrote: `links`, `gap:10min@host`, `merge:30min@site`, or several joined by `+`.

    Raises:
        BadInput: A part that is none, a part said twice, a kind of domain that does not exist, a bad duration.
    """
    said: dict[str, int | str] = {}
    for part in text.split("+"):
        if part.strip() == "links":
            continue
        found = _PART.fullmatch(part.strip())
        if found is None or (found[1] == "correlated" and found[3]):
            raise BadInput("not a grouping rule", where=where, found=repr(text), needs=_NEEDS)
        if f"{found[1]}_us" in said:
            raise BadInput(f"{found[1]} is said twice", where=where, found=repr(text), needs=_NEEDS)
        said[f"{found[1]}_us"] = parse_duration_us(found[2], where=where)
        if found[3]:
            said[f"{found[1]}_kind"] = found[3]
    return Rule(**said)  # type: ignore[arg-type]


def _short(duration_us: int) -> str:
    """The duration in the largest unit that holds it exactly."""
    unit, unit_us = next(
        (u for u in _UNITS_US if duration_us % u[1] == 0 and duration_us), ("us", 1)
    )
    return f"{duration_us // unit_us}{unit}"
