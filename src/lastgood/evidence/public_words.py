"""Words that give nobody away: those that stand in lastgood's own source and tables.

A list of words to hide is never complete, so a shared text keeps only what is known to be public: a word that anybody
can read in the published program. They are read from the installed source, so the list cannot fall behind it.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from lastgood.contract.taxonomy import AXES

PACKAGES = ("contract", "ledger", "signals", "recovery", "training")
"""Whose texts can stand in a ledger: those that write events, and the importers."""
WORD = re.compile(r"[A-Za-z]+(?:[_.\-][A-Za-z]+)*")
WORD_CHARS_MAX = 40


@dataclass(frozen=True, slots=True)
class PublicWords:
    """What may stand in a shared text, in lower case; and the names that a key of a body may have."""

    words: frozenset[str]
    keys: frozenset[str]


@functools.cache
def public_words() -> PublicWords:
    """The words and the names of fields in the source of the packages that write events, and in their tables."""
    words: set[str] = {str(word) for axis in AXES.values() for word in axis}
    keys: set[str] = set()
    for package in PACKAGES:
        for file in _walk(files("lastgood") / package):
            text = file.read_text(encoding="utf-8")
            if file.name.endswith(".py"):
                _read_source(text, words, keys)
            elif file.name.endswith(".yaml"):
                words.update(_words_of(text))
            else:
                keys.add(file.name.removesuffix(".json"))  # events name their table
                _read_table(json.loads(text), words, keys)
    return PublicWords(frozenset(word.lower() for word in words), frozenset(keys | words))


def _walk(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _walk(entry)
        elif entry.name.endswith((".py", ".json", ".yaml")):
            yield entry


def _read_source(text: str, words: set[str], keys: set[str]) -> None:
    tree = ast.parse(text)
    prose = {id(doc) for node in ast.walk(tree) for doc in _docstrings(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if id(node) not in prose:
                words.update(_words_of(value))
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                keys.add(name)
            case ast.keyword(arg=str(name)):
                keys.add(name)


def _docstrings(node: ast.AST) -> Iterator[ast.Constant]:
    """Texts that stand as a statement: they explain, with examples of names, and no program writes them."""
    for child in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            yield child.value


def _read_table(value: object, words: set[str], keys: set[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            keys.add(key)
            words.update(_words_of(key))
            _read_table(item, words, keys)
    elif isinstance(value, list):
        for item in value:
            _read_table(item, words, keys)
    elif isinstance(value, str):
        words.update(_words_of(value))


def _words_of(text: str) -> Iterator[str]:
    for word in WORD.findall(text):
        if len(word) <= WORD_CHARS_MAX:
            yield word
            yield from re.split(r"[.\-]", word)
