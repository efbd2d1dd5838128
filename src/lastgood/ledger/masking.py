"""Free text without the people in it: user names, home paths and secrets become keyed pseudonyms.

A ledger is meant to be handed on, and a line from a log is full of names. The same name always gets the same
pseudonym under one key, so counts hold ("three of five failures in jobs of one user"); without the key nobody can
try out names. The key lies beside the ledger, is never part of it, and deleting it cuts the last tie.

Masking knows shapes, not meaning: a name in the middle of prose passes unless it is on the list of names.

The time grows with the text and no faster, whatever the text: a log line may be long and is not ours. So no pattern
starts again inside a run of characters that it has read once (lookbehinds), nor gives characters back (`++`, `*+`).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from lastgood.base.errors import LedgerError, LedgerPathError
from lastgood.ledger.event import Event
from lastgood.ledger.schema import PATH_ERRNOS

KEY_BYTES = 32
KEY_COUNT_MAX = 10_000
"""How many keys of other people's JSON are remembered."""
MASKED_KINDS = frozenset(("record", "observation"))
"""Kinds whose body is other people's text."""

_DONE = r"(?:user|path|token)-[0-9a-f]{10}"
"""What a pseudonym looks like: it is left alone, so masking twice is masking once."""
PASS_COUNT_MAX = 4
"""A pseudonym can stand where a name gives its neighbour away (`token-...=x`), so passes repeat until nothing changes."""
_END = r"(?=$|[\s'\"`<>|;,:)\]}])"
_PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_TOKENS = re.compile(
    r"\b(?:"
    r"(?:hf|gh[pousr]|npm|pypi|glpat|dop_v1|shpat)[_-][A-Za-z0-9_\-]{16,}"
    r"|github_pat_[A-Za-z0-9_]{20,}"
    r"|sk-[A-Za-z0-9_\-]{16,}"
    r"|xox[abposr]-[A-Za-z0-9\-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[A-Za-z0-9_\-]{30,}"
    r")"
)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}+(\.[A-Za-z0-9_\-]{4,}+(?:\.[A-Za-z0-9_\-]*+)?)?")
"""Takes the first part without a second one too, so that no start inside it is tried again; then it stays."""
_NAMED_SECRET = re.compile(
    r"""(?<![A-Za-z0-9_\-])
    (?=[A-Za-z0-9_\-]*?(?:token|secret|passw(?:or)?d|passphrase|api[_\-]?key|access[_\-]?key|credential))
    ([A-Za-z0-9_\-]++["']?\s*+[=:]\s*+["']?)([^\s"'&,;]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_BEARER = re.compile(r"\b((?:Bearer|Basic)\s+)([A-Za-z0-9._~+/=\-]{8,})")
_URL_LOGIN = re.compile(r"((?<=[A-Za-z0-9+.\-])://)([^\s/@:]++)(?::([^\s/@]*+))?(?=@)")
_HOME = re.compile(
    r"((?:/var|/export|/mnt|/nfs|/data|/gpfs|/lustre|/scratch)?/(?:home|Users|users)/|[A-Za-z]:\\Users\\)"
    r"([^\s/\\'\"`<>|;,:)\]}]+)([/\\][^\s'\"`<>|;,)\]}]*)?"
)
_MAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])([.%+\-]*+)([A-Za-z0-9_][A-Za-z0-9._%+\-]*+)(?=@[A-Za-z0-9])"
)
_NAMED_USER = re.compile(
    r"(\b(?:user(?:name)?|login|logname|uid|owner|account|for user|by user)\s*[=:]\s*[\"']?|\bfor user |\bby user )"
    rf"([A-Za-z_][A-Za-z0-9._\-]*+|\d++\([^)]{{1,256}}\)){_END}",
    re.IGNORECASE,
)
_HINTS = (
    "@", "-----begin", "bearer", "basic", "token", "secret", "passw", "passphrase", "api_key", "api-key", "apikey",
    "access_key", "access-key", "accesskey", "credential", "hf_", "hf-", "ghp", "gho", "ghu", "ghs", "ghr", "npm_",
    "npm-", "pypi", "glpat", "dop_v1", "shpat", "github_pat_", "sk-", "xox", "akia", "asia", "aiza", "eyj", "/home/",
    "user", "login", "logname", "uid", "owner", "account",
)  # fmt: skip
"""A text that has none of these in lower case has nothing for the patterns: most lines of a log are done here."""
_NOBODY = frozenset(
    ("root", "nobody", "none", "null", "true", "false", "unknown", "slurm", "kernel", "systemd")
)


class Masker:
    """Replaces names, home paths and secrets under one key."""

    def __init__(self, key: bytes, *, names: Iterable[str] = ()) -> None:
        """`names` are masked wherever they stand as a word of their own, whatever their shape."""
        if len(key) < KEY_BYTES:
            raise LedgerError(
                "the masking key is too short", found=f"{len(key)} bytes", needs=f"{KEY_BYTES}"
            )
        self._key = key
        self._kinds: dict[str, str | None] = {}
        known = sorted({n for n in names if len(n) > 1 and n not in _NOBODY}, key=len, reverse=True)
        self._names = (
            re.compile(rf"(?<![\w\-])(?:{'|'.join(map(re.escape, known))})(?![\w\-])")
            if known
            else None
        )

        self._steps: tuple[Callable[[str], str], ...] = (
            lambda text: _PEM.sub(lambda m: self.pseudonym("token", m[0]), text),
            lambda text: _BEARER.sub(lambda m: m[1] + self.pseudonym("token", m[2]), text),
            lambda text: _NAMED_SECRET.sub(lambda m: m[1] + self.pseudonym("token", m[2]), text),
            lambda text: _TOKENS.sub(lambda m: self.pseudonym("token", m[0]), text),
            lambda text: _JWT.sub(lambda m: self.pseudonym("token", m[0]) if m[1] else m[0], text),
            lambda text: _URL_LOGIN.sub(self._url_login, text),
            lambda text: _HOME.sub(self._home, text),
            lambda text: _MAIL.sub(lambda m: m[1] + self._name(m[2]), text),
            lambda text: _NAMED_USER.sub(lambda m: m[1] + self._name(m[2]), text),
            self._listed,
        )

    def pseudonym(self, kind: str, value: str) -> str:
        """`user-3f2a91c07b` for a name: the same under one key, unrelated under another."""
        if re.fullmatch(_DONE, value):
            return value
        digest = hmac.new(self._key, f"{kind}\n{value}".encode("utf-8", "surrogatepass"), sha256)
        return f"{kind}-{digest.hexdigest()[:10]}"

    def text(self, text: str) -> str:
        """The text with everything that can be recognised replaced. Masking twice changes nothing more."""
        if not self._may_hold(text):
            return text
        for _ in range(PASS_COUNT_MAX):
            masked = text
            for replace in self._steps:
                masked = replace(masked)
            if masked == text:
                break
            text = masked
        return text

    def value(self, value: Any) -> Any:
        """JSON-like data with all its texts masked; a text under a key such as `password` goes as a whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.under(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def event(self, event: Event) -> Event:
        """The event with its free text masked, when its kind carries other people's text."""
        if event.kind not in MASKED_KINDS:
            return event
        source = event.source
        if source is not None and source.locator is not None:
            source = msgspec.structs.replace(source, locator=self.text(source.locator))
        return msgspec.structs.replace(event, body=self.value(event.body), source=source)

    def _may_hold(self, text: str) -> bool:
        """False only when no pattern can match and no listed name is there."""
        if not text.isascii():
            return True  # some letters beyond ASCII match an ASCII one when case is ignored
        lower = text.lower()
        for hint in _HINTS:  # a loop: three times as fast as any() here
            if hint in lower:
                return True
        return self._names is not None and self._names.search(text) is not None

    def under(self, key: str, item: Any) -> Any:
        """A value as it may stand under this key: all of it goes when the key is `password`, a name when it is `user`."""
        if not isinstance(item, str):
            return self.value(item)
        kind = self._kind(key)
        if kind == "secret" and item:
            return self.pseudonym("token", item)
        if kind == "user" and _NAMED_USER.fullmatch(f"{key}={item}"):
            return self._name(item)
        return self.text(item)

    def _kind(self, key: str) -> str | None:
        """What a key says about its text: a log has few keys and many texts, so it is found out once."""
        if key not in self._kinds:
            kind = "user" if _NAMED_USER.fullmatch(f"{key}=x") else None
            if len(self._kinds) >= KEY_COUNT_MAX:
                self._kinds.clear()
            self._kinds[key] = "secret" if _NAMED_SECRET.fullmatch(f"{key}=x") else kind
        return self._kinds[key]

    def _name(self, name: str) -> str:
        return name if name.lower() in _NOBODY else self.pseudonym("user", name)

    def _listed(self, text: str) -> str:
        """Names of the list, wherever they stand alone."""
        if self._names is None:
            return text
        return self._names.sub(lambda match: self.pseudonym("user", match[0]), text)

    def _url_login(self, match: re.Match[str]) -> str:
        password = "" if match[3] is None else ":" + self.pseudonym("token", match[3])
        return match[1] + self._name(match[2]) + password

    def _home(self, match: re.Match[str]) -> str:
        rest = match[3]
        if not rest or rest in {"/", "\\"}:
            return match[1] + self._name(match[2]) + (rest or "")
        return f"{match[1]}{self._name(match[2])}{rest[0]}{self.pseudonym('path', rest[1:])}"


def load_masker(ledger: Path, *, environment: Mapping[str, str] | None = None) -> Masker:
    """The masker of a ledger; its key (`LEDGER.mask-key`, mode 0600) is made at the first use.

    The names of whoever runs this process are on the list.
    """
    environment = os.environ if environment is None else environment
    path = ledger.with_name(ledger.name + ".mask-key")
    names = [environment.get(variable, "") for variable in ("USER", "LOGNAME", "SUDO_USER")]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        kind = LedgerPathError if error.errno in PATH_ERRNOS else LedgerError
        raise kind(
            "the ledger's masking key cannot be read or made",
            where=str(path),
            found=error.strerror,
            needs="a folder that this user may write",
        ) from error
    if len(key) < KEY_BYTES:
        raise LedgerError(
            "the masking key is damaged",
            where=str(path),
            found=f"{len(key)} bytes",
            needs=f"{KEY_BYTES}; a new key gives new pseudonyms from then on",
            next=f"run: rm {path}",
        )
    return Masker(key, names=names)


def _make_key(path: Path) -> None:
    """Writes a whole key under another name and links it, so that no other process ever reads half of one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
    finally:
        os.close(descriptor)
    with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
        os.link(draft, path)
    draft.unlink()
