"""Which frame of a stack is the job's own code: what no library and no part of Python is."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

_LIBRARIES: Final = frozenset(
    (
        "accelerate", "datasets", "deepspeed", "fsspec", "lastgood", "lightning", "lightning_fabric", "numpy", "pandas",
        "PIL", "pyarrow", "pytorch_lightning", "scipy", "torch", "torchdata", "torchvision", "tqdm", "transformers",
        "triton", "webdataset",
    )
)  # fmt: skip
"""Packages whose frames say how a process waits, not where the job was; dumps have paths from a package on."""
_PLACE: Final = re.compile(r"\(([^()]+):\d+\)$")
_OUTSIDE: Final = ("site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>")


def own_frame(stack: Sequence[str]) -> str | None:
    """The innermost frame that is no library's: where the job's own code was."""
    return next((frame for frame in stack if not _is_library(frame)), None)


def _is_library(frame: str) -> bool:
    """True for a frame of Python's own library or of a known package: `weakref.py` as much as `torch/nn/...`."""
    found = _PLACE.search(frame)
    if found is None:  # words in place of frames
        return True
    file = found[1]
    if any(mark in file for mark in _OUTSIDE):
        return True
    first = file.partition("/")[0].removesuffix(".py")
    return first in _LIBRARIES or first in sys.stdlib_module_names
