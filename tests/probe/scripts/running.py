"""Train on two ranks; on request a thread enters the main thread while it trains, as a debugger would, and arms or
removes the probe there.

Each entry is a pending call of the interpreter: it comes between any two bytecodes.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "light"))
import eager  # noqa: F401  for what it does: torch comes without its compiler
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ddpmon

parser = argparse.ArgumentParser()
parser.add_argument("--save", type=Path, required=True)
parser.add_argument("--attach", type=int, default=0, help="so many times, each followed by a detach")
parser.add_argument("--socket", default="")
parser.add_argument("--steps", type=int, default=30, help="steps that pass before each entry, and between two of them")
parser.add_argument("--delay", type=float, default=0.0, help="seconds that rank 1 is entered later than rank 0")
parser.add_argument("--epochs", type=int, default=0, help="0: until each rank was entered as often as it should be")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--slow", type=float, default=0.0, help="seconds that rank 1 is slower in each forward")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
steps = 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def forward(self, x):
        time.sleep(args.slow if rank else 0)
        return self.layers(x)


def enter(text):
    """Have the interpreter run this on the main thread, soon."""
    ran = threading.Event()

    def run(_):
        try:
            exec(text, {})
        finally:
            ran.set()
        return 0

    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(run)
    while ctypes.pythonapi.Py_AddPendingCall(entry, None):
        time.sleep(0.001)
    ran.wait()


def answered(reply):
    while not reply.exists():
        time.sleep(0.005)
    return json.loads(reply.read_text())


def state():
    """Everything that the probe must leave as it was."""
    import torch.distributed.distributed_c10d as c10d
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    owners = [
        *(torch, torch.autograd, torch.serialization, torch.amp.GradScaler, torch.nn.Module, dist, dist.Work, c10d, os),
        *(dist.Reducer, DistributedDataParallel, DistributedSampler, optimizer.Optimizer, dataloader),
        *(dataloader._BaseDataLoaderIter, dataloader._SingleProcessDataLoaderIter, gc.callbacks),
        dataloader._MultiProcessingDataLoaderIter,
    ]
    attributes = {
        (getattr(owner, "__name__", ""), name): id(value)
        for owner in owners
        for name, value in (vars(owner).items() if hasattr(owner, "__dict__") else enumerate(owner))
        if name != "__warningregistry__"
    }
    hooks = (len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks))
    own = {str(one) for one in threading.enumerate() if one.name.startswith("ddpmon")}
    descriptors = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            descriptors.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return attributes, hooks, own, descriptors, list(sys.path)


def settled(before):
    """Return what differs from before, once nothing does any more or five seconds are over.

    DataLoader workers take and return descriptors all the time: only those that are new at every moment are ours.
    """
    deadline = time.monotonic() + 5
    while True:
        now = state()
        differences = [str(sorted(map(str, now[0].items() ^ before[0].items())))] if now[0] != before[0] else []
        differences += [f"{a} became {b}" for a, b in zip(before[1:3], now[1:3], strict=True) if a != b]
        new = {one for one in now[3] - before[3] if not one[1].startswith(("pipe:", "/dev/", "/proc/"))}
        differences += sorted(map(str, new))
        differences += [f"{before[4]} became {now[4]}"] if before[4] != now[4] else []
        if not differences or time.monotonic() > deadline:
            return differences
        time.sleep(0.01)


def wait_steps(count):
    target = steps + count
    while steps < target:
        time.sleep(0.001)


def attach_and_detach():
    folder = args.save.parent
    for number in range(args.attach):
        wait_steps(args.steps)
        before = state()
        time.sleep(args.delay if rank else 0)
        run = folder / f"run{number}"
        reply = folder / f"arm.{number}.{rank}"
        text = f"""
import sys
sys.path.append('/nowhere/ddpmon')
from ddpmon.probe import attached
attached.added_paths = ['/nowhere/ddpmon']
attached.arm(socket={args.socket!r}, run_id='test', folder={str(run)!r}, reply={str(reply)!r})
"""
        enter(text)
        answers = [answered(reply)]
        while len(list(run.glob("starts-*/[01]"))) < 2:  # steps count once both ranks know where they begin
            time.sleep(0.005)
        wait_steps(args.steps)
        reply = folder / f"disarm.{number}.{rank}"
        enter(f"from ddpmon.probe import attached\nattached.disarm(reply={str(reply)!r})")
        answers.append(answered(reply))
        print(json.dumps({"number": number, "answers": answers, "differences": settled(before)}), flush=True)


model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(16 * 2 * 25, 32), torch.randint(0, 10, (16 * 2 * 25,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=args.workers)
entering = threading.Thread(target=attach_and_detach)
entering.start()
epochs, entered = 0, torch.zeros(1)
while not entered and not 0 < args.epochs == epochs:
    sampler.set_epoch(epochs)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        ddpmon.log(true=steps)
        steps += 1
    model.eval()
    with torch.no_grad():
        model(data.tensors[0][:64])
    model.train()
    epochs += 1
    entered = torch.tensor([float(not args.epochs and not entering.is_alive())])
    dist.all_reduce(entered, dist.ReduceOp.MIN)
entering.join()
if args.attach and rank == 0:
    print(json.dumps({"epochs": epochs}), flush=True)
torch.save(model.state_dict(), f"{args.save}.{rank}")
dist.barrier()
del model
dist.destroy_process_group()
