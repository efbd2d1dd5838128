"""The Hugging Face callback with a real Trainer of one process. Skipped where transformers is not installed."""

import pytest
import torch

from tests.unit.training.rank.callbacks.attachment import Attachment

pytestmark = pytest.mark.filterwarnings("ignore")  # the framework's own


@pytest.fixture(scope="module")
def transformers():
    for name in ("transformers", "accelerate"):
        pytest.importorskip(name, reason="needs transformers: pip install -e '.[frameworks]'")
    import transformers

    return transformers


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"x": torch.ones(2) * index}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Linear(2, 1)

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


@pytest.fixture
def train(transformers, tmp_path, monkeypatch):
    """Train for some steps; returns what was said, and the callback."""
    from lastgood.training.rank.callbacks import huggingface as module

    def run(*, steps=4, resume=None, stop_after=None, **options):
        attachment = Attachment()
        attachment.stop_after = stop_after
        monkeypatch.setattr(module, "attach", attachment.attach)
        callback = module.HuggingFaceCallback(spool="s")
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=2, report_to=[],
            use_cpu=True, disable_tqdm=True, remove_unused_columns=False, prediction_loss_only=True,
            **{"save_steps": 2, "eval_strategy": "steps", "eval_steps": 4, "logging_steps": 2, **options},
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=Model(), args=arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[callback]
        )  # fmt: skip
        try:
            trainer.train(resume_from_checkpoint=resume)
        except SystemExit as end:
            attachment.exit_code = end.code
        return attachment, callback

    return run


def around(name):
    return [("open", name), ("close", name)]


def test_steps_and_sections_are_said_in_the_order_in_which_they_happen(train):
    said, _ = train()
    checkpoint, evaluation = around("checkpoint"), around("evaluation")
    assert said.without_losses == [
        ("step", 1), ("step", 2), *checkpoint, ("step", 3), ("step", 4), *evaluation, *checkpoint,
    ]  # fmt: skip
    assert said.options == {"spool": "s"}


def test_the_loss_is_there_where_the_trainer_logs_it(train):
    losses = train(logging_steps=2)[0].losses
    assert [loss is None for loss in losses] == [True, False, True, False]


def test_accumulating_and_never_logging_loses_no_step(train):
    said, _ = train(gradient_accumulation_steps=2, logging_strategy="no", eval_strategy="no")
    assert said.steps == [1, 2, 3, 4]


def test_the_newest_checkpoint_that_holds_is_found_and_the_count_goes_on(train, tmp_path):
    _, callback = train()
    assert callback.last_good(tmp_path) == str(tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-4" / "optimizer.pt").write_bytes(b"torn")
    older = callback.last_good(tmp_path)
    assert older == str(tmp_path / "checkpoint-2")
    said, _ = train(resume=older)
    assert said.steps == [3, 4]


@pytest.mark.parametrize("logging_steps", [1, 100])
def test_a_stop_is_behind_a_sealed_checkpoint(train, tmp_path, logging_steps):
    said, callback = train(steps=30, stop_after=3, logging_steps=logging_steps)
    assert said.exit_code == 75
    assert said.steps == [1, 2, 3]
    assert callback.last_good(tmp_path) == str(tmp_path / "checkpoint-3")
