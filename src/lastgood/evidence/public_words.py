"""Words that give nobody away: those that stand in lastgood's own source and tables, and in every traceback.

A list of words to hide is never complete, so a shared text keeps only what is known to be public: a word that anybody
can read in the published program. They are read from the installed source, so the list cannot fall behind it.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from lastgood.contract.taxonomy import AXES

PYTHON_TEXTS = (
    "Traceback (most recent call last):",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
    "Previous line repeated more times",
)
"""What every traceback is made of, by Python itself."""
PACKAGES = ("contract", "ledger", "signals", "recovery", "training")
"""Whose texts can stand in a ledger: those that write events, and the importers."""
WORD = re.compile(r"[A-Za-z]+(?:[_.\-][A-Za-z]+)*")
WORD_CHARS_MAX = 40


class PublicWords:
    """What may stand in a shared text, and the names that a key of a body may have.

    Parsing every source takes two seconds, so one is parsed when a word that stands somewhere in its text is asked for,
    and small ones first. The answer is the same as if all had been.
    """

    def __init__(self) -> None:
        """Read the tables; of the sources only the text."""
        self._words: set[str] = set()
        """In lower case."""
        self._keys: set[str] = set()
        self._unread: list[tuple[str, str]] = []
        """Sources that were not parsed yet: the text, and the same in lower case."""
        self._refused: set[str] = set()
        words = {str(word) for axis in AXES.values() for word in axis}
        for said in PYTHON_TEXTS:
            words.update(_words_of(said))
        keys: set[str] = set()
        for package in PACKAGES:
            for file in _walk(files("lastgood") / package):
                text = file.read_text(encoding="utf-8")
                if file.name.endswith(".py"):
                    self._unread.append((text, text.lower()))
                elif file.name.endswith(".yaml"):
                    words.update(_words_of(text))
                else:
                    keys.add(file.name.removesuffix(".json"))  # events name their table
                    _read_table(json.loads(text), words, keys)
        self._unread.sort(key=lambda texts: len(texts[0]))
        self._add(words, keys)

    def has_word(self, word: str) -> bool:
        """True for a word, in whatever case, of a text that lastgood itself writes, or of its tables."""
        return self._has(word.lower(), self._words)

    def has_key(self, key: str) -> bool:
        """True for such a word in just this spelling, and for a name in the source."""
        return self._has(key, self._keys)

    def _has(self, word: str, known: set[str]) -> bool:
        if word in known:
            return True
        if word in self._refused:
            return False
        low = word.lower()
        for number, (text, lowered) in enumerate(self._unread):
            if low not in lowered:
                continue
            words: set[str] = set()
            keys: set[str] = set()
            _read_source(text, words, keys)
            self._add(words, keys)
            self._unread[number] = ("", "")
            if word in known:
                return True
        self._unread = [texts for texts in self._unread if texts[0]]
        self._refused.add(word)
        return False

    def _add(self, words: set[str], keys: set[str]) -> None:
        self._words.update(word.lower() for word in words)
        self._keys |= keys | words


@functools.cache
def public_words() -> PublicWords:
    """The words and the names of fields in the source of the packages that write events, and in their tables."""
    return PublicWords()


def _walk(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _walk(entry)
        elif entry.name.endswith((".py", ".json", ".yaml")):
            yield entry


def _read_source(text: str, words: set[str], keys: set[str]) -> None:
    """Texts that stand as a statement are left out: they explain, with examples of names, and no program writes them."""
    nodes: list[ast.AST] = [ast.parse(text)]
    for node in nodes:  # which grows meanwhile
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                words.update(_words_of(node.value))
        elif isinstance(node, ast.Name):
            keys.add(node.id)
        elif not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            if isinstance(node, ast.Attribute):
                keys.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword) and node.arg is not None:
                keys.add(node.arg)
            nodes.extend(ast.iter_child_nodes(node))


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
