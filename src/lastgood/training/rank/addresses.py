"""Where the parameters of a worker lie in its memory, written for whoever injects a memory fault on purpose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lastgood.training.rank.shards import local_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch


def write_addresses(path: Path, model: torch.nn.Module) -> None:
    """Write name, address, size and type of each parameter. Not used by recovery."""
    parameters = [
        {
            "name": name,
            "address": local.data_ptr(),
            "bytes": local.numel() * local.element_size(),
            "dtype": str(local.dtype).removeprefix("torch."),
        }
        for name, parameter in model.named_parameters()
        for local in (local_of(parameter.detach()),)
    ]
    path.write_text(json.dumps({"parameters": parameters}))
