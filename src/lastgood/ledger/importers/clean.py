"""What other people's data must go through before it enters an event: masked, bounded, and with canonical bytes.

A body that cannot be hashed would stop the import of its whole batch, so it is made hashable here or its row is
rejected: floats become hex text, lone surrogates U+FFFD, texts get a bound, and numbers that no 64 bits hold are a
`RowProblem`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from lastgood.base.canonical import float_hex
from lastgood.ledger.importers.times import RowProblem
from lastgood.ledger.masking import Masker

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
TEXT_CHARS_MAX = 8_192
"""As for `lastgood record`: a longer text is cut; the raw side store keeps all of it."""
NAME_CHARS_MAX = 256
DEPTH_MAX = 32
ITEM_COUNT_MAX = 10_000
KEY_COUNT_MAX = 10_000
_UNSEEN = "\x00"
"""Stands for a name that was not looked at yet: no cleaned name has a control character."""
_CACHED_CHARS_MAX = 512
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TABLE_KEYS = frozenset(("mapping", "word_list"))
_MAPPING_ID = re.compile(r"[a-z0-9\-]+/[\w.\-]+@sha256:[0-9a-f]{64}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Cleaner:
    """Cleans texts and bodies under one masking key; equal short texts are masked once."""

    def __init__(self, masker: Masker) -> None:
        """The masker of the ledger that is written."""
        self._masker = masker
        self._keys: set[str] = set()
        self._names: dict[str, str | None] = {}
        self._masked = functools.lru_cache(maxsize=8_192)(self._mask)
        self._masked_under = functools.lru_cache(maxsize=8_192)(self._mask_under)

    def text(self, text: str) -> str:
        """The text masked, in Unicode NFC, without lone surrogates, at most 8,192 characters."""
        if len(text) <= _CACHED_CHARS_MAX:
            return self._masked(text)
        return self._mask(text)

    def name(self, name: str | None) -> str | None:
        """The name of a host or device: no control characters, bounded; None when nothing is left."""
        if name is None:
            return None
        known = self._names.get(name, _UNSEEN) if isinstance(name, str) else _UNSEEN
        if known is not _UNSEEN:
            return known
        cleaned = self._clean_name(name)
        if len(self._names) < KEY_COUNT_MAX:
            self._names[name] = cleaned
        return cleaned

    def _clean_name(self, name: str) -> str | None:
        if not isinstance(name, str):
            raise RowProblem("a name that is not text", repr(name)[:80])
        if not name.isascii():
            name = unicodedata.normalize("NFC", name)
        if len(name) > NAME_CHARS_MAX or not name.isprintable():
            name = _CONTROL.sub("\ufffd", name[:NAME_CHARS_MAX])
        return name.strip() or None

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """JSON-like data as it may be hashed."""
        return self._mapping(body, 0)

    def _mapping(self, body: Mapping[str, Any], depth: int) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        keys = self._keys
        for key, value in body.items():
            if key not in keys:
                key = self._key(key)
                if key in clean:
                    continue  # two spellings of one key: the first counts
            if isinstance(value, str):
                clean[key] = self._under(key, value)
            elif value is None or value is True or value is False:
                clean[key] = value
            else:
                clean[key] = self._value(value, depth + 1)
        return clean

    def _key(self, key: Any) -> str:
        """A key as it may be hashed. A plain one, which no other key can become, is looked at only once."""
        text = str(key)
        if not text.isascii():
            text = unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))
        text = text[:NAME_CHARS_MAX]
        is_plain = text == key and text.isascii() and len(text) < NAME_CHARS_MAX
        if is_plain and len(self._keys) < KEY_COUNT_MAX:
            self._keys.add(text)
        return text

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if not INT64_MIN <= value <= INT64_MAX:
                raise RowProblem("a number of more than 64 bits", str(value)[:24])
            return int(value)
        if isinstance(value, float):
            return float_hex(value)
        if depth > DEPTH_MAX:
            raise RowProblem("nested too deeply", f"more than {DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            if len(value) > ITEM_COUNT_MAX:
                raise RowProblem("an object with too many keys", f"{len(value):,}")
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            if len(value) > ITEM_COUNT_MAX:
                raise RowProblem("a list with too many items", f"{len(value):,}")
            items = sorted(value) if isinstance(value, set | frozenset) else value
            return [self._value(item, depth + 1) for item in items]
        raise RowProblem("a value that has no place in a record", type(value).__name__)

    def _under(self, key: str, text: str) -> str:
        if key in _TABLE_KEYS and _MAPPING_ID.fullmatch(text):
            return text  # ours, and `1@sha256` looks like an address
        if len(text) <= _CACHED_CHARS_MAX:
            return self._masked_under(key, text)
        return self._mask_under(key, text)

    def _mask_under(self, key: str, text: str) -> str:
        """A text whose key may give it away: `user`, `password`."""
        return self._masker.under(key, _valid(text))

    def _mask(self, text: str) -> str:
        return self._masker.text(_valid(text))


def _valid(text: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        text = text[:TEXT_CHARS_MAX]
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))
