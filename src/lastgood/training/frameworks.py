"""What a script of a training framework imports: one callback each, loaded when it is asked for.

from lastgood.training.frameworks import LightningCallback
from lastgood.training.frameworks import HuggingFaceCallback

Importing this module imports no framework and no torch. See docs/frameworks.md.
"""

from __future__ import annotations

import importlib

from lastgood.base.errors import BadInput

_CALLBACKS = {
    "LightningCallback": ("lastgood.training.rank.callbacks.lightning", "lightning"),
    "HuggingFaceCallback": ("lastgood.training.rank.callbacks.huggingface", "transformers"),
}

__all__ = ["HuggingFaceCallback", "LightningCallback"]  # noqa: F822 - given by __getattr__


def __getattr__(name: str) -> object:
    """Load a callback together with its framework."""
    if name not in _CALLBACKS:
        raise AttributeError(f"module 'lastgood.training.frameworks' has no attribute {name!r}")
    module, package = _CALLBACKS[name]
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise BadInput(
            "the framework of this callback cannot be imported",
            where=f"lastgood.training.frameworks.{name}",
            found=str(error),
            needs=f"{package} in the environment that runs the script",
            next=f"type: pip install {package}",
        ) from error
