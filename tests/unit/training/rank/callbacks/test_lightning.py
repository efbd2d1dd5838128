"""The Lightning callback with a real Trainer of one process. Skipped where Lightning is not installed."""

import signal

import pytest
import torch

from lastgood.base.errors import BadInput
from tests.unit.training.rank.callbacks.attachment import Attachment

pytestmark = pytest.mark.filterwarnings("ignore")  # the framework's own


@pytest.fixture(scope="module")
def pl():
    try:
        import lightning.pytorch as found
    except ModuleNotFoundError:
        return pytest.importorskip(
            "pytorch_lightning", reason="needs Lightning: pip install -e '.[frameworks]'"
        )
    return found


@pytest.fixture
def fit(pl, tmp_path, monkeypatch):
    """Train for some epochs of 4 batches; returns what was said, and the callback."""
    from lastgood.training.rank.callbacks import lightning as module

    class Model(pl.LightningModule):
        def __init__(self, *, is_dict):
            super().__init__()
            torch.manual_seed(1)
            self.net, self.is_dict = torch.nn.Linear(2, 1), is_dict

        def training_step(self, batch, _index):
            loss = self.net(batch).square().mean()
            return {"loss": loss} if self.is_dict else loss

        def validation_step(self, batch, _index):
            pass

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    def run(
        *, epochs=1, ckpt_path=None, stop_after=None, is_dict=False, losses=True, world=1, **options
    ):
        attachment = Attachment()
        attachment.place.world = world
        attachment.stop_after = stop_after
        monkeypatch.setattr(module, "attach", attachment.attach)
        callback = module.LightningCallback(has_losses=losses, spool="s")
        trainer = pl.Trainer(
            max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
            callbacks=[callback, pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)],
            **options,
        )  # fmt: skip
        rows = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
        try:
            trainer.fit(Model(is_dict=is_dict), rows, rows, ckpt_path=ckpt_path)
        except SystemExit as end:
            attachment.exit_code = end.code
        return attachment, callback

    return run


def test_steps_sections_and_losses_are_said_in_the_order_in_which_they_happen(fit):
    said, _ = fit()
    saved = [("open", "checkpoint"), ("close", "checkpoint")]
    assert said.without_losses == [
        ("step", 1), ("step", 2), *saved, ("step", 3), ("step", 4), *saved,
        ("open", "validation"), ("close", "validation"),
    ]  # fmt: skip
    assert all(isinstance(loss, float) for loss in said.losses)
    assert said.options == {"spool": "s"}


def test_batches_that_only_accumulate_are_no_steps(fit):
    said, _ = fit(accumulate_grad_batches=2)
    assert said.steps == [1, 2]


def test_a_loss_in_a_dict_is_found_and_losses_can_be_left_out(fit):
    assert None not in fit(is_dict=True)[0].losses
    assert fit(losses=False)[0].losses == [None] * 4


def test_the_count_goes_on_from_the_newest_checkpoint_that_holds(fit, tmp_path):
    _, callback = fit()
    newest = callback.last_good(tmp_path)
    assert newest == str(tmp_path / "epoch=0-step=4.ckpt")
    with open(newest, "r+b") as file:
        file.truncate(200)
    older = callback.last_good(tmp_path)
    assert older == str(tmp_path / "epoch=0-step=2.ckpt")
    said, _ = fit(epochs=2, ckpt_path=older)
    assert said.steps[0] == 3


def test_a_stop_is_behind_a_sealed_checkpoint(fit, tmp_path):
    said, callback = fit(epochs=9, stop_after=3)
    assert said.exit_code == 75
    assert said.steps[-1] == 3
    assert callback.last_good(tmp_path) == str(tmp_path / "stopped-step-3.ckpt")


def test_a_trainer_with_other_ranks_than_the_launcher_is_refused_with_the_command(fit):
    with pytest.raises(BadInput, match="type: lastgood run --mode act --nproc-per-node 1 SCRIPT"):
        fit(world=4)


def test_lightning_does_not_keep_the_signal_that_asks_for_a_stop(fit, monkeypatch):
    def ours(*_):
        pass

    previous = signal.signal(signal.SIGTERM, ours)
    seen = []
    monkeypatch.setattr(
        Attachment,
        "step",
        lambda self, *_, **__: seen.append(signal.getsignal(signal.SIGTERM)),
    )
    try:
        fit()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert set(seen) == {ours}
