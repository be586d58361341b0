"""Trains alone, and closes, replaces and reuses every descriptor that it does not own, as daemons do."""

import ctypes
import os
import sys
import time
from pathlib import Path

import torch

here = Path(sys.argv[1])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def strangers() -> dict[int, str]:
    """Open descriptors above standard error, and what each stands for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # that of the listing itself
            continue
    return {number: link for number, link in found.items() if number > 2}


def train() -> None:
    """Make five steps, once the probe has both its descriptors."""
    for _ in range(5):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    deadline = time.monotonic() + 60
    while not {"socket", "stack"} <= {link[:6] if link[:6] == "socket" else link[-5:] for link in strangers().values()}:
        assert time.monotonic() < deadline, strangers()
        time.sleep(0.01)


os.closerange(3, 4096)  # before the probe has made its own
train()
os.closerange(3, 4096)
train()
ctypes.CDLL(None).closefrom(3)
train()
theirs = os.open(here / "theirs", os.O_RDWR | os.O_CREAT)
for taken in strangers():
    if taken != theirs:
        os.dup2(theirs, taken)
train()
daemon = os.fork()
if daemon == 0:
    numbers = list(strangers())
    os.closerange(0, 4096)
    own = os.open(here / "daemon", os.O_WRONLY | os.O_CREAT)
    for number in numbers:
        os.dup2(own, number)
    os.write(numbers[-1], b"alive")
    sys.exit()
os.waitpid(daemon, 0)
train()
