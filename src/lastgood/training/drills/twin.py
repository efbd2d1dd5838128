"""The undisturbed twin of all jobs of a catalogue: plain torch, run once, with the digest behind every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lastgood.training.drills.plain import run_plain

STEPS_MIN, SPARE_RATIO = 300, 1.25
"""A later job is often a little longer than the one that asks first: that much more is run at once."""
_LIMIT_US = 600_000_000


class Twins:
    """Digests of the weights of an undisturbed run, by the number of ranks; kept in a folder for the next time."""

    def __init__(
        self, folder: Path, *, script: Path, on_run: Callable[[int], None] | None = None
    ) -> None:
        """Nothing is run before somebody asks; `on_run` is told how many steps a run will have."""
        self._folder, self._script, self._on_run = folder, script, on_run

    def digest(self, *, ranks: int, step: int) -> str:
        """The digest of the weights after so many steps."""
        path = self._folder / f"{ranks}-ranks" / "weights-rank0.json"
        if path.exists():
            digests = json.loads(path.read_text())["digests"]
            if step <= len(digests):
                return digests[step - 1]
        self._run(path.parent, ranks=ranks, steps=max(STEPS_MIN, int(step * SPARE_RATIO)))
        return json.loads(path.read_text())["digests"][step - 1]

    def _run(self, folder: Path, *, ranks: int, steps: int) -> None:
        if self._on_run is not None:
            self._on_run(steps)
        results = [folder / f"weights-rank{rank}.json" for rank in range(ranks)]
        folder.mkdir(parents=True, exist_ok=True)
        for path in results:
            path.unlink(missing_ok=True)
        run_plain(
            self._script,
            ["--plain", "--steps", str(steps), "--out", str(folder)],
            ranks=ranks,
            results=results,
            limit_us=_LIMIT_US,
        )
