"""Which words may stand in a shared text: sources are parsed when they are asked for, and the answer is that of all."""

from __future__ import annotations

import random
import traceback
from importlib.resources import files

from lastgood.evidence import public_words as module
from lastgood.evidence.public_words import PublicWords, public_words


def every_word_and_name():
    """All that the sources say, parsed one by one."""
    words, keys = set(), set()
    for package in module.PACKAGES:
        for file in module._walk(files("lastgood") / package):
            if file.name.endswith(".py"):
                module._read_source(file.read_text(encoding="utf-8"), words, keys)
    return words, keys


def test_a_word_is_public_exactly_if_some_source_writes_it():
    words, keys = every_word_and_name()
    prose = set()
    for file in module._walk(files("lastgood") / "training"):
        prose.update(module.WORD.findall(file.read_text(encoding="utf-8")))
    found = PublicWords()
    low = {word.lower() for word in words}
    asked = random.Random(1).sample(sorted(prose | words | keys), 400)
    tables = PublicWords()
    tables._unread = []
    for word in asked:
        assert found.has_word(word) == (word.lower() in low or tables.has_word(word)), word
        assert found.has_key(word) == (word in keys | words or tables.has_key(word)), word


def test_few_sources_are_parsed_for_few_words(monkeypatch):
    parsed = []
    real = module._read_source
    monkeypatch.setattr(module, "_read_source", lambda *a: (parsed.append(a[0]), real(*a))[1])
    found = PublicWords()
    sources = len(found._unread)
    for name in ("zz-0917", "qalice", "/home/qalice", "10.0.0.199", "run-2026-zz", "xyzzy"):
        assert not found.has_word(name)
        assert not found.has_key(name)
    assert parsed == []
    assert found.has_word("heartbeat") == found.has_word("HEARTBEAT")
    assert len(parsed) < sources / 4


def test_the_words_are_read_once_in_a_process():
    assert public_words() is public_words()


def test_the_words_of_python_in_a_traceback_stay_and_the_names_in_it_do_not():
    try:
        try:
            raise ValueError("of qalice")
        except ValueError as error:
            raise RuntimeError from error
    except RuntimeError as error:
        text = "".join(traceback.format_exception(error))
    headers = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert sum(line.startswith("Traceback") for line in headers) == 2
    said = {w for line in headers for w in module.WORD.findall(line) if ":" not in w} - {"qalice"}
    assert [word for word in sorted(said) if not public_words().has_word(word)] == []
    assert not public_words().has_word("qalice")
