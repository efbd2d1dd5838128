"""Copies of a checkpoint in the memory of peers: what survives which losses.

Published placement arithmetic asks how likely k machines lost *at random* leave every copy group with a survivor.
Machines are rarely lost at random: a rack loses power, a switch fails, and over-eviction takes a whole suspected
group away on purpose. So the set that is lost together is an input here, and random losses come on top of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lastgood.base.errors import BadInput

Group = tuple[int, ...]


def adjacent_groups(*, machine_count: int, copy_count: int) -> tuple[Group, ...]:
    """Groups of neighbours: machines 0 to m-1, m to 2m-1, ... Machines are 0-based."""
    _check(machine_count, copy_count)
    starts = range(0, machine_count, copy_count)
    return tuple(tuple(range(first, first + copy_count)) for first in starts)


def spread_groups(*, machine_count: int, copy_count: int) -> tuple[Group, ...]:
    """Groups whose members are as far apart as they can be: i, i + N/m, i + 2N/m, ..."""
    _check(machine_count, copy_count)
    stride = machine_count // copy_count
    return tuple(tuple(range(first, machine_count, stride)) for first in range(stride))


def neighbour_domains(
    *, machine_count: int, domain_machine_count: int
) -> tuple[frozenset[int], ...]:
    """Fault domains of neighbours, such as racks: what fails, or is evicted, together."""
    if domain_machine_count < 1:
        raise BadInput("a fault domain has at least one machine", found=str(domain_machine_count))
    starts = range(0, machine_count, domain_machine_count)
    return tuple(
        frozenset(range(first, min(machine_count, first + domain_machine_count)))
        for first in starts
    )


def survives(groups: Sequence[Group], lost: Collection[int]) -> bool:
    """True when every group still has a machine that holds the copy."""
    gone = set(lost)
    return all(any(machine not in gone for machine in group) for group in groups)


def random_loss_survival(groups: Sequence[Group], *, loss_count: int) -> float:
    """Chance that a copy of everything is left after `loss_count` machines are lost at random.

    Source: Wang and others, Gemini, SOSP 2023: group placement; counted exactly by a polynomial per group.
    Assumes: every set of that many machines equally likely. Real losses are correlated: see `domain_survival`.
    """
    return _survival([len(group) for group in groups], loss_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSurvival:
    """What is left when one fault domain goes as a whole."""

    worst: float
    mean: float
    """Over the domains, each equally likely."""
    fatal_count: int
    """Domains whose loss alone leaves some shard without a copy."""
    domain_count: int


def domain_survival(
    groups: Sequence[Group], domains: Sequence[Collection[int]], *, extra_loss_count: int = 0
) -> DomainSurvival:
    """Chance that a copy of everything is left after one whole domain and some machines at random are lost.

    Source: exact count over the domains and over the machines lost besides.
    Assumes: the domains are disjoint or not, each goes with equal chance; the further losses are random among the rest.
    """
    if not domains:
        raise BadInput("no fault domain to lose", needs="at least one")
    chances = []
    known: dict[tuple[int, ...], float] = {}  # racks are alike: most leave groups of the same sizes
    for domain in domains:
        gone = set(domain)
        left = tuple(sorted(sum(machine not in gone for machine in group) for group in groups))
        if left not in known:
            known[left] = _survival(left, extra_loss_count) if all(left) else 0.0
        chances.append(known[left])
    return DomainSurvival(
        worst=min(chances),
        mean=math.fsum(chances) / len(chances),
        fatal_count=sum(chance == 0.0 for chance in chances),
        domain_count=len(chances),
    )


def _survival(sizes: Sequence[int], loss_count: int) -> float:
    """Share of the sets of `loss_count` machines that leave every group of these sizes a survivor.

    The coefficient of x^k in Π ((1 + x)^r - x^r) counts them; integers of any length, so nothing is rounded.
    """
    total = sum(sizes)
    if not 0 <= loss_count <= total:
        raise BadInput(
            "not that many machines can be lost", found=str(loss_count), needs=f"0 to {total}"
        )
    ways = [1]
    for size in sizes:
        choices = [math.comb(size, i) for i in range(min(size - 1, loss_count) + 1)]
        product = [0] * min(loss_count + 1, len(ways) + len(choices) - 1)
        for i, a in enumerate(ways):
            for j, b in enumerate(choices[: len(product) - i]):
                product[i + j] += a * b
        ways = product
    found = ways[loss_count] if loss_count < len(ways) else 0
    return found / math.comb(total, loss_count)


def _check(machine_count: int, copy_count: int) -> None:
    if copy_count < 1 or machine_count < copy_count or machine_count % copy_count:
        raise BadInput(
            "machines do not divide into copy groups",
            found=f"{machine_count} machines, {copy_count} copies",
            needs="a multiple of the number of copies",
        )
