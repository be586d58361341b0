"""DataLoader workers that a rank waits for show where they are, through the rank's own signal handler."""

import os
import subprocess
import sys

import pytest

from ddpmon.messages.folder import Places
from ddpmon.probe.worker_sampler import STARTED_BY, WorkerSampler

pytestmark = pytest.mark.e2e
SCRIPT = """
import os, sys, time
sys.path.append({light!r})
import eager
import torch
from torch.utils.data import DataLoader, Dataset
from ddpmon.probe import stack_signal
from ddpmon.probe.stack import places
from ddpmon.probe.worker_sampler import WorkerSampler

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        while True:
            time.sleep(0.01)  # here

stack_signal.arm(places())
iterator = iter(DataLoader(Slow(), num_workers=1))
(worker,) = iterator._workers
sampler, stacks, end = WorkerSampler(), [], time.monotonic() + 60
while time.monotonic() < end and not any("__getitem__" in frame for one in stacks for frame in one.frames):
    for _ in range(10):
        sampler.take(worker.pid)
        time.sleep(0.05)
    stacks = sampler.result(places())
(found,) = [one for one in stacks if any("__getitem__" in frame for frame in one.frames)]
print([found.frames[index] for index in found.own], found.frames[-1], worker.is_alive(), sep="\\n")
sampler.take(os.getppid())  # no worker of this process: it must not be signalled
print(os.stat(stack_signal.answer_path()).st_size)
worker.kill()
os._exit(0)
"""


def test_a_forked_worker_is_seen_in_its_own_frames_and_goes_on(tmp_path):
    tmp_path.chmod(0o700)
    script = tmp_path / "train.py"
    light = os.path.join(os.path.dirname(__file__), os.pardir, "light")
    script.write_text(SCRIPT.format(light=os.path.abspath(light)))
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "# here" in text)
    environment = os.environ | {"DDPMON_RUN_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    own, last, alive, size = done.stdout.splitlines()
    wanted = {f"['train.py:{line} {name}']" for name in ("__getitem__", "Slow.__getitem__")}  # by version of Python
    assert own in wanted, "not the loop that started the worker"
    assert last.startswith(STARTED_BY)
    assert (alive, size) == ("True", "0"), "the file was emptied, and only a worker of this process was asked"


def test_without_an_offer_to_answer_nobody_is_asked():
    sampler = WorkerSampler()
    sampler.take(os.getppid())
    assert sampler.result(Places("/nowhere/", [], [])) == []


SIBLINGS = """
import sys, time
sys.path.append({light!r})
import eager
from torch.utils.data import DataLoader, Dataset
from ddpmon.probe import stack_signal
from ddpmon.probe.stack import places
from ddpmon.probe.worker_sampler import WorkerSampler

class Uneven(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        while index % 2 == 0:
            time.sleep(0.01)  # only worker 0 has these
        return index

stack_signal.arm(places())
iterator = iter(DataLoader(Uneven(), batch_size=None, num_workers=2))
slow, idle = (worker.pid for worker in iterator._workers)
sampler, end = WorkerSampler(), time.monotonic() + 60
while time.monotonic() < end and sampler.idle.get(idle, (0, 0))[1] < 3:
    sampler.take(slow, [slow, idle])
    time.sleep(0.05)
print(sorted(sampler.idle) == [idle], sampler.idle[idle][1] >= 3)
stacks = [one for one in sampler.result(places()) if one.own]
print([one.frames[one.own[0]].split()[-1].split(".")[-1] for one in stacks][:1])
for worker in iterator._workers:
    worker.kill()
import os
os._exit(0)
"""


def test_workers_that_the_rank_does_not_wait_for_are_seen_idle_and_are_no_samples(tmp_path):
    tmp_path.chmod(0o700)
    light = os.path.join(os.path.dirname(__file__), os.pardir, "light")
    script = tmp_path / "train.py"
    script.write_text(SIBLINGS.format(light=os.path.abspath(light)))
    environment = os.environ | {"DDPMON_RUN_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["True True", "['__getitem__']"], done.stderr
