"""A small Lightning job under `lastgood run --mode act`: DDP on gloo, a checkpoint every 4 steps, a validation per epoch.

`--kill-rank R --kill-step S` ends that rank with SIGKILL behind that step, the first time it gets there.
"""

import argparse
import hashlib
import json
import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

try:
    import lightning.pytorch as pl
except ModuleNotFoundError:
    import pytorch_lightning as pl

from lastgood.training.frameworks import LightningCallback


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, _index):
        return mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        self.log("val", mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Rows:
    """The batches of one rank; it knows where it is, so that a checkpoint inside an epoch goes on with the right one."""

    def __init__(self, rank, world):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(64, 8, generator=generator)[rank::world]
        self._batches = list(zip(x.split(4), x.sum(1, keepdim=True).split(4), strict=True))
        self._next = 0

    def __len__(self):
        return len(self._batches)

    def __iter__(self):
        self._next %= len(
            self._batches
        )  # Lightning does not ask for more than there is, so nothing says the end
        while self._next < len(self._batches):
            self._next += 1
            yield self._batches[self._next - 1]

    def state_dict(self):
        return {"next": self._next}

    def load_state_dict(self, state):
        self._next = state["next"]


class KillOnce(pl.Callback):
    def __init__(self, rank, step, mark):
        self._rank, self._step, self._mark = rank, step, mark

    def on_train_batch_end(self, trainer, *_):
        due = trainer.global_rank == self._rank and trainer.global_step == self._step
        if due and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--kill-rank", type=int, default=-1)
    parser.add_argument("--kill-step", type=int, default=-1)
    parser.add_argument("--spool", type=Path)
    options = parser.parse_args()
    lastgood = LightningCallback(spool=options.spool or options.out / "spool")
    checkpoints = options.out / "checkpoints"
    place = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[
            lastgood,
            pl.callbacks.ModelCheckpoint(checkpoints, every_n_train_steps=4, save_top_k=-1),
            KillOnce(options.kill_rank, options.kill_step, options.out / "killed"),
        ],
    )
    model = Model()
    trainer.fit(model, Rows(*place), Rows(*place), ckpt_path=lastgood.last_good(checkpoints))
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    result = {"steps": trainer.global_step, "weights": hashlib.sha256(weights).hexdigest()}
    (options.out / f"result-{trainer.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
