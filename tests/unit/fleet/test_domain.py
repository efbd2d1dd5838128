"""Fault domains contain each other by their ranks; the ladder nests; widening always takes more out."""

import pytest

from lastgood.base.errors import BadInput, Problems
from lastgood.fleet.domain import Domain, forest_of, parse_domain


def domains(*texts: str) -> list[Domain]:
    return [parse_domain(text) for text in texts]


def small_fleet():
    """Two racks of two hosts with two ranks each; the power feed cuts across the racks, one rank alone on h3."""
    return forest_of({
        0: domains("device:h0/0", "host:h0", "rack:r0", "power:a", "site:s"),
        1: domains("device:h0/1", "host:h0", "rack:r0", "power:a", "site:s"),
        2: domains("device:h1/0", "host:h1", "rack:r0", "power:b", "site:s"),
        3: domains("device:h1/1", "host:h1", "rack:r0", "power:b", "site:s"),
        4: domains("device:h2/0", "host:h2", "rack:r1", "power:a", "site:s"),
        5: domains("device:h2/1", "host:h2", "rack:r1", "power:a", "site:s"),
        6: domains("device:h3/0", "host:h3", "rack:r1", "power:b", "site:s"),
    })  # fmt: skip


def text(found) -> list[str]:
    return [str(domain) for domain in found]


def test_the_domains_of_a_rank_come_from_small_to_large():
    expected = ["rank:2", "device:h1/0", "host:h1", "power:b", "rack:r0", "site:s"]
    assert text(small_fleet().domains_of(2)) == expected


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [((0,), "rank:0"), ((0, 1), "host:h0"), ((0, 2), "rack:r0"), ((0, 4), "power:a"), ((3, 6), "power:b"),
     ((0, 6), "site:s"), ((6,), "rank:6")],
)  # fmt: skip
def test_the_smallest_shared_domain_is_found_across_the_ladder_too(ranks, expected):
    assert str(small_fleet().smallest_shared(ranks)) == expected


def test_ranks_that_share_nothing_have_no_shared_domain():
    forest = forest_of({0: domains("host:a"), 1: domains("host:b")})
    assert forest.smallest_shared((0, 1)) is None
    assert forest.smallest_shared(()) is None
    assert forest.smallest_shared((9,)) is None


def test_widening_passes_over_domains_that_hold_nothing_more():
    forest = small_fleet()
    # Not to the device, which holds rank 0 alone.
    assert str(forest.widen(parse_domain("rank:0"))) == "host:h0"
    assert str(forest.widen(parse_domain("host:h0"))) == "rack:r0"
    # Rack and feed hold three ranks each: the ladder comes first.
    assert str(forest.widen(parse_domain("rank:6"))) == "rack:r1"
    assert str(forest.widen(parse_domain("rack:r0"))) == "site:s"
    assert forest.widen(parse_domain("site:s")) is None
    assert forest.widen(parse_domain("host:unknown")) is None


def test_parents_are_the_nearest_domains_around():
    forest = small_fleet()
    assert text(forest.parents(parse_domain("rank:0"))) == ["device:h0/0"]
    assert set(text(forest.parents(parse_domain("host:h0")))) == {"rack:r0", "power:a"}
    assert text(forest.parents(parse_domain("rack:r1"))) == ["site:s"]
    assert forest.parents(parse_domain("site:s")) == ()


def test_the_blast_radius_is_every_rank_below():
    forest = small_fleet()
    assert forest.blast_radius(domains("host:h0", "power:a")) == {0, 1, 4, 5}
    assert forest.blast_radius([]) == frozenset()


def test_a_ladder_that_does_not_nest_is_refused_with_all_its_problems():
    with pytest.raises(Problems) as caught:
        forest_of(
            {
                0: domains("host:a", "rack:r0"),
                1: domains("host:a", "rack:r1"),
                2: domains("host:b", "host:c"),
            }
        )
    found = [str(problem) for problem in caught.value.problems]
    assert "host:a: rack: found parts in rack:r0 and rack:r1, needs one rack or none" in found
    assert "rank 2: host: found host:b and host:c, needs one host" in found


def test_a_rank_lies_in_no_other_rank():
    with pytest.raises(Problems, match="no other rank"):
        forest_of({0: domains("rank:1")})


@pytest.mark.parametrize(
    "bad", ["", "host", "host:", "planet:x", "host:\n", "HOST:a", "host:" + "x" * 300]
)
def test_text_that_names_no_domain_is_refused(bad):
    with pytest.raises(BadInput):
        parse_domain(bad)


def test_a_domain_reads_back_from_its_text():
    assert str(parse_domain("switch:leaf-3:port 2")) == "switch:leaf-3:port 2"
