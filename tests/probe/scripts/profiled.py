"""Two ranks that train, of which one multiplies more matrices, until a file in a folder tells them to end.

`own-later`: they start a profiler of their own while ddpmon profiles them, and end it once `own.end` is there.
`end`: they train as many steps once more, and write into `same-RANK` whether the weights are the same. Then they train
until they are told to end in the middle of ddpmon's profile, by `end-profiled`.
"""

import gc
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.autograd import profiler as torch_profiler
from torch.nn.parallel import DistributedDataParallel

gc.disable()
torch.set_num_threads(1)
FOLDER = Path(sys.argv[1])


def is_profiled() -> bool:
    """Return whether ddpmon profiles this rank."""
    return torch_profiler._enable_profiler.__module__.startswith("ddpmon.")


def told(name: str) -> bool:
    return (FOLDER / name).exists()


class Model(torch.nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.more = torch.ones(500, 500)
        self.slow = rank == 1

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.slow:
            for _ in range(10):
                self.more @ self.more
        return self.layers(batch)


def over(name: str) -> bool:
    """Return whether both ranks are told to end."""
    ends = torch.tensor(float(told(name) and (name == "end" or is_profiled())))
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return bool(ends.item())


def train(rank: int, steps: int | None, until: str = "") -> tuple[int, list[torch.Tensor]]:
    """Train so many steps, or until an end is told by its name; return how many they were, and the weights."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Model(rank))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(rank)
    done, mine = 0, None
    while steps is None or done < steps:
        if mine is None and steps is None and told("own-later") and is_profiled():
            mine = torch.profiler.profile()
            mine.start()
            (FOLDER / f"profiles-itself-{rank}").touch()
        model(torch.randn(8, 16, generator=draws)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if mine is not None and told("own.end"):
            mine.stop()
            (FOLDER / f"profiled-itself-{rank}").touch()
            mine = None
        if steps is None:
            time.sleep(0.005)
            if over(until):
                break
    return done, [parameter.detach().clone() for parameter in model.parameters()]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    steps, weights = train(rank, None, "end")
    again = train(rank, steps)[1]
    same = all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
    (FOLDER / f"same-{rank}").write_text(f"{same} {steps}")
    train(rank, None, "end-profiled")


if __name__ == "__main__":
    main()
