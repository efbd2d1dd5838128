from __future__ import annotations

import pytest

from lastgood.ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    TreeBuilder,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
)

# Published test vectors of the certificate-transparency project (google/certificate-transparency,
# merkle_tree_test.cc; the same ones in transparency-dev/merkle, testonly/constants.go).
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]


def test_the_empty_tree_has_the_hash_of_nothing_as_root():
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert Frontier().root() == EMPTY_ROOT


def test_roots_are_those_that_certificate_transparency_publishes():
    frontier = Frontier()
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        frontier = frontier.append(leaf)
        assert frontier.root().hex() == root
        assert root_of(LEAVES[: frontier.size]).hex() == root


@pytest.mark.parametrize(
    ("index", "size", "proof"),
    [
        (0, 1, []),
        (
            0,
            8,
            [
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            5,
            8,
            [
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    ],
)
def test_inclusion_proofs_are_the_published_ones(index, size, proof):
    assert [node.hex() for node in inclusion_proof(LEAVES, index=index, size=size)] == proof


@pytest.mark.parametrize(
    ("old_size", "new_size", "proof"),
    [
        (1, 1, []),
        (
            1,
            8,
            [
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            6,
            8,
            [
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (
            2,
            5,
            [
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ],
)
def test_consistency_proofs_are_the_published_ones(old_size, new_size, proof):
    found = consistency_proof(LEAVES, old_size=old_size, new_size=new_size)
    assert [node.hex() for node in found] == proof


def test_every_inclusion_proof_checks_and_no_other_leaf_fits_it():
    leaves = [leaf_hash(bytes([number])) for number in range(33)]
    for size in range(1, 34):
        root = root_of(leaves[:size])
        for index in range(size):
            proof = inclusion_proof(leaves, index=index, size=size)
            told = {"index": index, "size": size, "proof": proof, "root": root}
            assert check_inclusion(leaf=leaves[index], **told)
            assert not check_inclusion(leaf=leaf_hash(b"another"), **told)
            assert not check_inclusion(leaf=leaves[index], **told | {"proof": [*proof, root]})
            if proof:
                assert not check_inclusion(leaf=leaves[index], **told | {"proof": proof[:-1]})


def test_every_consistency_proof_checks_and_rewritten_history_does_not():
    leaves = [leaf_hash(bytes([number])) for number in range(33)]
    for new_size in range(1, 34):
        new_root = root_of(leaves[:new_size])
        for old_size in range(1, new_size + 1):
            told = {
                "old_size": old_size,
                "new_size": new_size,
                "new_root": new_root,
                "proof": consistency_proof(leaves, old_size=old_size, new_size=new_size),
            }
            assert check_consistency(old_root=root_of(leaves[:old_size]), **told)
            rewritten = root_of([leaf_hash(b"another"), *leaves[1:old_size]])
            assert not check_consistency(old_root=rewritten, **told)


def test_a_frontier_survives_its_bytes():
    frontier = Frontier()
    for number in range(100):
        assert Frontier.from_bytes(frontier.size, frontier.to_bytes()) == frontier
        frontier = frontier.append(leaf_hash(bytes([number])))


@pytest.mark.parametrize(("size", "blob"), [(1, b""), (3, bytes(32)), (2, bytes(31)), (-1, b"")])
def test_a_frontier_that_no_list_could_have_produced_is_refused(size, blob):
    with pytest.raises(ValueError, match="frontier"):
        Frontier.from_bytes(size, blob)


@pytest.mark.parametrize(
    "parts", [(1, 1, 1), (7, 9, 256), (3, 1024, 5), (0, 513, 2, 0), (256, 256, 1)]
)
def test_many_leaves_at_once_give_the_tree_of_one_after_the_other(parts):
    leaves = [leaf_hash(str(n).encode()) for n in range(sum(parts))]
    builder, single = TreeBuilder(), TreeBuilder()
    at = 0
    for count in parts:
        builder.extend(leaves[at : at + count])
        for leaf in leaves[at : at + count]:
            single.append(leaf)
        at += count
        assert builder.frontier() == single.frontier()
    assert TreeBuilder(builder.frontier()).root() == root_of(leaves)
