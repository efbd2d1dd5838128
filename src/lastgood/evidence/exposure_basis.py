"""One exposure from the records: a device that a node brings and a job uses is one device at risk.

A ledger may hold the nodes of a cluster and the jobs that ran on them. Both say how many devices were at risk, and their
sum counts each device twice. What is at risk of a hardware failure is the node, busy or idle, so its records are taken
and those of the jobs beside them are left out. Records decide over what a person types: a flag that contradicts them
is refused.

Assumes: nodes and jobs of one ledger are of one cluster. Jobs whose time no node's record touches are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lastgood.base.errors import BadInput
from lastgood.evidence.rates_records import FleetRecords
from lastgood.ledger.table import EventTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NODE_FORMATS: Final = ("slurm_nodes",)
"""Formats whose exposure is that of nodes, also where their import was given a run."""
EXPOSURE_KINDS: Final = ("exposure.join", "exposure.leave")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneExposure:
    """The records with one kind of exposure at any time."""

    table: EventTable
    left_out: int
    """Runs whose exposure is left out, because nodes say what was at risk in their time."""
    nodes: int
    """Nodes that the records name as at risk, whoever used them; 0 where only runs are recorded."""

    @property
    def words(self) -> str:
        """What was taken, for the place where the source of the exposure stands."""
        if not self.left_out:
            return ""
        runs = "1 run" if self.left_out == 1 else f"{self.left_out:,} runs"
        return f" of nodes; those of {runs} are left out, whose devices are the same"


def one_exposure(table: EventTable, *, drilled: Collection[str] = ()) -> OneExposure:
    """Leave out the exposure of runs in whose time that of nodes is recorded, and that of runs broken on purpose."""
    import numpy as np

    is_exposure = table.kind.is_one_of(EXPOSURE_KINDS)
    if drilled:
        # What was broken on purpose is at risk of nothing that counts, so its records contradict nothing either.
        dropped = is_exposure & table.run.is_one_of(tuple(drilled))
        table, is_exposure = table.take(~dropped), is_exposure[~dropped]
    is_node = is_exposure & ((table.run.codes < 0) | table.importer.is_one_of(NODE_FORMATS))
    is_run = is_exposure & ~is_node
    named = table.host.codes[is_node & table.kind.is_one_of(EXPOSURE_KINDS[:1])]
    nodes = len(np.unique(named[named >= 0]))
    if not is_node.any() or not is_run.any():
        return OneExposure(table=table, left_out=0, nodes=nodes)
    runs = _runs_beside(table, is_node, is_run)
    gone = is_run & np.isin(table.run.codes, runs)
    return OneExposure(table=table.take(~gone), left_out=len(runs), nodes=nodes)


def _runs_beside(
    table: EventTable, is_node: NDArray[np.bool_], is_run: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Runs whose exposure meets the time from the first record of a node to the last one of any node."""
    import numpy as np

    at_us, codes = table.t_us, table.run.codes
    begin_us = int(at_us[is_node].min())
    # A node that has not left is at risk up to the end of the records.
    is_join = is_node & table.kind.is_one_of(EXPOSURE_KINDS[:1])
    has_left = 2 * int(is_join.sum()) <= int(is_node.sum())
    end_us = int(at_us[is_node].max()) if has_left else int(at_us.max())
    found = np.unique(codes[is_run])
    place = np.searchsorted(found, codes[is_run])
    first, last = np.full(len(found), end_us + 1), np.full(len(found), begin_us - 1)
    np.minimum.at(first, place, at_us[is_run])
    np.maximum.at(last, place, at_us[is_run])
    return found[(first < end_us) & (last > begin_us)]


def refuse_contradiction(records: FleetRecords, one: OneExposure) -> None:
    """Refuse `--devices` or `--nodes` where the records say otherwise: nobody would see that they were set aside.

    Raises:
        BadInput: a number that is not that of the records.
    """
    question = records.question
    if question.nodes is not None and one.nodes and question.nodes != one.nodes:
        _refuse("--nodes", question.nodes, f"{one.nodes:,} node{'' if one.nodes == 1 else 's'}")
    if question.devices is not None:
        recorded = _recorded(one.table, records)
        if recorded and recorded != (question.devices, question.devices):
            lo, hi = recorded
            _refuse("--devices", question.devices, f"{lo:,} devices" if lo == hi else f"{lo:,} to {hi:,} devices")  # fmt: skip


def _refuse(flag: str, typed: int, recorded: str) -> None:
    raise BadInput(
        "the records say themselves what was at risk",
        where=flag,
        found=f"{flag} {typed}, and join and leave records of {recorded}",
        needs=f"no {flag}: it is for a ledger that does not say",
        next=f"leave out {flag}; when the records are wrong, import them again",
    )


def _recorded(table: EventTable, records: FleetRecords) -> tuple[int, int] | None:
    """Least and most devices at risk inside the window, from the records; None where they say nothing of it."""
    import numpy as np

    from lastgood.ledger.columns import exposure_steps

    steps, _ = exposure_steps(table, as_of_us=records.end_us)
    if not len(steps.t_us):
        return None
    before = np.flatnonzero(steps.t_us <= records.begin_us)
    first = [int(steps.devices[before[-1]])] if len(before) else [0]
    inside = (steps.t_us > records.begin_us) & (steps.t_us < records.end_us)
    seen = [*first, *steps.devices[inside].tolist()]
    return (min(seen), max(seen)) if any(seen) else None


def with_source(records: FleetRecords, one: OneExposure) -> FleetRecords:
    """The records with what was taken said where the source of the exposure stands, in every form of output."""
    exposure = records.exposure
    if not one.words or exposure is None or exposure.is_assumed:
        return records
    said = f"{exposure.source}{one.words}"
    return replace(
        records,
        exposure=replace(exposure, source=said),
        clock=replace(records.clock, source=said),
    )
