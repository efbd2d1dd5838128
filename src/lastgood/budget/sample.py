"""What a study takes: one group of incidents as columns.

The counts are of a named layer (observations, events or incidents) and grouped by a named rule; both travel with the
numbers, because on real fleets the rule changes the count twofold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lastgood.base.errors import BadInput
from lastgood.base.figures import FigureKind

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One group of incidents as columns. Times in hours from the window's start."""

    name: str
    """Such as `all`, `fail_stop` or `gpu.memory`."""
    begin_h: np.ndarray
    window_h: float
    """Observed hours: time that nobody watched is left out of this clock."""
    breaks_h: tuple[float, ...] = ()
    """Where this clock jumps over unobserved time: what follows such a moment does not follow it at once."""
    source_change: str = ""
    """How the set of sources changes inside the window, in words; empty while it does not. No trend is then told."""
    end_h: np.ndarray | None = None
    """End of each fault; NaN while open. None where ends are not recorded."""
    node: np.ndarray | None = None
    """0-based node of each incident, -1 where unknown."""
    node_names: tuple[str, ...] = ()
    nodes_at_risk: int | None = None
    """All nodes, those without an incident included; codes 0..nodes_at_risk-1. None: not known."""
    node_enter_h: np.ndarray | None = None
    """When each node came to be at risk, and left; None: the whole window."""
    node_leave_h: np.ndarray | None = None
    labels: tuple[str, ...] = ()
    label_codes: np.ndarray | None = None
    domains: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Kind (`rack`, `switch`) -> code of the domain of each node, -1 unknown."""
    closed_h: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name (`detection`, `diagnosis`, `recovery`) -> finished durations."""
    open_h: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name -> ages of the durations that still run at the window's end."""
    unknown_causes: int | None = None
    """How many incidents have no cause; None where causes are not recorded at all."""
    layer: str = "incidents"
    """What is counted: `observations`, `events` or `incidents`,"""
    rule: str = ""
    """and by which rule they were grouped."""
    source: str = ""
    as_of_us: int | None = None
    kind: FigureKind = FigureKind.MEASURED
    """`reported` for a table that somebody else published."""

    @property
    def count(self) -> int:
        """How many incidents."""
        return len(self.begin_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumns:
    """The incidents whose node is known."""

    begin_h: np.ndarray
    end_h: np.ndarray | None
    node: np.ndarray
    labels: np.ndarray | None
    at_risk: int
    """Nodes of the fleet; those seen when the fleet's number is not known."""
    is_fleet_known: bool
    missing: int
    """Incidents without a node."""

    @staticmethod
    def of(sample: Sample, begin_h: np.ndarray) -> NodeColumns | None:
        """The part of the sample that has nodes, None when nothing has."""
        import numpy as np

        if sample.node is None:
            return None
        node = np.asarray(sample.node, dtype=np.int64)
        known = node >= 0
        if not known.any():
            return None
        highest = int(node.max()) + 1
        if sample.nodes_at_risk is not None and highest > sample.nodes_at_risk:
            raise BadInput(
                "more nodes failed than are said to be at risk",
                where=sample.name,
                found=f"{highest} nodes with incidents, {sample.nodes_at_risk} at risk",
                needs="the number of all nodes, those without an incident included",
            )
        # Ten million rows are not copied when every one of them has its node.
        rows = slice(None) if known.all() else known
        return NodeColumns(
            begin_h=begin_h[rows],
            end_h=None if sample.end_h is None else np.asarray(sample.end_h)[rows],
            node=node[rows],
            labels=None if sample.label_codes is None else np.asarray(sample.label_codes)[rows],
            at_risk=sample.nodes_at_risk or highest,
            is_fleet_known=sample.nodes_at_risk is not None,
            missing=int((~known).sum()),
        )
