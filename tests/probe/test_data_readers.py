"""Processes that load data are seen computing, waiting for storage or for something else, and where they read."""

import os
import subprocess
import sys
import threading
import time

import pytest

from ddpmon.messages import StackSamples, encode
from ddpmon.messages.wire import decode_from_rank
from ddpmon.probe.data_readers import DataReaders

WAITS = """
import os, sys
file = open(sys.argv[1])
if sys.argv[2] == "storage":
    # The kernel lets a process wait as for a disk until what it started is another program.
    opens = [(os.POSIX_SPAWN_OPEN, 9, sys.argv[3], os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=opens)
elif sys.argv[2] == "computing":
    while True: pass
else:
    sys.stdin.read()
"""


@pytest.fixture
def process(tmp_path):
    """Returns a function that starts a process in a state."""
    started = []
    (tmp_path / "data").write_text("x")
    os.mkfifo(tmp_path / "never")

    def start(what):
        arguments = [sys.executable, "-c", WAITS, tmp_path / "data", what, tmp_path / "never"]
        started.append(subprocess.Popen(arguments, stdin=subprocess.PIPE))
        return started[-1].pid

    yield start
    if os.path.exists(tmp_path / "never"):
        os.close(os.open(tmp_path / "never", os.O_RDWR | os.O_NONBLOCK))
    for one in started:
        one.kill()
        one.communicate()


@pytest.mark.parametrize(("what", "state"), [("storage", "blocked"), ("computing", "running"), ("a pipe", "")])
def test_a_worker_is_seen_in_its_state(process, what, state, tmp_path):
    pid, end = process(what), time.monotonic() + 60
    while time.monotonic() < end:
        readers = DataReaders([pid])
        for _ in range(20):
            readers.record_state(pid, 0)
            time.sleep(0.02)
        (found,), (mount, kind) = readers.activity_and_mount({pid: (4, 3)})
        seen = {"blocked": found.blocked, "running": found.running, "": found.looks - found.running - found.blocked}
        if seen[state] >= 15:
            break
    assert seen[state] >= 15, found
    assert (found.pid, found.looks, found.checks, found.idle) == (pid, 20, 4, 3)
    assert found.cores > 0.05 or what != "computing"
    assert bool(kind) is (what == "storage")
    assert not kind or str(tmp_path).startswith(mount)


def test_a_rank_without_workers_is_seen_itself():
    readers = DataReaders([])
    for had_gil in (False, True):
        readers.record_state(0, threading.get_native_id(), had_gil=had_gil)
    made, (mount, _) = readers.activity_and_mount({})
    told = StackSamples(0, os.getpid(), 1, 1, 1, 1000, 1, [], readers=made, mount=mount)
    assert decode_from_rank(encode(told)) == told, "the hub takes it"
    (found,) = made
    assert (found.pid, found.looks, found.running, mount) == (os.getpid(), 2, 2, "")


def test_a_process_that_has_ended_or_is_no_worker_is_not_counted():
    readers = DataReaders([os.getpid()])
    readers.record_state(1, 0)
    readers.record_state(0, 0)
    assert readers.activity_and_mount({})[0][0].looks == 0
