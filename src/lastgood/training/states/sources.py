"""The states that a start may go on from, in the order in which they are tried.

The newest first, and of one step the snapshot in shared memory before the checkpoint. A snapshot counts when every rank
published it and the supervisor before had assessed it as ok; what lies behind that was never part of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lastgood.base.errors import Refused
from lastgood.recovery.messages import Tier, VerifyMode
from lastgood.training import control
from lastgood.training.states.catalogue import read_headers, slot_candidates
from lastgood.training.states.checkpoints import find_torn, list_checkpoints, worlds_of

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.training.rundir import RunDir
    from lastgood.training.states.checkpoints import Torn


class Source(NamedTuple):
    """One state that may be restored at a start."""

    plan: control.Plan
    name: str
    """What a person calls it."""
    published_us: int | None = None
    """When its state was published, monotonic; None when that was before this boot."""
    tolerance: float | None = None
    """How far a replay may differ, as measured by the run that wrote it; None = not at all, or not known."""

    @property
    def step(self) -> int:
        """The state that the run goes on after."""
        return self.plan.target_step

    @property
    def is_slot(self) -> bool:
        """True for a snapshot in shared memory."""
        return self.plan.tier == Tier.SLOT.value

    def repeated(self) -> Source:
        """The same state without its predecessor: the next step is run twice instead."""
        plan = control.Plan(
            tier=self.plan.tier,
            mode=VerifyMode.REPEAT.value,
            restore_step=self.step,
            target_step=self.step,
            digest=self.plan.digest,
            locator=self.plan.locator,
        )
        return self._replace(plan=plan)


class Sources(NamedTuple):
    """What was found at a start."""

    usable: tuple[Source, ...]
    torn: tuple[Torn, ...]
    """Folders that look like a checkpoint and are none (any more)."""


def find_sources(
    run_dir: RunDir, checkpoint_dir: Path | None, *, world: int, assessed_step: int | None
) -> Sources:
    """Return what the run may go on from.

    Args:
        assessed_step: newest step that the supervisor before had assessed as ok; None when it left no snapshots.

    Raises:
        Refused: the folder has checkpoints, and all of them are of another number of ranks.
    """
    found: list[Source] = []
    if assessed_step is not None:
        found += _slots(run_dir, world=world, assessed_step=assessed_step)
    torn: tuple[Torn, ...] = ()
    if checkpoint_dir is not None and checkpoint_dir.exists():
        checkpoints = list_checkpoints(checkpoint_dir, world=world)
        torn = find_torn(checkpoint_dir)
        if not checkpoints and not found:
            _refuse_other_worlds(checkpoint_dir, world=world)
        found += [
            Source(
                control.Plan(
                    tier=Tier.CHECKPOINT.value,
                    mode=VerifyMode.REPEAT.value,
                    restore_step=c.step,
                    target_step=c.step,
                    digest=c.digest,
                    locator=str(c.path),
                ),
                c.path.name,
                c.published_us,
                c.tolerance,
            )
            for c in checkpoints
        ]
    found.sort(key=lambda source: (source.step, source.is_slot), reverse=True)
    return Sources(tuple(found), torn)


def _slots(run_dir: RunDir, *, world: int, assessed_step: int) -> list[Source]:
    return [
        Source(
            control.Plan(
                tier=Tier.SLOT.value,
                mode=(VerifyMode.PREDECESSOR if c.has_predecessor else VerifyMode.REPEAT).value,
                restore_step=c.step - 1 if c.has_predecessor else c.step,
                target_step=c.step,
                digest=c.digest,
            ),
            f"state {c.step} in shared memory",
            c.published_us,
        )
        for c in slot_candidates(read_headers(run_dir, world=world), world=world)
        if c.step <= assessed_step
    ]


def _refuse_other_worlds(checkpoint_dir: Path, *, world: int) -> None:
    """Starting over beside checkpoints that only do not fit would throw away what they hold."""
    worlds = worlds_of(checkpoint_dir)
    if worlds:
        raise Refused(
            "the checkpoints are of another number of ranks",
            where=str(checkpoint_dir),
            found=f"checkpoints of {', '.join(map(str, sorted(worlds)))} ranks",
            needs=f"of {world}, or an empty folder to start over",
            next=f"type --nproc-per-node {min(worlds)}, or name another --checkpoint-dir",
        )
