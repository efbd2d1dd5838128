"""Drills of deaths, of a rank, a spare, several at once, or during a recovery."""

from __future__ import annotations

from lastgood.training.drills.drill import Drill

GROUP = "deaths"
DRILLS: tuple[Drill, ...] = ()
