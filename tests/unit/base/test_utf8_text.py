"""What a person reads of a name that is bytes."""

import pytest

from lastgood.base.utf8_text import utf8_text


@pytest.mark.parametrize("text", ["", "job.py", "задание.py", "😀", "a\\udcff in words"])
def test_what_utf8_can_hold_stays_as_it_is(text):
    assert utf8_text(text) == text


@pytest.mark.parametrize(
    ("name", "encoding", "readable"),
    [
        (b"\xff\xfe.db", "utf-8", "\\xff\\xfe.db"),
        ("ж/\u00e9.py".encode() + b"\xe9", "utf-8", "ж/\u00e9.py\\xe9"),
        ("задание.py".encode(), "ascii", "задание.py"),
        (b"a\xd0/" + "ж".encode(), "ascii", "a\\xd0/ж"),
    ],
)
def test_bytes_that_a_locale_could_not_read_are_read_as_utf8_or_spelled(name, encoding, readable):
    assert utf8_text(name.decode(encoding, "surrogateescape")) == readable


def test_half_of_a_pair_is_spelled():
    assert utf8_text("a\ud83db") == "a\\ud83db"
