"""Fault domains: what fails together, as sets of ranks.

A domain is known by the ranks that lie in it. The physical ladder rank, device, host, rack, site is a
forest (a device lies in one host, a host in one rack); switches, storage services, power feeds and software
releases cut across it. Whether a domain contains another follows from their ranks alone, so parents,
the smallest shared domain and widening need no second record that could contradict the first.

Intuition: when a fault comes back on the same rank, the rank was too small a suspect. Widening asks: what is
the next larger thing, that holds more than what was already taken out?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lastgood.base.errors import BadInput, Problem, Problems
from lastgood.contract.taxonomy import DomainKind

LADDER = (DomainKind.RANK, DomainKind.DEVICE, DomainKind.HOST, DomainKind.RACK, DomainKind.SITE)
"""The physical kinds, from small to large; each one nests in the next."""
_ORDER = {kind: position for position, kind in enumerate(DomainKind)}


@dataclass(frozen=True, slots=True, order=False)
class Domain:
    """One fault domain, written `kind:id`."""

    kind: DomainKind
    id: str

    def __str__(self) -> str:
        """Return `kind:id`."""
        return f"{self.kind}:{self.id}"


def parse_domain(text: str, *, where: str | None = None) -> Domain:
    """The domain that `kind:id` names."""
    kind, _, name = text.partition(":")
    if kind not in set(DomainKind) or not name or len(name) > 200 or not name.isprintable():
        needs = f"kind:id with kind one of {', '.join(DomainKind)}"
        raise BadInput("not a fault domain", where=where, found=repr(text)[:80], needs=needs)
    return Domain(DomainKind(kind), name)


@dataclass(frozen=True, slots=True)
class Forest:
    """All fault domains of a run; make one with `forest_of`."""

    ranks_by_domain: Mapping[Domain, frozenset[int]]

    @property
    def ranks(self) -> frozenset[int]:
        """Every rank."""
        return frozenset().union(*self.ranks_by_domain.values())

    def members(self, domain: Domain) -> frozenset[int]:
        """The ranks of a domain; empty for one that is not there."""
        return self.ranks_by_domain.get(domain, frozenset())

    def domains_of(self, rank: int) -> tuple[Domain, ...]:
        """Every domain in which a rank lies, the smallest first."""
        return self.shared((rank,))

    def shared(self, ranks: Iterable[int]) -> tuple[Domain, ...]:
        """Every domain that holds all these ranks, the smallest first; none for no rank."""
        wanted = frozenset(ranks)
        found = [
            domain for domain, held in self.ranks_by_domain.items() if wanted and wanted <= held
        ]
        return tuple(sorted(found, key=self._size))

    def smallest_shared(self, ranks: Iterable[int]) -> Domain | None:
        """The smallest domain that holds all these ranks; None when they share nothing."""
        return next(iter(self.shared(ranks)), None)

    def parents(self, domain: Domain) -> tuple[Domain, ...]:
        """The domains directly around one: they hold it, and nothing smaller lies between."""
        around = self._around(domain)
        return tuple(
            outer
            for outer in around
            if not any(inner in self._inside(outer) for inner in around if inner != outer)
        )

    def widen(self, domain: Domain) -> Domain | None:
        """The next larger domain that takes at least one more rank out; None when there is none."""
        held = self.members(domain)
        wider = (outer for outer in self._around(domain) if self.members(outer) > held)
        return next(wider, None)

    def blast_radius(self, domains: Iterable[Domain]) -> frozenset[int]:
        """Every rank that is hit when these domains fail."""
        return frozenset().union(*(self.members(domain) for domain in domains))

    def _around(self, domain: Domain) -> tuple[Domain, ...]:
        """Domains that hold this one and come after it, the smallest first."""
        held = self.members(domain)
        return tuple(other for other in self.shared(held) if self._size(other) > self._size(domain))

    def _inside(self, domain: Domain) -> set[Domain]:
        held = self.members(domain)
        return {
            other
            for other, ranks in self.ranks_by_domain.items()
            if ranks <= held and self._size(other) < self._size(domain)
        }

    def _size(self, domain: Domain) -> tuple[int, int, str]:
        """Order from small to large; the kind decides between two that hold the same ranks."""
        return len(self.members(domain)), _ORDER[domain.kind], domain.id


def forest_of(placements: Mapping[int, Iterable[Domain]]) -> Forest:
    """The forest in which each rank lies in the domains listed for it (itself is added).

    Raises `Problems` when the physical ladder does not nest, such as one host in two racks.
    """
    held: dict[Domain, set[int]] = {}
    for rank, domains in placements.items():
        for domain in (Domain(DomainKind.RANK, str(rank)), *domains):
            held.setdefault(domain, set()).add(rank)
    forest = Forest({domain: frozenset(ranks) for domain, ranks in held.items()})
    problems = [*_ladder_problems(forest), *_rank_problems(placements)]
    if problems:
        raise Problems(problems, code="LG-N01")
    return forest


def _rank_problems(placements: Mapping[int, Iterable[Domain]]) -> Iterator[Problem]:
    for rank, domains in placements.items():
        for domain in domains:
            if domain.kind is DomainKind.RANK and domain.id != str(rank):
                yield Problem(
                    where=f"rank {rank}", what="domain", found=str(domain), needs="no other rank"
                )


def _ladder_problems(forest: Forest) -> Iterator[Problem]:
    """Two domains of one kind never share a rank; a smaller one never reaches into two larger ones."""
    for kind in LADDER[1:]:
        same = [domain for domain in forest.ranks_by_domain if domain.kind is kind]
        for rank in sorted(forest.ranks):
            around = [domain for domain in same if rank in forest.members(domain)]
            if len(around) > 1:
                found = " and ".join(sorted(map(str, around)))
                yield Problem(where=f"rank {rank}", what=kind, found=found, needs=f"one {kind}")
    for position, small in enumerate(LADDER):
        for large in LADDER[position + 1 :]:
            yield from _split_problems(forest, small, large)


def _split_problems(forest: Forest, small: DomainKind, large: DomainKind) -> Iterator[Problem]:
    outer = [domain for domain in forest.ranks_by_domain if domain.kind is large]
    for domain in forest.ranks_by_domain:
        if domain.kind is small:
            held = forest.members(domain)
            touched = [o for o in outer if held & forest.members(o)]
            if touched and not any(held <= forest.members(o) for o in touched):
                found = "parts in " + " and ".join(sorted(map(str, touched)))
                yield Problem(
                    where=str(domain), what=large, found=found, needs=f"one {large} or none"
                )
