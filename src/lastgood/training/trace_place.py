"""What of a Python trace a report needs: where in the user's own code it ends, and the words that it ends with."""

from __future__ import annotations

import re
from pathlib import PurePath

_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_TRACE = re.compile(r"^.*\bTraceback \(most recent call last\):$", re.MULTILINE)
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


def deciding_words(error: BaseException) -> str:
    """Return what an error says, without the trace that its message may carry, such as that of a loader's process.

    The last words of such a trace are what was raised; everything before them stands in the trace of the error itself.
    """
    message = str(error)
    *_, last = (None, *_TRACE.finditer(message))
    if last is None:
        return message
    lines = message[last.end() :].splitlines()
    at = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
    if at is None:
        return message
    told = "\n".join(lines[at:]).strip()
    return re.sub(rf"^(\w+\.)*{re.escape(type(error).__name__)}: ", "", told)
