"""A topology has one digest for one shape, and reading one names everything that is wrong."""

import hashlib

import pytest

from lastgood.base.errors import Problems
from lastgood.fleet.topology import (
    Topology,
    decode_topology,
    encode_topology,
    forest_of_topology,
    one_host_topology,
    topology_digest,
)


def test_the_digest_is_the_hash_of_the_document_and_of_nothing_else():
    topology = one_host_topology(4, host="a", release="torch-2.13")
    assert topology_digest(topology) == hashlib.sha256(encode_topology(topology)).hexdigest()
    assert decode_topology(encode_topology(topology)) == topology


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


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"", "a topology document"),
        (b"[]", "Expected `object`"),
        (b'{"topology":"x/9","placements":{}}', "found x/9"),
        (
            b'{"topology":"lastgood-topology/1","placements":{"0":["host:a"],"2":[]}}',
            "every rank from 0 to 1",
        ),
        (
            b'{"topology":"lastgood-topology/1","placements":{"0":["host"]}}',
            "rank 0: not a fault domain",
        ),
        (
            b'{"topology":"lastgood-topology/1","placements":{"0":["host:a","host:b"]}}',
            "needs one host",
        ),
        (b'{"topology":"lastgood-topology/1","placements":{},"extra":1}', "unknown field `extra`"),
    ],
)
def test_what_is_wrong_with_a_topology_is_said(raw, part):
    with pytest.raises(Problems) as caught:
        decode_topology(raw, source="t.json")
    assert part in str(caught.value)
