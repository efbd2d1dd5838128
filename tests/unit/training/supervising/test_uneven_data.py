"""Ranks with different numbers of batches are refused; a rank that only replayed the step behind the end is not one."""

from types import SimpleNamespace

import pytest

from lastgood.base.errors import BadInput
from lastgood.recovery.policy import LoopPhase
from lastgood.signals.limits import Limits
from lastgood.signals.reading import Phase
from lastgood.training.supervising.ending import Ending

LAST = 192


def look(phase: Phase, step: int, finished: dict[int, int] | None = None) -> None:
    """Rank 1 is done behind the last step; rank 0 stands where its page says."""
    pages = {"w0": SimpleNamespace(phase=phase, step=step), "w1": SimpleNamespace(phase=Phase.FINISHED, step=LAST)}  # fmt: skip
    supervisor = SimpleNamespace(
        state=SimpleNamespace(phase=LoopPhase.RUNNING),
        finished=finished or {1: LAST},
        leavers=SimpleNamespace(left=()),
        serving=["w0", "w1"],
        workers={name: SimpleNamespace(slot=SimpleNamespace(view=lambda page=page: page)) for name, page in pages.items()},
        options=SimpleNamespace(ranks=2, limits=Limits()),
        run_dir=SimpleNamespace(stacks=None),
        recorder=None,
        last_step=None,
    )  # fmt: skip
    Ending(supervisor, SimpleNamespace()).advance()  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", [Phase.COMPUTE, Phase.COLLECTIVE, Phase.BETWEEN])
def test_a_rank_in_a_step_that_another_has_no_batch_for_is_refused(phase):
    with pytest.raises(BadInput, match="rank 0 is in step 193"):
        look(phase, LAST + 1)


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        (Phase.HELD, LAST + 1),
        (Phase.RESTORING, LAST + 1),
        (Phase.FINISHED, LAST + 1),
        (Phase.BETWEEN, LAST),
    ],
)
def test_a_rank_that_replayed_the_step_behind_the_end_has_not_gone_into_it(phase, step):
    look(phase, step)


def test_ranks_that_are_done_behind_different_steps_are_refused():
    with pytest.raises(BadInput, match="rank 0 is in step 193"):
        look(Phase.FINISHED, LAST + 1, finished={0: LAST + 1, 1: LAST})
