"""What fails together: starts of several nodes at nearly the same time, and the domain that they share.

Independent nodes rarely fail within the same minutes. Starts that follow each other within the gap are one burst;
how many starts would do so by chance is known, and the excess is a fact about a shared cause: a switch, a power
supply, a release, a test campaign. Which one, the record may hint at (all members in one rack) and never proves.

Source: gaps of a Poisson process, Cox and Lewis (1966) section 1; domain share by the binomial law, Holm (1979).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastgood.budget.dispersion import check_times
from lastgood.budget.finding import ALPHA, EVENTS_MIN, Finding, format_p, too_few
from lastgood.budget.multiplicity import holm
from lastgood.budget.share import binomial_tail

if TYPE_CHECKING:
    import numpy as np

GAP_H = 5 / 60
"""Starts within five minutes of the one before belong to one burst."""
CHANCE_MAX = 0.1
TOP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Several nodes that began to fail together."""

    begin_h: float
    end_h: float
    count: int
    """Starts in it."""
    nodes: tuple[int, ...]
    """0-based, each once."""
    label: str | None
    """What most of its members are recorded as, where labels are given."""
    label_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDomain:
    """A domain that holds more members of one burst than chance explains."""

    kind: str
    """Such as `rack`."""
    domain: int
    """0-based code of the domain."""
    begin_h: float
    members: int
    """Nodes of the burst inside the domain."""
    of: int
    """Nodes of the burst."""
    p_adjusted: float
    """Holm over all bursts and kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """All bursts of two or more nodes, the largest first, and what they share."""

    gap_h: float
    count: int
    """Bursts of two or more nodes."""
    starts_in_bursts: int
    top: tuple[Burst, ...]
    candidates: tuple[SharedDomain, ...]
    finding: Finding


def bursts(
    times_h: np.ndarray,
    node: np.ndarray,
    *,
    window_h: float,
    breaks_h: Sequence[float] = (),
    gap_h: float = GAP_H,
    labels: Sequence[str] | None = None,
    label_codes: np.ndarray | None = None,
    domains: Mapping[str, np.ndarray] | None = None,
) -> Bursts:
    """Bursts of starts on different nodes, with their most frequent label and shared domains.

    `breaks_h` are the hours at which the clock jumps over unobserved time: no burst reaches over one. `domains` maps a kind (`rack`, `switch`) to the domain's code of every node, -1 where unknown.

    Assumes: times exact to well below the gap; a constant rate for the chance count.
    Source: see the module.
    """
    import numpy as np

    check_times(times_h, window_h)
    order = np.argsort(times_h, kind="stable")
    times, node = (
        np.asarray(times_h, dtype=np.float64)[order],
        np.asarray(node, dtype=np.int64)[order],
    )
    codes = None if label_codes is None else np.asarray(label_codes)[order]
    n = len(times)
    gap_h = _separating_gap(n, window_h, gap_h)
    stretch = np.searchsorted(np.asarray(breaks_h, dtype=np.float64), times)
    is_new = (np.diff(times, prepend=-np.inf) > gap_h) | (np.diff(stretch, prepend=-1) > 0)
    group = np.cumsum(is_new) - 1
    several = _has_two_nodes(is_new, node) if n else np.zeros(0, dtype=bool)
    sizes = np.bincount(group) if n else np.zeros(0, dtype=np.int64)
    starts = np.flatnonzero(is_new)
    largest = np.flatnonzero(several)
    largest = largest[np.argsort(-sizes[largest], kind="stable")]
    members = lambda g: slice(int(starts[g]), int(starts[g] + sizes[g]))  # noqa: E731
    top = tuple(_burst(times, node, codes, labels, members(g)) for g in largest[:TOP])
    return Bursts(
        gap_h=gap_h,
        count=len(largest),
        starts_in_bursts=int(sizes[largest].sum()),
        top=top,
        candidates=_candidates(top, domains or {}),
        finding=_judge(
            n, int((~is_new).sum()), int(sizes[largest].sum()), len(largest), window_h, gap_h
        ),
    )


def _separating_gap(n: int, window_h: float, gap_h: float) -> float:
    """The gap, made smaller where starts are so frequent that one in ten would follow within it by chance."""
    return min(gap_h, -math.log1p(-CHANCE_MAX) * window_h / n) if n else gap_h


def _has_two_nodes(is_new: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Whether each group holds more than one node: a change of node inside it."""
    import numpy as np

    differs = (np.diff(node, prepend=node[:1]) != 0) & ~is_new
    return np.bincount(np.cumsum(is_new) - 1, weights=differs) > 0


def _burst(
    times: np.ndarray,
    node: np.ndarray,
    codes: np.ndarray | None,
    labels: Sequence[str] | None,
    inside: slice,
) -> Burst:
    import numpy as np

    label, label_count = None, 0
    if codes is not None and labels is not None:
        known = codes[inside][codes[inside] >= 0]
        held = np.bincount(known, minlength=1)
        label_count = int(held.max())
        label = labels[int(held.argmax())] if label_count else None
    return Burst(
        begin_h=float(times[inside][0]),
        end_h=float(times[inside][-1]),
        count=inside.stop - inside.start,
        nodes=tuple(np.unique(node[inside]).tolist()),
        label=label,
        label_count=label_count,
    )


def _candidates(
    top: tuple[Burst, ...], domains: Mapping[str, np.ndarray]
) -> tuple[SharedDomain, ...]:
    """For every burst and kind the fullest domain, kept where chance would not fill it so."""
    import numpy as np

    found, p = [], []
    for kind, of_node in domains.items():
        known = of_node[of_node >= 0]
        if not len(known):
            continue
        sizes = np.bincount(known)
        for burst in top:
            inside = Counter(int(of_node[i]) for i in burst.nodes if of_node[i] >= 0)
            total = inside.total()
            if total < 2:
                continue
            ((domain, members),) = inside.most_common(1)
            # The first member picks the domain; the others fall into it by its share of all nodes.
            share = float(sizes[domain] / len(known))
            p.append(binomial_tail(members - 1, total - 1, share))
            found.append((kind, domain, burst, members, total))
    adjusted = holm(p) if p else ()
    return tuple(
        SharedDomain(
            kind=kind,
            domain=domain,
            begin_h=burst.begin_h,
            members=members,
            of=total,
            p_adjusted=float(q),
        )
        for (kind, domain, burst, members, total), q in zip(found, adjusted, strict=True)
        if q < ALPHA
    )


def _judge(
    n: int, close: int, in_bursts: int, count: int, window_h: float, gap_h: float
) -> Finding:
    null = "nodes begin to fail independently of each other"
    source, assumes = (
        "gaps of a Poisson process; Cox and Lewis (1966)",
        "a constant rate over the window",
    )
    if n < EVENTS_MIN:
        return too_few("bursts", null=null, n=n, source=source, assumes=assumes)
    chance = -math.expm1(-n / window_h * gap_h)
    gaps = n - 1
    p = binomial_tail(close, gaps, chance)
    is_rejected = p < ALPHA
    minutes = gap_h * 60
    return Finding(
        test="bursts",
        null=null,
        statistic=close / gaps,
        statistic_name="share of gaps",
        p=p,
        n=n,
        is_rejected=is_rejected,
        sentence=(
            f"{close} of {gaps} starts follow another within {minutes:.3g} min, {chance * gaps:.1f} by chance "
            f"({format_p(p)}); {count} bursts of two or more nodes hold {in_bursts} starts."
        ),
        limit="A batch written down at one time looks like a burst; a shared domain is a candidate, not a cause.",
        source=source,
        assumes=assumes,
    )
