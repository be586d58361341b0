"""DataLoader workers that a rank waits for show where they are, through the rank's own signal handler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.messages.folder import Places
from ddpmon.probe.worker_sampler import STARTED_BY, WorkerSampler

pytestmark = pytest.mark.e2e
LIGHT = Path(__file__).parents[1] / "light"
SCRIPT = f"""
import os, sys, time
sys.path.append({str(LIGHT)!r})
import eager
from torch.utils.data import DataLoader, Dataset
from ddpmon.probe import stack_signal
from ddpmon.probe.stack_report import places
from ddpmon.probe.worker_sampler import WorkerSampler

class Uneven(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        while index % 2 == 0:  # only worker 0 has these
            time.sleep(0.01)  # here
        return index

stack_signal.arm(places())
iterator = iter(DataLoader(Uneven(), batch_size=None, num_workers=2))
slow, idle = iterator._workers
sampler, stacks, end = WorkerSampler(), [], time.monotonic() + 60
while time.monotonic() < end and (sampler.idle.get(idle.pid, (0, 0))[1] < 3 or "__getitem__" not in str(stacks)):
    for _ in range(10):
        sampler.take(slow.pid, [slow.pid, idle.pid])
        time.sleep(0.05)
    stacks = sampler.result(places())
found = next(one for one in stacks if any("__getitem__" in frame for frame in one.frames))
print([found.frames[index] for index in found.own], found.frames[-1], sep="\\n")
print(sorted(sampler.idle) == [idle.pid], sampler.idle[idle.pid][1] >= 3, slow.is_alive())
sampler.take(os.getppid())  # no worker of this process: it must not be signalled
print(os.stat(stack_signal.answer_path()).st_size)
slow.kill()
os._exit(0)
"""


def test_a_forked_worker_is_seen_in_its_own_frames_and_goes_on_and_an_idle_one_is_no_sample(tmp_path):
    tmp_path.chmod(0o700)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    line = next(n for n, text in enumerate(SCRIPT.splitlines(), 1) if "# here" in text)
    environment = os.environ | {"DDPMON_RUN_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    own, last, *facts = done.stdout.splitlines()
    wanted = {f"['train.py:{line} {name}']" for name in ("__getitem__", "Uneven.__getitem__")}  # by version of Python
    assert own in wanted, "not the loop that started the worker"
    assert last.startswith(STARTED_BY)
    assert facts == ["True True True", "0"], "the file was emptied, and only a worker of this process was asked"


def test_without_an_offer_to_answer_nobody_is_asked():
    sampler = WorkerSampler()
    sampler.take(os.getppid())
    assert sampler.result(Places("/nowhere/", [], [])) == []
