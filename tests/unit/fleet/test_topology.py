"""A topology has one digest for one shape, and widens as its domains do."""

import hashlib

import msgspec

from lastgood.base.canonical import canonical_bytes
from lastgood.fleet.topology import (
    Topology,
    forest_of_topology,
    one_host_topology,
    topology_digest,
)


def test_the_digest_is_the_hash_of_the_document_and_of_nothing_else():
    topology = one_host_topology(4, host="a", release="torch-2.13")
    document = canonical_bytes(msgspec.to_builtins(topology))
    assert topology_digest(topology) == hashlib.sha256(document).hexdigest()


def test_the_digest_does_not_depend_on_the_order_of_writing_but_on_every_place():
    left = Topology(placements={"0": ("host:a",), "1": ("host:b",)})
    right = Topology(placements={"1": ("host:b",), "0": ("host:a",)})
    other = Topology(placements={"0": ("host:b",), "1": ("host:a",)})
    assert topology_digest(left) == topology_digest(right)
    assert topology_digest(left) != topology_digest(other)


def test_on_one_host_everything_widens_to_the_host():
    forest = forest_of_topology(one_host_topology(4, host="a"))
    assert str(forest.smallest_shared((1, 3))) == "host:a"
    assert str(forest.widen(forest.domains_of(2)[0])) == "host:a"
