"""Hugging Face's Trainer on a tiny GPT-2 made from a config: accumulation, evaluation in between, a logged loss."""

import sys

import vision_first  # noqa: F401  # isort: skip
import task
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Losses(TrainerCallback):
    """Keeps what the Trainer logged for each step."""

    def __init__(self):
        self.logged = []

    def on_log(self, args, state, control, logs, **_kwargs):
        if "loss" in logs:
            self.logged.append(logs["loss"])


def main():
    where = task.folder()
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir=str(where / "trainer"),
        use_cpu=True,
        max_steps=task.STEPS,
        per_device_train_batch_size=task.BATCH,
        gradient_accumulation_steps=task.ACCUMULATION,
        dataloader_num_workers=task.WORKERS,
        logging_steps=1,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=task.STEPS // 2,
        save_strategy="no",
        report_to="none",
        disable_tqdm="--bar" not in sys.argv,
    )
    tokens = torch.randint(0, 50, (task.STEPS * task.ACCUMULATION * task.BATCH * 2, 16))
    items = [{"input_ids": row, "labels": row} for row in tokens]
    losses = Losses()
    trainer = Trainer(model, arguments, train_dataset=items, eval_dataset=items[:16], callbacks=[losses])
    trainer.train()
    task.leave(where, arguments.process_index, model, losses.logged)
    task.part()


if __name__ == "__main__":
    main()
