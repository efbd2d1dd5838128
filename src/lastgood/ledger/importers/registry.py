"""Which formats there are, and which of them a file looks like. A format is imported when it is needed.

A new format is one module with one instance `IMPORTER`, and one line here.
"""

from __future__ import annotations

import functools
import importlib
from typing import NamedTuple

from lastgood.base.errors import BadInput
from lastgood.ledger.importers.importer import Head, Importer

_PACKAGE = "lastgood.ledger.importers"

FORMATS: dict[str, str] = {
    "kernel": f"{_PACKAGE}.kernel:IMPORTER",
    "stepfun": f"{_PACKAGE}.stepfun:IMPORTER",
    "goodput": f"{_PACKAGE}.goodput:IMPORTER",
    "mlperf": f"{_PACKAGE}.mlperf:IMPORTER",
    "slurm_jobs": f"{_PACKAGE}.slurm_jobs:IMPORTER",
    "slurm_nodes": f"{_PACKAGE}.slurm_nodes:IMPORTER",
    "elastic": f"{_PACKAGE}.elastic:IMPORTER",
    "nccl_flight": f"{_PACKAGE}.nccl_flight:IMPORTER",
    "alertmanager": f"{_PACKAGE}.alertmanager:IMPORTER",
    "dcgm": f"{_PACKAGE}.dcgm:IMPORTER",
    "kubernetes": f"{_PACKAGE}.kubernetes:IMPORTER",
    "otlp": f"{_PACKAGE}.otlp:IMPORTER",
    "table": f"{_PACKAGE}.table:IMPORTER",
    "handkept": f"{_PACKAGE}.handkept:IMPORTER",
    "spool": f"{_PACKAGE}.spool:IMPORTER",
}
"""Name -> `module:IMPORTER`. Of two formats that are equally sure of a file, the earlier one is taken."""

SCORE_MIN = 20
"""Below this a file is not recognised: a guess must be better than no format at all."""


class Match(NamedTuple):
    """How sure a format is of a file, 0 to 100."""

    name: str
    score: int


@functools.cache
def importer(name: str) -> Importer:
    """The format of this name.

    Raises:
        BadInput: There is none.
    """
    target = FORMATS.get(name)
    if target is None:
        import difflib

        near = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0.5)
        raise BadInput(
            "no such format",
            where="FORMAT",
            found=repr(name),
            needs=" | ".join(FORMATS),
            next=f"write {near[0]}" if near else None,
        )
    module, attribute = target.split(":")
    return getattr(importlib.import_module(module), attribute)


def detect(head: Head) -> list[Match]:
    """The formats that the file may be, the surest first; those that are sure it is not are left out."""
    matches = [Match(name, importer(name).recognises(head)) for name in FORMATS]
    return sorted((m for m in matches if m.score > 0), key=lambda m: -m.score)
