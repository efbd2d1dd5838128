"""Lastgood keeps a training run producing accepted work while parts of it fail, and proves it from records.

In a training script:

    import lastgood

    run = lastgood.start(model=model, optimizer=opt, loader=make_loader)
    for batch in run.batches():
        with run.step() as step:
            step.loss = train_step(run.model, batch)

Public names are loaded when they are first used, so that `import lastgood` costs nothing and
`lastgood --help` loads neither numpy nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a type checker sees; the same names as in the table below
    from lastgood.base.errors import LastgoodError, Problems
    from lastgood.base.figures import Figure, FigureKind, render
    from lastgood.contract.load import default_contract, load_contract
    from lastgood.contract.model import FailureContract
    from lastgood.ledger.event import Event
    from lastgood.ledger.incident import fold_incidents
    from lastgood.ledger.store import open_store
    from lastgood.ledger.verify import verify_ledger
    from lastgood.training.rank.attach import attach
    from lastgood.training.rank.run import Run, start
    from lastgood.training.report.opening import open  # noqa: A004 - read as `lastgood.open`

__version__ = "0.1.0"

_PUBLIC = {
    # in a training script (needs the extra "torch")
    "start": "lastgood.training.rank.run:start",
    "Run": "lastgood.training.rank.run:Run",
    "attach": "lastgood.training.rank.attach:attach",
    # what counts as failure
    "load_contract": "lastgood.contract.load:load_contract",
    "default_contract": "lastgood.contract.load:default_contract",
    "FailureContract": "lastgood.contract.model:FailureContract",
    # what happened
    "open": "lastgood.training.report.opening:open",
    "Event": "lastgood.ledger.event:Event",
    "open_store": "lastgood.ledger.store:open_store",
    "verify_ledger": "lastgood.ledger.verify:verify_ledger",
    "fold_incidents": "lastgood.ledger.incident:fold_incidents",
    # numbers with their provenance
    "Figure": "lastgood.base.figures:Figure",
    "FigureKind": "lastgood.base.figures:FigureKind",
    "render": "lastgood.base.figures:render",
    # errors
    "LastgoodError": "lastgood.base.errors:LastgoodError",
    "Problems": "lastgood.base.errors:Problems",
}

__all__ = [
    "Event",
    "FailureContract",
    "Figure",
    "FigureKind",
    "LastgoodError",
    "Problems",
    "Run",
    "__version__",
    "attach",
    "default_contract",
    "fold_incidents",
    "load_contract",
    "open",
    "open_store",
    "render",
    "start",
    "verify_ledger",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    try:
        module, attribute = _PUBLIC[name].split(":")
    except KeyError:
        raise AttributeError(f"module 'lastgood' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
