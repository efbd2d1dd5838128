"""The probes at the start of a run: one step is run again from the same state, to learn whether steps repeat bit by bit.

Where they do, every replay after a fault must be bit-equal. Where they do not, further probes measure how far two runs
of one step differ, and that is the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.signals.reading import Phase
from lastgood.training import control
from lastgood.training.rank.passes import Pass, more_passes_of_probe
from lastgood.training.rank.snapshot import has_all_stripes, load_snapshot
from lastgood.training.rank.state import largest_difference

if TYPE_CHECKING:
    from lastgood.training.rank.generation import Generation

_LOOK_US = 200


class Probing:
    """Where the probes of a generation stand."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._came_equal: list[bool] = []
        """Whether each probe of this generation came out bit-equal; empty once all of them were made."""

    def begin(self, passes: tuple[Pass, ...]) -> None:
        """Run the newest step once more from its predecessor."""
        generation = self._generation
        generation.is_fresh = False
        if not self._wait_for_stripes(generation.state_step):
            return
        generation.loaded = load_snapshot(
            generation.link.run, generation.rank, generation.state_step - 1
        )
        generation.expected = load_snapshot(
            generation.link.run, generation.rank, generation.state_step
        )
        generation.passes = list(passes)

    def _wait_for_stripes(self, step: int) -> bool:
        """Wait until the other ranks have published their stripes of a state; False when the generation is over."""
        generation = self._generation
        while not has_all_stripes(generation.link.run, generation.rank, step):
            if generation.link.is_revoked(generation.number):
                return False
            generation.link.slot.enter(Phase.HELD)
            generation.clock.sleep_us(_LOOK_US)
        return True

    def settle(self) -> None:
        """Ask for more probes where the step did not repeat on some rank: all of them make the same passes."""
        generation = self._generation
        if generation.passes or not self._came_equal:
            return
        assert generation.expected is not None, "a probe compares with a published state"
        if len(self._came_equal) == 1 and not generation.replica.holds_everywhere(
            self._came_equal[0]
        ):
            step, has_buckets = generation.expected.step, generation.replica.has_buckets
            generation.passes = list(more_passes_of_probe(step, has_buckets=has_buckets))
            return
        self.forget()

    def forget(self) -> None:
        """The generation has no further probes."""
        generation = self._generation
        self._came_equal.clear()
        generation.loaded = generation.expected = None

    def end(self) -> None:
        """Measure how far two runs of one step differ; the published result stays the valid one."""
        generation = self._generation
        assert generation.expected is not None, "a probe compares with a published state"
        is_bitwise = generation.digests() == generation.expected.digests
        noise = (
            0.0
            if is_bitwise
            else largest_difference(generation.live_tensors(), generation.expected.tensors)
        )
        generation.link.channel.send(
            control.NoiseMeasured(
                rank=generation.rank,
                step=generation.expected.step,
                probe=len(self._came_equal) + 1,
                is_bitwise=is_bitwise,
                noise=noise.hex(),
            )
        )
        if not is_bitwise:
            generation.load(generation.expected)
        self._came_equal.append(is_bitwise)
