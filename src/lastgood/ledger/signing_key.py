"""Keys that sign tree heads: one file for whoever signs, one line for whoever checks.

Both are texts in the forms of the signed-note family, so tools of others read them: the signer's file holds
`PRIVATE+KEY+name+id+seed`, the verifier line is `name+id+key`. The id is four bytes of a hash over name and key, so a
line that was mistyped or put together from two keys is refused and not merely never right.

Source: C2SP signed-note v1 (verifier keys); the private form is that of golang.org/x/mod/sumdb/note.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lastgood.base.errors import BadInput
from lastgood.ledger.tree_head import TreeHead, is_signed_by, key_id, sign_head

KEY_BYTES = 32
FILE_BYTES_MAX = 4_096
_PRIVATE = "PRIVATE+KEY+"
_ED25519 = 1
_LINE = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Whose signature is asked for: a name and its public key (32 bytes)."""

    name: str
    public_key: bytes

    def to_line(self) -> str:
        """The line that is handed to whoever checks; nothing in it is secret."""
        return f"{self.name}+{self.id_hex}+{_with_type(self.public_key)}"

    @property
    def id_hex(self) -> str:
        """The four bytes that stand in front of each signature of this key."""
        return key_id(self.name, self.public_key).hex()

    def has_signed(self, head: TreeHead) -> bool:
        """True when the head carries this key's signature over exactly its lines."""
        return is_signed_by(head, name=self.name, public_key=self.public_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A name and the 32-byte seed of its Ed25519 key."""

    name: str
    seed: bytes = field(repr=False)

    @property
    def verifier(self) -> Verifier:
        """The public half."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        public = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return Verifier(name=self.name, public_key=public)

    def sign(self, head: TreeHead) -> TreeHead:
        """The head with this key's signature added."""
        return sign_head(head, name=self.name, private_key=self.seed)

    def to_line(self) -> str:
        """What the key's file holds. Whoever has it can sign in this name."""
        return f"{_PRIVATE}{self.name}+{self.verifier.id_hex}+{_with_type(self.seed)}"


def new_key(name: str) -> SigningKey:
    """A fresh key from the system's random numbers.

    Raises:
        BadInput: The name cannot stand in a signature line.
    """
    if not re.fullmatch(r"[^\s+\x00-\x1f\x7f]{1,128}", name):
        raise BadInput(
            "not a key name",
            found=repr(name),
            needs="1 to 128 characters without spaces and plus signs",
            next="name it after who signs and where, such as cluster-7.example",
        )
    return SigningKey(name=name, seed=secrets.token_bytes(KEY_BYTES))


def write_key(key: SigningKey, path: Path) -> None:
    """Write the key as a file that only its owner may read (mode 0600), never over something that exists.

    Raises:
        BadInput: The file is there already, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as write:
            write.write(key.to_line() + "\n")
            write.flush()
            os.fsync(write.fileno())
    except FileExistsError as error:
        raise BadInput(
            "a file is already there",
            where=str(path),
            needs="a path that does not exist yet",
            next="name another path; a key is never overwritten",
        ) from error
    except OSError as error:
        raise BadInput(
            "the key cannot be written", where=str(path), found=error.strerror or str(error)
        ) from error


def read_key(path: Path) -> SigningKey:
    """The signing key in this file.

    Raises:
        BadInput: Not readable, not a key, or a file that other users may read.
    """
    text = _read(path, what="the signing key")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise BadInput(
            "other users may read the signing key",
            where=str(path),
            found=f"mode {mode:04o}",
            needs="0600",
            next=f"run: chmod 600 {path}",
        )
    form = _LINE.fullmatch(text.removeprefix(_PRIVATE)) if text.startswith(_PRIVATE) else None
    seed = _key_bytes(form[3]) if form else None
    key = SigningKey(name=form[1], seed=seed) if form and seed else None
    if key is None or form is None or key.verifier.id_hex != form[2]:
        raise BadInput(
            "not a signing key",
            where=str(path),
            needs="one line PRIVATE+KEY+name+id+base64",
            next=f"make one with: lastgood key new --name NAME -o {path}.new",
        )
    return key


def read_verifier(text: str) -> Verifier:
    """The verifier that a line states, or the one whose line stands in the file of this name.

    Raises:
        BadInput: Neither a verifier line nor a file that holds one; a signing key is refused too.
    """
    line, where = text.strip(), "--verifier"
    if not _LINE.fullmatch(line):
        line, where = _read(Path(text), what="the verifier line"), text
    if line.startswith(_PRIVATE):
        raise BadInput(
            "this is a signing key and not a verifier line",
            where=where,
            needs="name+id+base64",
            next=f"run: lastgood key show {text}",
        )
    form = _LINE.fullmatch(line)
    public = _key_bytes(form[3]) if form else None
    verifier = Verifier(name=form[1], public_key=public) if form and public else None
    if verifier is None or form is None or verifier.id_hex != form[2]:
        raise BadInput(
            "not a verifier line",
            where=where,
            found=repr(line[:80]),
            needs="name+id+base64 with the id that belongs to name and key",
            next="print it where the key lies: lastgood key show KEY",
        )
    return verifier


def signature_problem(head: TreeHead, verifiers: Sequence[Verifier]) -> str | None:
    """Why one of these keys does not vouch for the head as it stands; None when all of them do."""
    for wanted in verifiers:
        if wanted.has_signed(head):
            continue
        who = f"{wanted.name} (key {wanted.id_hex})"
        made = [f"{s.name} (key {s.key_id.hex()})" for s in head.signatures]
        if who in made:
            return f"the signature of {who} is not one of this head: the note was altered, or it is another's"
        if made:
            return f"the outside head is not signed by {who}, but by {', '.join(made)}"
        return f"the outside head is not signed, and the signature of {who} was asked for"
    return None


def _with_type(key: bytes) -> str:
    return base64.b64encode(bytes([_ED25519]) + key).decode()


def _key_bytes(text: str) -> bytes | None:
    """The 32 bytes behind the type byte; None for anything else."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw[1:] if len(raw) == KEY_BYTES + 1 and raw[0] == _ED25519 else None


def _read(path: Path, *, what: str) -> str:
    try:
        with path.open("rb") as read:
            return read.read(FILE_BYTES_MAX).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        found = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadInput(f"{what} cannot be read", where=str(path)[:200], found=found) from error
