"""Where the parameters of a worker lie in its memory, written for whoever injects a memory fault on purpose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import torch


def write_addresses(path: Path, model: torch.nn.Module) -> None:
    """Write name, address, size and type of each parameter. Not used by recovery."""
    parameters = [
        {
            "name": name,
            "address": parameter.data_ptr(),
            "bytes": parameter.numel() * parameter.element_size(),
            "dtype": str(parameter.dtype).removeprefix("torch."),
        }
        for name, parameter in model.named_parameters()
    ]
    path.write_text(json.dumps({"parameters": parameters}))
