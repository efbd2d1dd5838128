"""Names of files and words of other programs as text that UTF-8 can hold.

A name on Linux is bytes. Python decodes it in the encoding of the locale and carries each byte that does not fit as a
lone surrogate, which no JSON, no page and no ledger has a place for.
"""

from __future__ import annotations

import re

_CARRIED_BYTES = re.compile("[\udc80-\udcff]+")


def utf8_text(text: str) -> str:
    r"""Return the text with its carried bytes read as UTF-8, and those that are none spelled out, such as `\xff`."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        read = _CARRIED_BYTES.sub(_as_utf8, text)
        return read.encode("utf-8", "backslashreplace").decode()
    return text


def _as_utf8(carried: re.Match[str]) -> str:
    return carried.group().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
