"""A tiny GPT-2 from a config under the Hugging Face Trainer: DDP on gloo, checkpoints every 4 steps, an evaluation.

`--kill-rank R --kill-step S` ends that rank with SIGKILL behind that step, the first time it gets there.
"""

import argparse
import hashlib
import json
import os
import signal
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from lastgood.training.frameworks import HuggingFaceCallback


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        symbols = torch.randint(0, 64, (16,), generator=generator)
        return {"input_ids": symbols, "labels": symbols}


class KillOnce(TrainerCallback):
    def __init__(self, rank, step, mark, pace_ms):
        self._rank, self._step, self._mark, self._pace_ms = rank, step, mark, pace_ms

    def on_step_end(self, args, state, control, **_):
        time.sleep(self._pace_ms / 1000)
        due = args.process_index == self._rank and state.global_step == self._step
        if due and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pace-ms", type=float, default=0)
    parser.add_argument("--kill-rank", type=int, default=-1)
    parser.add_argument("--kill-step", type=int, default=-1)
    options = parser.parse_args()
    lastgood = HuggingFaceCallback(spool=options.out / "spool")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    )
    arguments = TrainingArguments(
        output_dir=str(options.out / "checkpoints"),
        max_steps=options.steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_steps=4,
        eval_strategy="steps",
        eval_steps=8,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    mark = options.out / "killed"
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[
            lastgood,
            KillOnce(options.kill_rank, options.kill_step, mark, options.pace_ms),
        ],
    )
    trainer.train(resume_from_checkpoint=lastgood.last_good(arguments.output_dir))
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    result = {"steps": trainer.state.global_step, "weights": hashlib.sha256(weights).hexdigest()}
    (options.out / f"result-{arguments.process_index}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
