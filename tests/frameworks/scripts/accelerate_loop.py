"""A loop of one's own with Accelerate: accumulation, clipping, a scheduler, a loss gathered from all ranks."""

import task
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=task.ACCUMULATION)
    set_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
    loader = DataLoader(task.items(accelerator.num_processes), task.BATCH, shuffle=True, num_workers=task.WORKERS)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(batch), batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    parts = zip(*[iter(losses)] * task.ACCUMULATION, strict=True)
    rank, inner = accelerator.process_index, accelerator.unwrap_model(model)
    task.leave(task.folder(), rank, inner, [sum(part) / len(part) for part in parts])
    # Without it gloo's thread may still want the interpreter's lock to let go of the last gather, while the end of the
    # model waits, lock held, for that thread: on a busy machine bare runs hang there too now and then.
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
