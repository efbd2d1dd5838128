"""The block in which one step runs; a failure in it is what recovery begins with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from lastgood.training.rank.interrupting import StepInterrupted
from lastgood.training.rank.passes import PassKind

if TYPE_CHECKING:
    from types import TracebackType

    from lastgood.training.rank.interrupting import Interruption
    from lastgood.training.rank.passes import Pass
    from lastgood.training.rank.run import Run


class Step:
    """One pass through the user's step. Set `loss` (and `grad_norm` if you clip) to have them checked."""

    def __init__(self, run: Run, this: Pass, interruption: Interruption) -> None:
        self._run = run
        self._pass = this
        self._interruption = interruption
        self.loss: torch.Tensor | float | None = None
        self.grad_norm: torch.Tensor | float | None = None
        self.work: float | None = None
        """Set it to the tokens or samples of this rank's batch, and a long batch does not make the rank look slow."""
        self._had_grad = True
        self.is_accepted = False
        """True when the block has ended and its result was kept."""

    @property
    def number(self) -> int:
        """Which step this is, from 1."""
        return self._pass.step

    @property
    def is_replay(self) -> bool:
        """True when this step ran before, so its side effects (logs, files) happen again."""
        return self._pass.kind is not PassKind.STEP

    def __enter__(self) -> Step:
        self._run._begin(self._pass)  # noqa: SLF001
        self._had_grad = torch.is_grad_enabled()
        self._interruption.begin_step(sys._getframe(1))  # noqa: SLF001
        if self._run._is_over:  # noqa: SLF001
            self._interruption.ask()  # whoever asked did so between two steps
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._interruption.end_step()
        if error is None:
            self._run._end(self)  # noqa: SLF001
            return False
        if isinstance(error, StepInterrupted):
            torch.set_grad_enabled(self._had_grad)  # no block of torch's own may have been left
            self._run._interrupted()  # noqa: SLF001
            return True
        if not isinstance(error, Exception):
            return False
        self._run._raised(error)  # noqa: SLF001
        return True
