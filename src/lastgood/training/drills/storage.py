"""Drills of disks, shared memory, checkpoints, the clock and the supervisor itself."""

from __future__ import annotations

from lastgood.training.drills.drill import Drill

GROUP = "storage"
DRILLS: tuple[Drill, ...] = ()
