"""Drills of hangs and slow ranks."""

from __future__ import annotations

from lastgood.training.drills.drill import Drill

GROUP = "hangs"
DRILLS: tuple[Drill, ...] = ()
