"""Lightning's Trainer with strategy "ddp": accumulation, validation in between, a logged loss."""

import vision_first  # noqa: F401  # isort: skip
import lightning
import task
import torch
from torch.utils.data import DataLoader


class Autoencoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 16)
        )

    def _loss(self, batch):
        return torch.nn.functional.mse_loss(self.layers(batch), batch)

    def training_step(self, batch, _index):
        loss = self._loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        self.log("unseen", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Losses(lightning.Callback):
    """Keeps what Lightning logged for each batch."""

    def __init__(self) -> None:
        self.logged = []

    def on_train_batch_end(self, trainer, *_args):
        self.logged.append(trainer.logged_metrics["loss"].item())


def main():
    lightning.seed_everything(0)
    losses = Losses()
    trainer = lightning.Trainer(
        strategy="ddp",
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        limit_train_batches=task.STEPS * task.ACCUMULATION // 2,
        accumulate_grad_batches=task.ACCUMULATION,
        callbacks=[losses],
        log_every_n_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Autoencoder()
    items = task.items(2)
    loader = DataLoader(items, task.BATCH, shuffle=True, num_workers=task.WORKERS)
    trainer.fit(model, loader, DataLoader(items[:32], task.BATCH))
    parts = zip(*[iter(losses.logged)] * task.ACCUMULATION, strict=True)
    task.leave(task.folder(), trainer.global_rank, model, [sum(part) / len(part) for part in parts])
    task.part()


if __name__ == "__main__":
    main()
