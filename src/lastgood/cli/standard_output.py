"""A standard output that takes every character, whatever its encoding: no report ends because of a sign in it.

What an encoding does not have is spelled as JSON spells it, so that `--json` stays JSON. The name of a file goes out as
its bytes where they are UTF-8. ASCII is what Python takes where nothing is configured; there UTF-8 is written, as click
does for its part of the output.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import sys

_HANDLER = "lastgood.spelled"


def prepare_standard_output() -> None:
    """Let nothing that is printed fail for its characters; who chose how errors are treated keeps the choice."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.errors not in {"strict", "surrogateescape"}:  # fmt: skip
        return
    codecs.register_error(_HANDLER, _spelled)
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding="utf-8" if is_ascii else None, errors=_HANDLER)


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    if all("\udc80" <= character <= "\udcff" for character in text):
        name = text.encode("utf-8", "surrogateescape")  # bytes that the locale could not decode
        with contextlib.suppress(UnicodeDecodeError):
            name.decode()
            return name, error.end
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end
