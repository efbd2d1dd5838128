"""What a script of a training framework imports: one callback each, and seals for checkpoints of one's own.

    from lastgood.training.frameworks import LightningCallback
    from lastgood.training.frameworks import HuggingFaceCallback
    from lastgood.training.frameworks import newest_that_holds, seal

Importing this module imports no framework and no torch. See docs/frameworks.md.
"""

from __future__ import annotations

import importlib

from lastgood.base.errors import BadInput

_SEALING = "lastgood.training.rank.callbacks.sealing"
_PUBLIC = {
    "LightningCallback": ("lastgood.training.rank.callbacks.lightning", "lightning"),
    "HuggingFaceCallback": ("lastgood.training.rank.callbacks.huggingface", "transformers"),
    "newest_that_holds": (_SEALING, "xxhash"),
    "seal": (_SEALING, "xxhash"),
}

__all__ = ["HuggingFaceCallback", "LightningCallback", "newest_that_holds", "seal"]  # noqa: F822 - given by __getattr__


def __getattr__(name: str) -> object:
    """Load a name together with what it needs."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lastgood.training.frameworks' has no attribute {name!r}")
    module, package = _PUBLIC[name]
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise BadInput(
            "what this name needs cannot be imported",
            where=f"lastgood.training.frameworks.{name}",
            found=str(error),
            needs=f"{package} in the environment that runs the script",
            next=f"type: pip install {package}",
        ) from error
