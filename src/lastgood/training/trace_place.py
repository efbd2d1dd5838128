"""Where in the user's own code a Python trace ends: one line for a report instead of thirty."""

from __future__ import annotations

import re
from pathlib import PurePath

_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_NOT_OWN = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/src/lastgood/",
    "<frozen ",
    "<string>",
)


def innermost_place(trace: str) -> str:
    """Return the last frame of the user's own code as `train.py:31 in fetch`, or "" when there is none.

    A trace whose every frame lies in a library names the library's last frame: better than nothing to look at.
    """
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if not any(part in frame[0] for part in _NOT_OWN)]
    for file, line, function in (own or frames)[-1:]:
        return f"{PurePath(file).name}:{line} in {function}"
    return ""
