"""Lightning: `Trainer(callbacks=[LightningCallback()])`."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.base.errors import BadInput
from lastgood.training.rank.attach import attach
from lastgood.training.rank.callbacks.sealing import newest_that_holds, seal

# A user has one of the two packages, or both: the callback belongs to the one whose Trainer is used.
if "lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules:
    try:
        from lightning.pytorch.callbacks import Callback
    except ModuleNotFoundError:
        from pytorch_lightning.callbacks import Callback  # pyrefly: ignore[missing-import]
else:
    from pytorch_lightning.callbacks import Callback  # pyrefly: ignore[missing-import]

if TYPE_CHECKING:
    import os


class LightningCallback(Callback):
    """Tells lastgood each optimizer step with its loss, each validation and each checkpoint, and seals checkpoints.

    Make it before the Trainer: it attaches this process. Asked to stop (SIGTERM, SIGUSR1), every rank ends behind the
    same step with code 75, after a checkpoint.
    """

    def __init__(self, *, has_losses: bool = True, **attach_options: Any) -> None:
        """`has_losses=False` spares the copy of the loss from the device in every step.

        Further arguments are those of `lastgood.attach`.
        """
        super().__init__()
        self._has_losses = has_losses
        self._attached = attach(on_stop=self._save_before_stop, **attach_options)
        self._handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)}
        self._section = ExitStack()
        self._trainer: Any = None
        self._steps_done = 0
        self._global_step = 0

    def last_good(self, folder: str | os.PathLike[str]) -> str | None:
        """Return the newest checkpoint in a folder whose bytes still hold, for `trainer.fit(ckpt_path=...)`."""
        found = newest_that_holds(Path(folder))
        return None if found is None else str(found.path)

    # --- the framework calls ----------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stand around the trainer's way to write a checkpoint."""
        if self._trainer is trainer:
            return
        self._refuse_own_ranks(trainer)
        self._trainer = trainer
        save = trainer.save_checkpoint

        def saved(filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
            with self._attached.section("checkpoint"):
                save(filepath, *args, **kwargs)
                if trainer.is_global_zero and Path(filepath).exists():
                    seal(Path(filepath), step=self._steps_done)

        trainer.save_checkpoint = saved

    def _refuse_own_ranks(self, trainer: Any) -> None:
        world = self._attached.place.world
        if trainer.world_size != world:
            raise BadInput(
                "the Trainer starts its ranks by itself, and they are not attached",
                where="LightningCallback",
                found=f"{trainer.world_size} ranks of the Trainer, {world} of the launcher",
                needs="a launcher that starts every rank",
                next=f"type: lastgood run --mode act --nproc-per-node {trainer.world_size} SCRIPT",
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the signals back: Lightning's own handler leaves at the next batch, which is another one on each rank."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._global_step = trainer.global_step
        # A checkpoint from before the callback was there has no count of ours.
        self._steps_done = self._steps_done or trainer.global_step

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count an optimizer step: a batch that only accumulates is none, and two optimizers in one batch are one."""
        if trainer.global_step == self._global_step:
            return
        self._global_step = trainer.global_step
        self._steps_done += 1
        self._attached.step(self._steps_done, loss=self._loss(outputs))

    def _loss(self, outputs: Any) -> float | None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        return None if loss is None or not self._has_losses else float(loss)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation takes as long as it takes."""
        self._section.enter_context(self._attached.section("validation"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Training goes on."""
        self._section.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Nothing of the framework is under way any more."""
        self._section.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the count of steps, which Lightning keeps in its checkpoints."""
        return {"steps_done": self._steps_done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting where the checkpoint was taken."""
        self._steps_done = state_dict["steps_done"]

    # --- the stop ---------------------------------------------------------------------------------

    def _save_before_stop(self, step: int) -> None:
        trainer = self._trainer
        folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
        trainer.save_checkpoint(Path(folder) / f"stopped-step-{step}.ckpt")
