"""The random numbers of a simulation, drawn by numpy outside the loop.

Every kind of number has a stream of its own, keyed by scenario, replication and name. A stream is read in
order, so the size of the portions changes nothing, and two plans for one scenario that differ in one cost see the same
failures.
"""

from __future__ import annotations

import math
from typing import Any

from lastgood.base.rng import philox_stream
from lastgood.budget.montecarlo import kernel
from lastgood.budget.montecarlo.model import JobModel

PORTION_MIN = 32
PORTION_MAX = 65_536


class Draws:
    """The streams of one replication."""

    def __init__(
        self, model: JobModel, *, seed: int, scenario: str, replication: int, portion: int
    ) -> None:
        """Open the streams; nothing is drawn yet."""
        self._model = model
        self._seed = seed
        self._scenario = scenario
        self._replication = replication
        self._portion = portion
        self._streams: dict[str, Any] = {}

    def more(self, which: int) -> Any:
        """The next portion of one sequence of the kernel, as an array; empty when the model never asks for it."""
        import numpy as np

        model = self._model
        if which == kernel.GAPS:
            return self._gaps()
        has_corruption = math.isfinite(model.mean_to_corruption)
        if which == kernel.CORRUPTION_GAPS and has_corruption:
            return self._stream("corruption").exponential(model.mean_to_corruption, PORTION_MIN)
        if which == kernel.LATENCIES and has_corruption:
            return (
                self._stream("latency").standard_exponential(PORTION_MIN) * model.detection_latency
            )
        if which == kernel.WRITES and model.checkpoint_failure_chance:
            return self._stream("write").random(min(PORTION_MAX, 8 * self._portion))
        return np.empty(0)

    def _gaps(self) -> Any:
        """Times at risk between failures, of the declared mean whatever their shape."""
        model = self._model
        shape, chance, short = model.weibull_shape, model.burst_chance, model.burst_gap
        mean = (model.regime.mean_to_stop - chance * short) / (1 - chance)
        gaps = self._stream("gap").standard_exponential(self._portion)
        if shape != 1:
            gaps = gaps ** (1 / shape) / math.gamma(1 + 1 / shape)
        gaps *= mean
        if chance:
            import numpy as np

            is_short = self._stream("burst").random(self._portion) < chance
            short_gaps = self._stream("short").standard_exponential(self._portion) * short
            gaps = np.where(is_short, short_gaps, gaps)
        return gaps

    def _stream(self, name: str) -> Any:
        if name not in self._streams:
            self._streams[name] = philox_stream(
                self._seed, "montecarlo/1", self._scenario, name, replication=self._replication
            )
        return self._streams[name]
