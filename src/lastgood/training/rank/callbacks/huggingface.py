"""Hugging Face Trainer: `Trainer(callbacks=[HuggingFaceCallback()])`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from transformers import TrainerCallback  # pyrefly: ignore[missing-import] - the user's

from lastgood.base.errors import EXIT_REQUEUE
from lastgood.training.rank.attach import attach
from lastgood.training.rank.callbacks.sealing import newest_that_holds, seal

if TYPE_CHECKING:
    import os


class _Stopping(Exception):
    """Raised where attach would end the process, since the trainer has to write a checkpoint first."""


class HuggingFaceCallback(TrainerCallback):
    """Tells lastgood each optimizer step, each evaluation and each checkpoint, and seals checkpoints.

    Make it before the Trainer: it attaches this process. Asked to stop (SIGTERM, SIGUSR1), every rank ends behind the
    same step with code 75, after a checkpoint. The loss of a step is the mean that the trainer logs behind it, so it
    is known for the steps that are logged.
    """

    def __init__(self, **attach_options: Any) -> None:
        """Arguments are those of `lastgood.attach`."""
        self._attached = attach(on_stop=self._stop, **attach_options)
        self._section = ExitStack()
        self._unsaid: int | None = None
        """A step that is done and whose loss is about to be logged."""
        self._unsealed: Path | None = None
        """A checkpoint of which another rank may still be writing its part."""
        self._is_stopping = False

    def last_good(self, folder: str | os.PathLike[str]) -> str | None:
        """Return the newest checkpoint in a folder whose bytes still hold, for `train(resume_from_checkpoint=...)`."""
        found = newest_that_holds(Path(folder))
        return None if found is None else str(found.path)

    # --- the framework calls ----------------------------------------------------------------------

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done. What follows it, in this order, is a log, an evaluation and a checkpoint."""
        self._section.close()
        self._seal(state)
        self._unsaid = state.global_step
        if not control.should_log:  # else its loss comes with the log, at once
            self._say(control, None)
            self._expect(control)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """The loss of the step before is known."""
        if self._unsaid is not None:
            self._say(control, (logs or {}).get("loss"))
            self._expect(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation is over."""
        self._section.close()
        self._expect(control, is_evaluated=True)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """This rank has written its part of a checkpoint."""
        self._section.close()
        self._unsealed = Path(args.output_dir) / f"checkpoint-{state.global_step}"

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Whatever was announced and did not come is over; so is a step whose loss was not logged."""
        self._section.close()
        if self._unsaid is not None:
            self._say(control, None)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Seal the last checkpoint, and leave with the code that says: start again."""
        self._section.close()
        if self._unsealed is not None and dist.is_initialized():
            dist.barrier()
        self._seal(state)
        if self._is_stopping:
            sys.exit(EXIT_REQUEUE)

    def _expect(self, control: Any, *, is_evaluated: bool = False) -> None:
        if control.should_evaluate and not is_evaluated:
            self._section.enter_context(self._attached.section("evaluation"))
        elif control.should_save:
            self._section.enter_context(self._attached.section("checkpoint"))

    def _say(self, control: Any, loss: float | None) -> None:
        assert self._unsaid is not None, "a step is said once"
        step, self._unsaid = self._unsaid, None
        try:
            self._attached.step(step, loss=loss)
        except _Stopping:
            self._is_stopping = True
            control.should_save = control.should_training_stop = True

    def _seal(self, state: Any) -> None:
        """Seal what every rank has finished: a step, and so a collective, lies between."""
        path, self._unsealed = self._unsealed, None
        if path is not None and state.is_world_process_zero and path.is_dir():
            seal(path, step=int(path.name.removeprefix("checkpoint-")))

    def _stop(self, step: int) -> None:
        raise _Stopping(step)
