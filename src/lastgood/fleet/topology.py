"""The topology document: which rank lies in which fault domains, with a digest for every event of a run.

    {"topology": "lastgood-topology/1", "placements": {"0": ["device:0", "host:a", "rack:7"], ...},
     "attributes": {"interconnect": "loopback"}}

The digest goes into the events; the document itself lies beside the run. Two runs with one digest had the
same shape, and a changed cable plan cannot hide behind an old name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lastgood.base.canonical import canonical_bytes, sha256_hex
from lastgood.contract.taxonomy import DomainKind
from lastgood.fleet.domain import Domain, Forest, forest_of, parse_domain

TOPOLOGY_FORMAT = "lastgood-topology/1"


class Topology(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where every rank lies."""

    topology: str = TOPOLOGY_FORMAT
    placements: dict[str, tuple[str, ...]]
    """Rank (0-based, as text) -> its domains as `kind:id`, from small to large."""
    attributes: dict[str, str] = {}
    """What else describes the shape, such as the interconnect."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.placements)


def topology_digest(topology: Topology) -> str:
    """SHA-256 of the canonical document, in hex."""
    return sha256_hex(canonical_bytes(msgspec.to_builtins(topology)))


def forest_of_topology(topology: Topology) -> Forest:
    """The fault domains of a topology."""
    return forest_of(
        {
            int(rank): [parse_domain(text) for text in domains]
            for rank, domains in topology.placements.items()
        }
    )


def one_host_topology(
    world: int,
    *,
    host: str,
    release: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Topology:
    """The topology of a run on one host: every rank shares the host, and the software release if one is named.

    A rank has no device domain here: on one host without accelerators a spare replaces a process, not a device.
    """
    shared = [str(Domain(DomainKind.HOST, host))]
    if release is not None:
        shared.append(str(Domain(DomainKind.RELEASE, release)))
    placements = {str(rank): tuple(shared) for rank in range(world)}
    return Topology(placements=placements, attributes=dict(attributes or {}))
