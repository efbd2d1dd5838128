"""A tree head: three lines that pin a whole ledger, small enough to print, mail or keep in a git tag.

The form is a checkpoint note: the ledger's name, how many events it holds, the root hash in base64; then, when a
key is given, an empty line and one Ed25519 signature line per key. Whoever keeps a head outside the machine can
later tell a ledger whose tail was cut, or whose history was written anew, from the one that was there.

Source: C2SP tlog-checkpoint v1 and signed-note v1.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

from lastgood.base.errors import BadInput
from lastgood.ledger.merkle import HASH_BYTES

_DASH = "\u2014 "
"""A signature line begins with an em dash and a space."""
_ED25519 = b"\x01"
"""Signature type byte of the signed-note form."""
_SIZE_MAX = 2**63 - 1


class Signature(NamedTuple):
    """One signature line: the key's name, its four-byte id, and the signature itself."""

    name: str
    key_id: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeHead:
    """What the ledger `origin` held when it had `size` events."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[Signature, ...] = ()
    extensions: tuple[str, ...] = field(default=(), compare=False)
    """Further lines of other writers below the root: they mean nothing here, but a signature covers them."""

    @property
    def root_hex(self) -> str:
        """The root as people compare it by eye."""
        return self.root.hex()

    def body(self) -> str:
        """The lines that are signed: origin, size, root, and the extensions if there are any."""
        lines = (
            self.origin,
            str(self.size),
            base64.b64encode(self.root).decode(),
            *self.extensions,
        )
        return "".join(f"{line}\n" for line in lines)

    def to_note(self) -> str:
        """The head as text, with its signatures if there are any."""
        lines = [
            f"{_DASH}{s.name} {base64.b64encode(s.key_id + s.value).decode()}\n"
            for s in self.signatures
        ]
        return self.body() + ("\n" + "".join(lines) if lines else "")


def parse_note(text: str, *, where: str = "tree head") -> TreeHead:
    """The head that a note states; its signatures are read but not yet checked.

    Raises:
        BadInput: The text is not a checkpoint note; the message names the line.
    """
    body, has_signatures, tail = text.replace("\r\n", "\n").partition("\n\n")
    lines = body.rstrip("\n").split("\n")
    if len(lines) < 3 or not lines[0].strip():
        raise BadInput(
            "not a tree head",
            where=where,
            found=f"{len(lines)} line(s)",
            needs="three lines: origin, size, base64 root",
            next="write one with: lastgood verify LEDGER",
        )
    if not (lines[1].isascii() and lines[1].isdigit()) or int(lines[1]) > _SIZE_MAX:
        raise BadInput(
            "not a tree head", where=f"{where}:2", found=repr(lines[1]), needs="a number of events"
        )
    root = _b64(lines[2], where=f"{where}:3")
    if len(root) != HASH_BYTES:
        raise BadInput(
            "not a root hash",
            where=f"{where}:3",
            found=f"{len(root)} bytes",
            needs="32 bytes in base64",
        )
    signatures = tuple(
        _signature(line, where=where) for line in tail.split("\n") if line and has_signatures
    )
    head = TreeHead(
        origin=lines[0],
        size=int(lines[1]),
        root=root,
        signatures=signatures,
        extensions=tuple(lines[3:]),
    )
    if head.body().rstrip("\n") != body.rstrip("\n"):
        # The signature is checked over the lines as we write them, so no other spelling may pass for them.
        raise BadInput(
            "not a tree head in its one form",
            where=where,
            found=repr("\n".join(lines[1:3])),
            needs="a size without leading zeros and a root in plain base64",
        )
    return head


def sign_head(head: TreeHead, *, name: str, private_key: bytes) -> TreeHead:
    """The head with one more Ed25519 signature under this key name. `private_key` is the 32-byte seed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not name or " " in name or "+" in name:
        raise BadInput(
            "a key needs a name", found=repr(name), needs="text without spaces and plus signs"
        )
    if len(private_key) != 32:
        raise BadInput(
            "not an Ed25519 key", found=f"{len(private_key)} bytes", needs="a seed of 32 bytes"
        )
    key = Ed25519PrivateKey.from_private_bytes(private_key)
    public = key.public_key().public_bytes_raw()
    signature = Signature(name, key_id(name, public), key.sign(head.body().encode()))
    return replace(head, signatures=(*head.signatures, signature))


def is_signed_by(head: TreeHead, *, name: str, public_key: bytes) -> bool:
    """True when one of the signatures is by this key, over exactly these lines."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    wanted = key_id(name, public_key)
    key = Ed25519PublicKey.from_public_bytes(public_key)
    for signature in head.signatures:
        if signature.name != name or signature.key_id != wanted:
            continue
        try:
            key.verify(signature.value, head.body().encode())
        except InvalidSignature:
            continue
        return True
    return False


def key_id(name: str, public_key: bytes) -> bytes:
    """The four bytes that tie a signature line to its key: SHA-256(name, newline, 0x01, key) cut to 32 bits."""
    return sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


def _signature(line: str, *, where: str) -> Signature:
    name, _, value = line.removeprefix(_DASH).rpartition(" ")
    if not line.startswith(_DASH) or not name:
        raise BadInput(
            "not a signature line", where=where, found=repr(line), needs="em dash, key name, base64"
        )
    blob = _b64(value, where=where)
    if len(blob) < 5:
        raise BadInput(
            "not a signature",
            where=where,
            found=f"{len(blob)} bytes",
            needs="a key id and a signature",
        )
    return Signature(name, blob[:4], blob[4:])


def _b64(text: str, *, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("not base64", where=where, found=repr(text[:80])) from error
