"""The published failure rates of two research clusters, with the one pair that shows what scaling them is worth."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from lastgood.base.figures import Figure, FigureKind
from lastgood.budget.projection import BackTest, RateSource, back_test

HOUR_US: Final = 3_600_000_000
PRESETS: Final = ("rsc-1", "rsc-2", "llama3")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's rate as printed."""

    name: str
    per_1000_node_days: float
    devices: int


class MeasuredAt(msgspec.Struct, frozen=True, kw_only=True):
    """A mean time that was measured for jobs of one size."""

    cluster: str
    devices: int
    mean_hours: float


class Clusters(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    id: str
    title: str
    source: str
    scope: str
    gpus_per_node: int
    clusters: tuple[Cluster, ...]
    measured: tuple[MeasuredAt, ...]


def read_clusters() -> Clusters:
    """Return the typed-in facts."""
    place = resources.files("lastgood.budget.published") / "rsc.json"
    return msgspec.json.decode(Path(str(place)).read_bytes(), type=Clusters)


def cluster_source(name: str) -> tuple[RateSource, tuple[BackTest, ...]]:
    """Return the rate of one cluster (`rsc-1` or `rsc-2`) and its back-tests."""
    facts = read_clusters()
    cluster = next(one for one in facts.clusters if one.name.lower() == name)
    nodes = cluster.devices / facts.gpus_per_node
    mean_h = 24 / (cluster.per_1000_node_days / 1000 * nodes)
    source = RateSource(
        mean_time=Figure(
            name="mean time between interruptions",
            value=mean_h * HOUR_US,
            unit="us",
            kind=FigureKind.REPORTED,
            source=f"{facts.source}: {cluster.per_1000_node_days} per 1,000 node-days",
            exposure=f"{nodes:,.0f} nodes of {facts.gpus_per_node} GPUs",
        ),
        devices=cluster.devices,
        devices_min=facts.gpus_per_node,
        devices_max=cluster.devices,
        window=f"11 months on {cluster.devices:,} devices of {cluster.name}",
        exposure=f"{nodes:,.0f} nodes for 11 months",
    )
    tests = tuple(
        back_test(
            source,
            devices=one.devices,
            measured=Figure(
                name=f"measured at {one.devices:,} devices",
                value=one.mean_hours * HOUR_US,
                unit="us",
                kind=FigureKind.REPORTED,
                source=facts.source,
            ),
        )
        for one in facts.measured
        if one.cluster == cluster.name
    )
    return source, tests
