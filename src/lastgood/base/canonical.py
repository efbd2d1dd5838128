"""Bytes that are the same everywhere for the same content: what is hashed, signed and compared.

The form is JSON with sorted keys (by code point), no spaces, UTF-8, every text in Unicode NFC, and
integers only. Floats are refused because their decimal form differs between writers; a float enters a
hashed body as a hex string (`float_hex`), which is exact in both directions.

There are two ways to the same bytes. The plain one below is the definition. The quick one lets msgspec write what is
already in the form (exact types, integers of 64 bits, text in NFC) and leaves everything else, and every refusal, to
the plain one; a test holds them to each other. An import spends most of its time here.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping

import msgspec

from lastgood.base.errors import CanonicalError

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1
"""Seeds and digests' halves are unsigned 64-bit; anything larger would be read differently elsewhere."""
DEPTH_MAX = 64
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical_bytes(value: object) -> bytes:
    """Return the canonical bytes of a value made of mappings, sequences, text, integers, bools and null.

    Raises `CanonicalError` for a float, a key that is not text, two keys that are one after NFC, an
    integer beyond 64 bits, text that is not valid Unicode, and anything else.
    """
    data = quick_bytes(value) if is_exactly_plain(value) else None
    return plain_bytes(value) if data is None else data


def quick_bytes(value: object) -> bytes | None:
    """Return what msgspec writes with sorted keys, or None when its text is not in NFC or not valid Unicode.

    Assumes: the value is made of what `is_exactly_plain` accepts; nothing is checked here.
    """
    try:
        data = _encode_sorted(value)
    except (UnicodeEncodeError, RecursionError):
        return None
    # Texts stand between quotes, which compose with nothing, so the whole is in NFC only if every text is.
    if data.isascii() or unicodedata.is_normalized("NFC", data.decode()):
        return data
    return None


def is_exactly_plain(value: object, *, depth: int = 0) -> bool:
    """Say whether a value is made of nothing but dicts with text keys, lists, tuples, text, bools, null and 64-bit ints.

    Subclasses do not count: they may write themselves in their own way.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return INT_MIN <= value <= INT_MAX  # type: ignore[operator]
    if depth >= DEPTH_MAX:
        return False
    if kind is dict:
        for key, item in value.items():  # type: ignore[union-attr]
            if type(key) is not str or not (
                type(item) is str or is_exactly_plain(item, depth=depth + 1)
            ):
                return False
        return True
    if kind is list or kind is tuple:
        return all(is_exactly_plain(item, depth=depth + 1) for item in value)  # type: ignore[union-attr]
    return False


def plain_bytes(value: object) -> bytes:
    """Return the canonical bytes by the definition, slowly; `canonical_bytes` gives the same and raises the same."""
    prepared = _prepare(value, path="$", depth=0)
    text = json.dumps(prepared, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CanonicalError(
            "text is not valid Unicode",
            found=ascii(text[error.start : error.end]),
            needs="no lone surrogates",
        ) from error


def _prepare(value: object, *, path: str, depth: int) -> object:
    if depth > DEPTH_MAX:
        raise CanonicalError("nested too deeply", where=path, needs=f"at most {DEPTH_MAX} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise CanonicalError("integer too large", where=path, found=str(value), needs="64 bits")
        return int(value)
    if isinstance(value, Mapping):
        return _prepare_mapping(value, path=path, depth=depth)
    if isinstance(value, list | tuple):
        return [
            _prepare(item, path=f"{path}[{index}]", depth=depth + 1)
            for index, item in enumerate(value)
        ]
    needs = "a hex string made by float_hex" if isinstance(value, float) else "a JSON value"
    raise CanonicalError(
        "no canonical bytes", where=path, found=f"{type(value).__name__} {value!r}", needs=needs
    )


def _prepare_mapping(value: Mapping[object, object], *, path: str, depth: int) -> dict[str, object]:
    prepared: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalError("key is not text", where=path, found=repr(key), needs="text")
        name = unicodedata.normalize("NFC", key)
        if name in prepared:
            raise CanonicalError("two keys are one after NFC", where=path, found=repr(name))
        prepared[name] = _prepare(item, path=f"{path}.{name}", depth=depth + 1)
    return prepared


def float_hex(value: float) -> str:
    """Return a float as hex text, exactly: `0x1.8000000000000p+0`. Every NaN becomes `nan`."""
    return float(value).hex()


def float_from_hex(text: str) -> float:
    """Return the float that `float_hex` wrote."""
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise CanonicalError(
            "not a float in hex", found=repr(text), needs="text made by float_hex"
        ) from error


def with_hex_floats(value: object) -> object:
    """Return a copy of a JSON-like value in which every float became its hex text."""
    # Most values are these, and asking the abstract class of mappings costs more than all the rest.
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, float):
        return float_hex(value)
    if isinstance(value, Mapping):
        return {key: with_hex_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_hex_floats(item) for item in value]
    return value


def is_close(left: float, right: float, *, relative_max: float = 1e-9) -> bool:
    """Say whether two floats agree within a relative bound, as `recompute` compares them."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=relative_max, abs_tol=0.0)


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of some bytes as lower-case hex."""
    return hashlib.sha256(data).hexdigest()
