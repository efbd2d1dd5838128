from __future__ import annotations

import base64

import pytest

from lastgood.base.errors import BadInput
from lastgood.ledger.tree_head import TreeHead, is_signed_by, key_id, parse_note, sign_head

HEAD = TreeHead(origin="lastgood.dev/ledger/0123", size=8, root=bytes(range(32)))
# The example key of the signed-note documentation (golang.org/x/mod/sumdb/note, package example).
NEUMANN = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")[1:]
NEUMANN_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]


def test_a_head_is_three_lines():
    root = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert HEAD.to_note() == f"lastgood.dev/ledger/0123\n8\n{root}\n"
    assert parse_note(HEAD.to_note()) == HEAD


def test_a_head_with_extension_lines_of_others_is_read():
    assert parse_note(HEAD.to_note() + "an extension\n") == HEAD


def test_the_key_id_is_that_of_the_published_example():
    assert key_id("PeterNeumann", NEUMANN).hex() == "c74f20a3"


def test_a_signature_checks_under_its_key_and_no_other():
    signed = parse_note(sign_head(HEAD, name="PeterNeumann", private_key=NEUMANN_SEED).to_note())
    assert is_signed_by(signed, name="PeterNeumann", public_key=NEUMANN)
    assert not is_signed_by(signed, name="Somebody", public_key=NEUMANN)
    assert not is_signed_by(HEAD, name="PeterNeumann", public_key=NEUMANN)


def test_a_signature_does_not_cover_another_size():
    signed = sign_head(HEAD, name="k", private_key=NEUMANN_SEED)
    grown = TreeHead(origin=HEAD.origin, size=9, root=HEAD.root, signatures=signed.signatures)
    assert is_signed_by(signed, name="k", public_key=NEUMANN)
    assert not is_signed_by(grown, name="k", public_key=NEUMANN)


def test_the_published_example_signature_has_our_form():
    """The documentation's own note, signed with its own key: same key id and signature bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
    )
    published = base64.b64decode(
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    )
    signature = Ed25519PrivateKey.from_private_bytes(NEUMANN_SEED).sign(text.encode())
    assert key_id("PeterNeumann", NEUMANN) + signature == published


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "three lines"),
        ("origin\n8\n", "three lines"),
        ("origin\neight\nAAAA\n", ":2"),
        ("origin\n-1\nAAAA\n", ":2"),
        ("origin\n8\nAAAA\n", "32 bytes"),
        ("origin\n8\nnot base64!\n", "base64"),
        (HEAD.to_note() + "\nno signature\n", "signature"),
    ],
)
def test_what_is_no_head_is_refused_with_the_line(text, part):
    with pytest.raises(BadInput, match=part):
        parse_note(text)
