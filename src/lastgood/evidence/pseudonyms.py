"""Texts for strangers: everything that is not known to be public becomes a keyed pseudonym.

`ledger/masking.py` hides what it recognises, which suits a ledger that stays in the house. Here it is the other way
round: of a text only public words (`public_words.py`), numbers and punctuation stay, and every other word is replaced.
The same name gets the same pseudonym wherever it stands, so counts and comparisons hold; the key is thrown away.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from hashlib import sha256

from lastgood.evidence.public_words import public_words

DIGITS = 10
"""Hex digits of a pseudonym: 40 bits, so among a million names two meet with a chance of 1 in 2."""
_STRONG = frozenset(("host",))
"""Kinds that a name keeps whatever else it is called."""
_SYSTEM = frozenset(("/proc", "/dev/shm", "/dev/null"))  # noqa: S108 - names of every Linux, nothing is opened
DIGEST_DIGITS = 32
NUMBER_NAME_DIGITS_MIN = 3
"""A shorter number inside a name is no name of its own: `7` in `node 7` would hide every 7."""

_TOKEN = re.compile(r"[\w.\-@%~\\]+")
"""A word. `/` and `+` part words, because labels of sources are hierarchies; an absolute path went before."""
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]*+://[^\s'\"<>]+"
    r"|(?<![\w.%+\-])[\w.%+\-]++@[\w.\-]+"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,}[0-9A-Fa-f.]{0,15}(?:%\w+)?(?![\w:])"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}(?![\w:])"
)
_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}:\d{2}")
_PATH = re.compile(r"(?<![\w.*])(?:~|\.{1,2})?/[^\s'\"<>|]+|[A-Za-z]:\\[^\s'\"<>|]+")
_LEVELS = ("name", "address", "path")
_NUMBER = re.compile(
    r"[+\-]?\d{1,9}(?:\.\d{1,18})?(?:[eE][+\-]?\d+)?(?:us|ms|s|min|h|d|%|B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?"
)
_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+\-]\d+|-?inf|nan")
_HEX = re.compile(r"(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{4,128}")
"""Also the first digits of a digest, as a sentence quotes them."""
_MASKED = re.compile(r"(user|path|token)-[0-9a-f]{10}")
_OWN = re.compile(r"(?:w|rank)\d{1,5}")
"""What lastgood calls its own workers and ranks."""


class Pseudonyms:
    """Replaces names under one key and counts what it replaced, by kind."""

    def __init__(self, key: bytes) -> None:
        """`key` is secret and random; who has it can try out names."""
        self._key = key
        self._public = public_words()
        self._known: dict[str, str] = {}
        self._phrases: set[str] = set()
        self._phrase_pattern: re.Pattern[str] | None = None
        self.counts: Counter[str] = Counter()
        """Kind -> how many places were replaced."""
        self.names: dict[str, set[str]] = {}
        """Kind -> the pseudonyms that were given."""

    def learn(self, name: str, kind: str) -> None:
        """`name` is a name of this kind wherever it stands, even if it looks like a public word.

        Told twice, a host is a host and not the clock or the file that was called after it.
        """
        if not name or (name in self._known and kind not in _STRONG):
            return
        self._known[name] = kind
        if _TOKEN.fullmatch(name):
            return
        parts = [part for part in _TOKEN.findall(name) if self._is_telling(part)]
        for part in parts:
            self._known.setdefault(part, kind)
        if not parts and len(name) > 1:
            self._phrases.add(name)
            self._phrase_pattern = None

    def name(self, name: str, kind: str) -> str:
        """The pseudonym of a whole name. A name that was learned keeps the kind under which it was."""
        kind = self._known.get(name, kind)
        digest = hmac.new(self._key, f"{kind}\n{name}".encode("utf-8", "surrogatepass"), sha256)
        is_whole_digest = kind == "digest" and len(name) > DIGEST_DIGITS
        short = digest.hexdigest()[: DIGEST_DIGITS if is_whole_digest else DIGITS]
        self.counts[kind] += 1
        self.names.setdefault(kind, set()).add(short)
        return f"{kind}-{short}"

    def text(self, text: str, *, is_ours: bool = False) -> str:
        """The text with every word replaced that is not public; `is_ours` keeps names of workers such as `w2`."""
        if text in self._known:
            return self.name(text, self._known[text])
        if _HEX_FLOAT.fullmatch(text):
            return text
        return self._part(text, 0, is_ours=is_ours)

    def key(self, key: str) -> str:
        """A key of a body: the name of a field stays, because it means that field; anything else is treated as text."""
        return key if self._public.has_key(key) or key.isdigit() else self.text(key)

    def _part(self, text: str, level: int, *, is_ours: bool) -> str:
        """Phrases, then addresses, then paths are taken out; of what is left between them, word by word."""
        if not text or level == len(_LEVELS):
            return _TOKEN.sub(lambda match: self._token(match[0], is_ours=is_ours), text)
        kind = _LEVELS[level]
        pattern = {"name": self._phrase(), "address": _ADDRESS, "path": _PATH}[kind]
        pieces, at = [], 0
        for match in pattern.finditer(text) if pattern is not None else ():
            if match[0] in _SYSTEM or _CLOCK_TIME.fullmatch(match[0]):
                continue
            pieces.append(self._part(text[at : match.start()], level + 1, is_ours=is_ours))
            pieces.append(self.name(match[0], kind))
            at = match.end()
        pieces.append(self._part(text[at:], level + 1, is_ours=is_ours))
        return "".join(pieces)

    def _phrase(self) -> re.Pattern[str] | None:
        if self._phrase_pattern is None and self._phrases:
            longest_first = sorted(self._phrases, key=len, reverse=True)
            self._phrase_pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._phrase_pattern

    def _token(self, token: str, *, is_ours: bool) -> str:
        core = token.strip(".-%~")
        if token in self._known or not core:
            return self.name(token, self._known[token]) if token in self._known else token
        begin = token.index(core)
        return token[:begin] + self._core(core, is_ours=is_ours) + token[begin + len(core) :]

    def _core(self, token: str, *, is_ours: bool) -> str:
        if token in self._known:
            return self.name(token, self._known[token])
        if masked := _MASKED.fullmatch(token):
            return self.name(token, masked[1])
        if _NUMBER.fullmatch(token) or self._public.has_word(token):
            return token
        if is_ours and _OWN.fullmatch(token):
            return token
        if _HEX.fullmatch(token):
            return self.name(token, "digest")
        return self.name(token, "path" if "\\" in token else "name")

    def _is_telling(self, part: str) -> bool:
        """True for a part of a name that would stand alone as a name too."""
        if _NUMBER.fullmatch(part):
            return part.isdigit() and len(part) >= NUMBER_NAME_DIGITS_MIN
        return not self._public.has_word(part.strip(".-%~"))
