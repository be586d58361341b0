"""Test whether a rank's processes do anything, by the kernel's counters."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ddpmon.hub.cpu_activity import CpuActivity
from ddpmon.messages import Sample

WINDOW_S = 10.0
CHILD = """
import subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=sys.stdout)
for line in sys.stdin:
    rank.stdin.write(line.encode()); rank.stdin.flush()
"""
WORKER = """
import os, sys, time
zeros = open("/dev/zero", "rb")
print(os.getpid(), flush=True)
for line in sys.stdin:
    if line == "compute\\n":
        end = time.process_time() + 1.5
        while time.process_time() < end: pass
    if line == "read\\n":
        for _ in range(20): zeros.read(1 << 20)
    print("done", flush=True)
"""


@pytest.fixture
def rank():
    """A process with one child that does as it is told."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    yield process
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


def looked(rank, what, samples=()):
    """Return whether it counts as idle, having done this between two looks that are said to be some seconds apart."""
    process = SimpleNamespace(hello=SimpleNamespace(pid=rank.pid), samples=samples)
    working = CpuActivity(WINDOW_S)
    working.measure([rank.pid], 0.0)
    assert not working.is_idle(process), "one look tells nothing"
    rank.stdin.write(f"{what}\n")
    rank.stdin.flush()
    assert rank.stdout.readline() == "done\n"
    working.measure([rank.pid], WINDOW_S)
    return working.is_idle(process)


@pytest.mark.parametrize(("what", "idle"), [("rest", True), ("compute", False), ("read", False)])
def test_what_children_do_is_work_too(rank, what, idle):
    assert looked(rank, what) is idle


def test_a_busy_gpu_is_work(rank):
    assert not looked(rank, "rest", [Sample(1, gpu_percent=80.0)])
    assert looked(rank, "rest", [Sample(1, gpu_percent=0.0)])


def test_a_child_that_came_or_went_means_that_something_happens(rank):
    process = SimpleNamespace(hello=SimpleNamespace(pid=os.getpid()), samples=())
    working = CpuActivity(WINDOW_S)
    working.measure([os.getpid()], 0.0)
    child = subprocess.Popen(["sleep", "60"])
    try:
        working.measure([os.getpid()], WINDOW_S)
        assert not working.is_idle(process)
    finally:
        child.kill()
        child.wait()
