"""A contract file in; a contract, or every problem with its line, out.

`load_contract` is the only door for what a person wrote. `default_contract` is what applies when nobody
wrote anything: the recovery table of the starter, no objectives, every value assumed.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lastgood.contract.crosscheck import find_conflicts
from lastgood.contract.model import ASSUMED_ANNOTATION, FailureContract, contract_digest
from lastgood.contract.recovery_table import LAYERS, Duties, Layer, missing_duties
from lastgood.contract.starter import starter_value
from lastgood.contract.values import WRONG_VALUE, nearest
from lastgood.contract.yaml_reader import (
    Document,
    KeyPath,
    parse_document,
    read_document,
    scalar_value,
)

_EXPLAINED_COUNT_MAX = 200
"""Errors that are put into words; beyond that the file is no contract and more words help nobody."""
_ROUND_COUNT_MAX = 4
"""Looks at one file: each finds what the misspelt words of the one before had hidden."""

__all__ = ["contract_digest", "default_contract", "load_contract", "parse_contract"]


def load_contract(path: str | Path, *, needs_duties: bool = False) -> FailureContract:
    """Read a contract file. Raises `Problems` with every problem of the file at once.

    With `needs_duties` a missing evidence duty is a problem too, as in `lastgood contract check`; a run and
    a report leave it off, because they never stop for it.
    """
    return _contract_of(read_document(Path(path)), needs_duties=needs_duties)


def parse_contract(
    text: str | bytes, *, source: str = "contract", needs_duties: bool = False
) -> FailureContract:
    """Read a contract from text; `source` stands in the problems where a file name would."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return _contract_of(parse_document(raw, source=source), needs_duties=needs_duties)


def default_contract(kind: Layer = "training") -> FailureContract:
    """The contract that applies when nobody declared one: every value in it is assumed.

    It has no objectives and no budgets, so reports read *not declared*, and no duties, so they read *missing*.
    """
    value = starter_value(kind)
    value["metadata"] = {"name": "assumed", "annotations": {ASSUMED_ANNOTATION: "assumed"}}
    for key in ("objectives", "budgets", "duties", "description"):
        value["spec"].pop(key, None)
    return FailureContract.model_validate_json(json.dumps(value), by_name=False)


def _contract_of(document: Document, *, needs_duties: bool) -> FailureContract:
    if document.problems and document.value is None:
        document.raise_problems()
    if not isinstance(document.value, dict):
        document.add(
            (),
            found=found_text(document.value),
            needs="a mapping with apiVersion, kind, metadata and spec",
            write="apiVersion: lastgood.dev/v1",
        )
        document.raise_problems()
    contract = _validate(document)
    for conflict in find_conflicts(document.value):
        document.add(
            conflict.path, found=conflict.found, needs=conflict.needs, write=conflict.write
        )
    if needs_duties:
        _add_missing_duties(document)
    document.raise_problems()
    assert contract is not None, "a document without problems is a contract"
    return contract


def _validate(document: Document) -> FailureContract | None:
    """Validate until nothing new comes up: below a misspelt key or kind lie values that are wrong too."""
    for _ in range(_ROUND_COUNT_MAX):
        try:
            return FailureContract.model_validate_json(json.dumps(document.value), by_name=False)
        except ValidationError as error:
            is_mended = _add_errors(error.errors(include_url=False), document)
        if not is_mended:
            break
    return None


def _add_missing_duties(document: Document) -> None:
    """Name the duties that are owed, even when other parts of the file are wrong."""
    spec = document.value.get("spec") if isinstance(document.value, dict) else None
    if not isinstance(spec, dict):
        return
    workload = spec.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    try:
        duties = Duties.model_validate_json(json.dumps(spec.get("duties", {})), by_name=False)
    except ValidationError:
        return  # already reported by the model
    # A misspelt kind has been reported; its duties are owed all the same.
    meant = nearest(kind, LAYERS) if isinstance(kind, str) else ""
    for layer in LAYERS:
        for missing in missing_duties(duties, layer) if layer == meant else ():
            path = tuple(missing.path.split("."))
            document.add(path, found="nothing", needs=missing.needs, write=missing.write)


class _Place(NamedTuple):
    """Where an error stands: the key path without pydantic's own marks, and the schema of that place."""

    path: KeyPath
    schema: dict[str, Any]
    parent: dict[str, Any]


def _add_errors(errors: list[ErrorDetails], document: Document) -> bool:
    """Put the errors into words; True when a misspelt word was mended, so that another look is worth it."""
    is_mended = False
    expected: set[KeyPath] = set()
    places = [_place(error["loc"], document.value) for error in errors[:_EXPLAINED_COUNT_MAX]]
    for error, place in zip(errors, places, strict=False):
        if error["type"] == "extra_forbidden":
            expected.add(_add_unknown_key(place, document))
            is_mended = True
    for error, place in zip(errors, places, strict=False):
        # A misspelt key has already said what is meant to stand there.
        if error["type"] == "extra_forbidden" or (
            error["type"] == "missing" and place.path in expected
        ):
            continue
        if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
            is_mended = _add_wrong_tag(error, place, document) or is_mended
            continue
        needs, write = _needs(error, place)
        found = "nothing" if error["type"] == "missing" else found_text(error["input"])
        document.add(place.path, found=found, needs=needs, write=write)
    if len(errors) > _EXPLAINED_COUNT_MAX:
        document.add((), found=f"{len(errors)} wrong values", needs="a failure contract")
        return False
    return is_mended


def _add_unknown_key(place: _Place, document: Document) -> KeyPath:
    """Report the key, and put its value under the key that was meant (or drop it)."""
    key = str(place.path[-1])
    known = place.parent.get("properties", {})
    guess = nearest(key, known)
    document.add(
        place.path, found=f"the unknown key {key}", needs="one of " + ", ".join(known), write=guess
    )
    document.move_key(place.path, guess)
    return (*place.path[:-1], guess)


def _add_wrong_tag(error: ErrorDetails, place: _Place, document: Document) -> bool:
    """Report a kind or indicator that is none; put the one that was meant in its place."""
    discriminator = place.schema.get("discriminator", {})
    words = list(discriminator.get("mapping", {}))
    key = str(discriminator.get("propertyName", "kind"))
    entry = error["input"] if isinstance(error["input"], dict) else {}
    given = entry.get(key)
    guess = nearest(given, words) if isinstance(given, str) else ""
    path = (*place.path, key)
    document.add(path, found=found_text(given), needs="one of " + ", ".join(words), write=guess)
    return bool(guess) and document.replace(path, guess)


def _needs(error: ErrorDetails, place: _Place) -> tuple[str, str]:
    """What the place needs, and what to write, in words."""
    kind, context, schema = error["type"], error.get("ctx", {}), place.schema
    example = str(next(iter(schema.get("examples", ())), ""))
    key = str(place.path[-1]) if place.path else ""
    if kind == WRONG_VALUE:
        return str(context.get("needs")), str(context.get("write", ""))
    if kind == "missing":
        return schema.get("description", f"the key {key}"), f"{key}: {example}" if example else ""
    if kind in ("enum", "literal_error"):
        words = [
            str(word) for word in schema.get("enum", [schema["const"]] if "const" in schema else [])
        ]
        guess = nearest(str(error["input"]), words) or (words[0] if len(words) == 1 else "")
        return "one of " + ", ".join(words) if len(words) > 1 else "".join(words), guess
    return _needs_shape(kind, context, schema), _write_shape(error, example)


_SHAPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "text that is not empty",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "finite_number": "a finite number",
}


def _write_shape(error: ErrorDetails, example: str) -> str:
    """What was most likely meant: the number inside the quotes, the bound that was passed, else an example."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind.startswith("int_") and not isinstance(given, bool):
        number = scalar_value(given) if isinstance(given, str) else given
        if isinstance(number, int | float) and number == int(number):
            return str(int(number))
    if kind in ("greater_than_equal", "less_than_equal"):
        return str(context.get("ge", context.get("le", example)))
    return example


def _needs_shape(kind: str, context: dict[str, Any], schema: dict[str, Any]) -> str:
    if kind in _SHAPES:
        return _SHAPES[kind]
    bounds = {
        "greater_than": ("more than", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("less than", "lt"),
        "less_than_equal": ("at most", "le"),
    }
    if kind in bounds:
        word, key = bounds[kind]
        return f"{word} {context.get(key)}"
    if kind == "too_short":
        return f"a list with at least {context.get('min_length', 1)} entry"
    if kind == "string_too_long":
        return f"text of at most {context.get('max_length')} characters"
    return schema.get("description", "another value")


def found_text(value: object) -> str:
    """A value as the message shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value == "":
        return "empty text"
    if isinstance(value, str) and scalar_value(value) != value:
        return f'the text "{value}"'
    return str(value)


@functools.cache
def contract_schema() -> dict[str, Any]:
    """The JSON Schema of a contract file, with a description for every key."""
    schema = FailureContract.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://lastgood.dev/v1/contract.json",
    } | schema


def _resolve(schema: dict[str, Any], tag: object = None) -> dict[str, Any]:
    """Follow references and choices until a node with a shape; keep the words of the outer node."""
    outer = {key: schema[key] for key in ("description", "examples") if key in schema}
    for _ in range(8):
        mapping = schema.get("discriminator", {}).get("mapping", {})
        if "$ref" in schema:
            schema = contract_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        elif tag in mapping:
            schema = {"$ref": mapping[tag]}
        elif "anyOf" in schema:
            schema = schema["anyOf"][0]
        else:
            break
    return schema | outer


def _place(loc: tuple[str | int, ...], value: object) -> _Place:
    """Drop the marks of unions from a location and find the schema of what is left."""
    path: list[str | int] = []
    schema = parent = _resolve(contract_schema())
    for index, part in enumerate(loc):
        is_last = index == len(loc) - 1
        inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if not inside and part in schema.get("discriminator", {}).get("mapping", {}):
            schema = _resolve(schema, part)
            continue
        if not inside and not is_last:
            continue
        parent = schema
        path.append(part)
        value = value[part] if inside else None  # type: ignore[index]
        below = (
            schema.get("items", {})
            if isinstance(part, int)
            else schema.get("properties", {}).get(part, {})
        )
        schema = _resolve(below)
    return _Place(tuple(path), schema, parent)
