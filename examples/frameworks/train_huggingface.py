"""The Hugging Face Trainer on a tiny GPT-2 made from its config, with its own checkpoints."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from lastgood.training.frameworks import HuggingFaceCallback


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        symbols = (index + torch.arange(16)) % 64
        return {"input_ids": symbols, "labels": symbols}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))

lastgood = HuggingFaceCallback()
arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=int(os.environ.get("STEPS", "100")),
    save_steps=20,
    save_total_limit=2,
    use_cpu=True,
    report_to=[],
)
trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[lastgood])
trainer.train(resume_from_checkpoint=lastgood.last_good("checkpoints"))
print(f"rank {arguments.process_index}: {trainer.state.global_step} steps", flush=True)
