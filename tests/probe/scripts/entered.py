"""One rank that is entered at each place of a step: an entry arms the probe, a later one removes it.

Each phase of a step takes SECONDS at least, so that a step that is not whole shows.
"""

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset

from ddpmon.probe import attached, safe_moment

SECONDS = 0.02
PLACES = ("data", "forward", "backward", "hook of all optimizers", "optimizer", "after")
STEPS = 5
folder, socket = Path(sys.argv[1]), sys.argv[2]
accumulated = int(sys.argv[3])
place = ""


def at(name, seconds=SECONDS):
    """The training comes to a place: it may be entered there."""
    global place
    if place == name:
        place = ""
        entry()
    time.sleep(seconds)


class Data(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        at("data", SECONDS / 4)
        return torch.ones(8)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        at("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        at("backward")
        return grad


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return Slow.apply(self.layer(x))


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        at("optimizer")
        return super().step(closure)


def before_each(*_):
    """Be a hook of all optimizers, as those of the probe are."""
    loops.append(safe_moment.is_quiet())
    at("hook of all optimizers", 0)


def answered(reply):
    while not reply.exists():
        time.sleep(0.001)
    return json.loads(reply.read_text())


loops = []
dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = Optimizer(model.parameters(), lr=0.01)
optimizers.register_optimizer_step_pre_hook(before_each)
batches = iter(DataLoader(Data(), batch_size=4))


def steps(count):
    for _ in range(count):
        for _ in range(accumulated):
            model(next(batches)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        at("after", 0)


def arm(number):
    run, reply = folder / f"run{number}", folder / f"reply{number}"
    run.mkdir(mode=0o700)
    return reply, lambda: attached.arm(socket=socket, run_id="test", folder=str(run), reply=str(reply))


def disarm(number):
    reply = folder / f"gone{number}"
    return reply, lambda: attached.disarm(reply=str(reply))


steps(2)
for number, name in enumerate(PLACES):
    for prepare, count in ((arm, STEPS), (disarm, 1)):
        reply, entry = prepare(number)
        place = name
        steps(count)
        assert answered(reply)["ok"], reply.read_text()
assert not any(loops), "an optimizer goes through its hooks"
print("places", len(PLACES))
dist.destroy_process_group()
