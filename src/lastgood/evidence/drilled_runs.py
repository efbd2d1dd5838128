"""Which runs were broken on purpose: what happened in them is no failure of the field, and their time no exposure."""

from __future__ import annotations

from pathlib import Path

from lastgood.ledger.table import EventTable

DRILL_MODES = ("demo", "drill")
"""What a run's start says when its faults are caused on purpose."""


def drilled_runs(table: EventTable, ledger: Path | None) -> tuple[str, ...]:
    """Runs whose faults were caused on purpose: one of their records says so, or the run was started as a drill.

    How a run was started stands in the events of a ledger; the table of an export (`ledger` is None) has it itself.
    """
    import numpy as np

    marked = np.unique(table.run.codes[(table.injected == 1) & (table.run.codes >= 0)])
    found = {table.run.names[code] for code in marked.tolist()}
    found |= {run for run, mode in table.run_modes if mode in DRILL_MODES}
    if ledger is not None:
        from lastgood.ledger.store import read_store

        with read_store(ledger) as store:
            for event in store.events(kinds=("run.start",)):
                if event.run and event.body.get("mode") in DRILL_MODES:
                    found.add(event.run)
    return tuple(sorted(found))
