"""Lightning, with DDP and its own checkpoints."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning.pytorch as pl
except ModuleNotFoundError:
    import pytorch_lightning as pl

from lastgood.training.frameworks import LightningCallback


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16)
        )

    def training_step(self, batch, _index):
        return (self.net(batch[0]) - batch[1]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


pl.seed_everything(0)
inputs = torch.randn(512, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sin()), batch_size=8)

lastgood = LightningCallback()
trainer = pl.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=int(os.environ.get("EPOCHS", "10")),
    logger=False,
    callbacks=[
        lastgood,
        pl.callbacks.ModelCheckpoint("checkpoints", save_top_k=2, monitor="step", mode="max"),
    ],
)
trainer.fit(Model(), loader, ckpt_path=lastgood.last_good("checkpoints"))
print(f"rank {trainer.global_rank}: {trainer.global_step} steps", flush=True)
