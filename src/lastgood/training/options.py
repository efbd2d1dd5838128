"""What a run is asked to do, in one frozen record beside its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lastgood.signals.limits import Limits
from lastgood.training.states.striping import SnapshotForm


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The settings of `lastgood run`."""

    script: Path
    arguments: tuple[str, ...] = ()
    ranks: int = 1
    """Processes that train (torchrun's --nproc-per-node)."""
    spares: int = 1
    """Warm processes parked beside them."""
    run_id: str
    ledger: Path
    contract: Path | None = None
    limits: Limits = field(default_factory=Limits)
    checkpoint_dir: Path | None = None
    checkpoint_every_us: int = 300_000_000
    checkpoints_kept: int = 2
    """Newest checkpoints kept; one verified checkpoint is kept besides, however old."""
    log_dir: Path | None = None
    launch_limit_us: int = 300_000_000
    """Longest wait for the workers to reach lastgood.start."""
    preemption_grace_us: int = 60_000_000
    """From the notice to the end; what is not snapshotted by then is left to the last checkpoint."""
    snapshots: SnapshotForm = SnapshotForm.AUTO
    """Whole copies on every rank, or a stripe of the replicated state on each."""
    root: Path | None = None
    """Folder of the live files; by default in shared memory."""
    mode: str = "run"
    """`run`, or `demo` and `drill`, whose incidents were caused on purpose."""
    tape: Path | None = None
    """Event tape whose in-rank faults the ranks carry out themselves (tests and drills only)."""
