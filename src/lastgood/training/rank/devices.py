"""Whether a rank holds a device, which whoever takes its place cannot have before the kernel has closed it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_PLAIN_MAJORS = frozenset({1, 4, 5, *range(136, 144)})
"""Character devices that everybody may open at once: memory (null, zero, random) and terminals."""


def holds_device() -> bool:
    """True when this process has opened a character device that is neither a terminal nor like /dev/null."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) not in _PLAIN_MAJORS:
                return True
    return False
