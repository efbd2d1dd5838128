"""Does the run that a record names exist, and has it the step: a typo would leave the wrong steps standing as accepted."""

from __future__ import annotations

import os
from pathlib import Path

from lastgood.base.errors import BadInput
from lastgood.contract.taxonomy import EventKind
from lastgood.ledger.appendable import WHOLE_ROWS_MAX
from lastgood.ledger.store import Store, read_store


def check_run(path: Path, run: str, *, divergent_step: int | None) -> str | None:
    """A line about a run that is not in the ledger yet, which a prolog may well name before it starts.

    Raises:
        BadInput: a step is declared wrong of a run that the ledger does not hold, or one that the run never made.
    """
    if os.path.isfile(path) and os.path.getsize(path):
        with read_store(path) as store:
            return _check(store, run, divergent_step)
    if divergent_step is None:
        return None
    raise BadInput(
        "no such run in the ledger",
        where=f"--run of {path}",
        found=run,
        needs="a ledger that holds the run",
    )


def _check(store: Store, run: str, divergent_step: int | None) -> str | None:
    own = list(store.events(run=run)) if divergent_step is not None else ()
    is_there = any(e.kind == EventKind.RUN_START for e in own or store.events(run=run))
    if divergent_step is None:
        return None if is_there else f"note: the ledger holds no run {run} yet{_near(store, run)}"
    if not is_there:
        from lastgood.evidence.assemble import no_such_run, run_names

        error = no_such_run(run, run_names(store), where=f"--run of {store.path}")
        error.next = f"record into the ledger that holds the run, or import it first{_near(store, run)}"  # fmt: skip
        raise error
    is_over = any(e.kind == EventKind.RUN_END for e in own)
    bounds = [
        (first, e.body["last"] if isinstance(e.body.get("last"), int) else first)
        for e in own
        if e.kind == EventKind.STEP and isinstance(first := e.body.get("first"), int)
    ]
    if not bounds:
        return f"note: no step of run {run} is on record, so none of them becomes lost"
    lowest, highest = min(b[0] for b in bounds), max(b[1] for b in bounds)
    if lowest <= divergent_step <= highest:
        return None
    if divergent_step > highest and not is_over:
        return f"note: the newest step of run {run} on record is {highest:,}"
    raise BadInput(
        "the run has no such step",
        where="--first-divergent-step",
        found=f"{divergent_step:,}",
        needs=f"a step of run {run}, {lowest:,} to {highest:,}",
    )


def _near(store: Store, run: str) -> str:
    """Names that are nearly the one given."""
    import difflib

    if store.size > WHOLE_ROWS_MAX:
        return ""  # a prolog has no time to read them all
    names = list(dict.fromkeys(e.run for e in store.events(kinds=[EventKind.RUN_START]) if e.run))
    near = difflib.get_close_matches(run, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
