"""Makes torch, Python and the system fail in known ways, and prints what the probe tells of each: a line of JSON."""

import gzip
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from ddpmon.probe.failure_facts import facts_of
from ddpmon.probe.sender import one_line


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes, self.boxes = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.classes(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return checkpoint(self.layer, checkpoint(self.layer, x, use_reentrant=True), use_reentrant=True)


class Data(Dataset):
    def __init__(self, act):
        self.act = act

    def __len__(self):
        return 2

    def __getitem__(self, _):
        self.act()
        return torch.ones(2)


def unused_parameters():
    model = DistributedDataParallel(Heads())
    model(torch.ones(1, 4)).sum().backward()
    model(torch.ones(1, 4))


def ready_twice():
    model = DistributedDataParallel(Twice(), find_unused_parameters=True)
    model(torch.ones(1, 4, requires_grad=True)).sum().backward()


def different_models():
    model = DistributedDataParallel(Heads().requires_grad_(requires_grad=True))
    model.module.boxes.requires_grad_(requires_grad=False)
    said = "DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent 4 params."
    raise RuntimeError(said)


def inplace():
    made = torch.ones(3, requires_grad=True).exp()
    made.add_(1)
    made.sum().backward()


def port_in_use(held):
    held.bind(("127.0.0.1", 0))
    held.listen()
    dist.TCPStore("127.0.0.1", held.getsockname()[1], 2, is_master=True)


def port_freed():
    with socket.socket() as held:
        port_in_use(held)


def nobody_came():
    dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=timedelta(seconds=1))


def load(act, **options):
    for _ in DataLoader(Data(act), num_workers=1, **options):
        pass


def worker_killed(by):
    load(lambda: os.kill(os.getpid(), by))


def worker_raises():
    load(lambda: int("seven"))


def not_picklable():
    load(lambda: None, multiprocessing_context="spawn")


def disk_full():
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def open_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    files = []
    try:
        while True:
            files.append(open("/dev/null"))  # noqa: SIM115
    finally:
        for file in files:
            file.close()


def made_meanwhile(folder):
    path = os.path.join(folder, "download")
    os.mkdir(path)
    os.mkdir(path)


def made_before(folder):
    path = os.path.join(folder, "older")
    os.mkdir(path)
    os.utime(path, (0, time.time() - 86_400))
    os.mkdir(path)


def incomplete_archive(folder):
    path = os.path.join(folder, "data.gz")
    with open(path, "wb") as file:
        file.write(gzip.compress(os.urandom(1000))[:500])
    with gzip.open(path) as file:
        file.read()


def incomplete_checkpoint(folder):
    path = os.path.join(folder, "model.pt")
    torch.save(torch.ones(1000), path)
    os.truncate(path, 2000)
    torch.load(path)


def no_module():
    import no_such_module  # noqa: F401


def label():
    nn.functional.cross_entropy(torch.ones(1, 3), torch.tensor([7]))


def token():
    nn.Embedding(3, 2)(torch.tensor([7]))


def main():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
        cases = {case.__name__: case for case in (unused_parameters, ready_twice, different_models, inplace)}
        cases |= {case.__name__: case for case in (port_freed, nobody_came, worker_raises, not_picklable, disk_full)}
        cases |= {case.__name__: case for case in (no_module, label, token)}
        for name in ("SIGBUS", "SIGKILL", "SIGSEGV"):
            cases[name] = lambda name=name: worker_killed(getattr(signal, name))
        for case in (made_meanwhile, made_before, incomplete_archive, incomplete_checkpoint):
            cases[case.__name__] = lambda case=case: case(folder)
        cases["port_in_use"] = lambda: port_in_use(held)
        cases["open_files"] = open_files  # last: the limit stays
        for name, case in cases.items():
            try:
                case()
            except Exception as error:
                facts = facts_of(error)
                text = "".join(traceback.format_exception(error))
                print(json.dumps([name, one_line(error), text, facts]), flush=True)
                error = None
    sys.stdout.flush()


if __name__ == "__main__":
    main()
