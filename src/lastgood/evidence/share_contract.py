"""A contract for strangers: the same promises and limits, with pseudonyms for owners, addresses and names."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from lastgood.base.errors import Problems, Refused
from lastgood.contract.load import parse_contract
from lastgood.contract.model import ASSUMED_ANNOTATION, FailureContract
from lastgood.contract.taxonomy import TAXONOMY_ID
from lastgood.evidence.pseudonyms import Pseudonyms

_FREE = frozenset(("labels", "annotations"))
"""Fields whose keys a person chooses."""
_PUBLIC = re.compile(
    rf"{re.escape(TAXONOMY_ID.partition('@')[0])}(?:@sha256:[0-9a-f]+)?|lastgood\.dev/v\d+|(?:\d+(?:\.\d+)?[a-z]{{1,3}})+"
)
"""The names of the taxonomy and of the schema, and durations."""
_HTTP = re.compile(r"https?://\S+")


def share_contract(raw: bytes, names: Pseudonyms, *, source: str) -> bytes:
    """The contract with its names replaced, as text that reads back. Comments and layout are gone.

    Raises:
        Problems: It is not a contract.
        Refused: What comes out is not one, so nothing is handed out.
    """
    contract = parse_contract(raw, source=source)
    plain = contract.model_dump(mode="json", by_alias=True, exclude_none=True)
    shared = (json.dumps(_value(plain, names), indent=2, ensure_ascii=False) + "\n").encode()
    try:
        parse_contract(shared, source=source)
    except Problems as problems:
        raise Refused(
            "the contract cannot be shared",
            where=source,
            found=str(problems).splitlines()[0],
            needs="a contract that still reads when its names are replaced",
            next="pass another one: --contract FILE",
        ) from problems
    return shared


def _value(value: Any, names: Pseudonyms, *, is_free: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            _key(key, names, is_free=is_free): _value(item, names, is_free=key in _FREE)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_value(item, names) for item in value]
    if not isinstance(value, str) or value in _constants() or _PUBLIC.fullmatch(value):
        return value
    if _HTTP.fullmatch(value):
        return f"https://{names.name(value, 'address')}.invalid"
    return names.text(value)


def _key(key: str, names: Pseudonyms, *, is_free: bool) -> str:
    is_fixed = key == ASSUMED_ANNOTATION or (not is_free and key in _fields())
    return key if is_fixed else names.text(key)


@functools.cache
def _fields() -> frozenset[str]:
    """Every name of a field in the schema of a contract."""
    return frozenset(_find(FailureContract.model_json_schema(by_alias=True), "properties"))


@functools.cache
def _constants() -> frozenset[str]:
    """Every word that the schema itself gives."""
    return frozenset(_find(FailureContract.model_json_schema(by_alias=True), "enum", "const"))


def _find(schema: Any, *under: str) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, item in schema.items():
            if key in under:
                yield from map(str, item if isinstance(item, list | dict) else [item])
            yield from _find(item, *under)
    elif isinstance(schema, list):
        for item in schema:
            yield from _find(item, *under)
