"""Processes that have torch and no probe, by what the kernel tells of them."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon import proc
from ddpmon.analysis.processes.starts import ENVIRONMENT, FLAGS, LATE
from ddpmon.hub.unwatched_processes import Unwatched
from ddpmon.launch.probe_environment import INJECT_DIR
from ddpmon.runs import Process
from tests.conftest import wait_for

MAPS = """
import mmap, sys
kept = []
for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        kept.append(mmap.mmap(file.fileno(), 0))
print("ready", flush=True)
sys.stdin.read()
"""
"""Has what it is told to have mapped, as an import would."""
LAUNCHES = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@pytest.fixture
def command(tmp_path):
    """Start a launcher whose one child has files mapped that are named like these; the launcher's process."""
    started = []

    def call(*mapped, flags=(), inject=True, launcher=LAUNCHES, **variables):
        paths = []
        for name in mapped:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\0" * 4096)
            paths.append(str(path))
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "RANK"}} | variables
        if inject:
            environment["PYTHONPATH"] = str(INJECT_DIR)
        child = [sys.executable, *flags, "-c", MAPS, *paths]
        process = subprocess.Popen(
            [sys.executable, "-c", launcher, *child],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return Process.of(process.pid)

    yield call
    for process in started:
        process.communicate()


TORCH = "torch/lib/libtorch_python.so"
PROBE = "msgspec/_core.so"


@pytest.mark.parametrize(
    ("flags", "inject", "why"),
    [
        (("-E",), True, FLAGS),
        (("-I",), True, FLAGS),
        (("-X", "dev", "-Wignore", "-uE"), True, FLAGS),
        (("-u", "-W", "ignore"), True, LATE),
        ((), False, ENVIRONMENT),
    ],
)
def test_torch_without_the_probe_is_seen_with_the_reason(command, monkeypatch, flags, inject, why):
    """And for how long it had a core: an import may take minutes on a busy machine."""
    launcher = command(TORCH, flags=flags, inject=inject, RANK="3")
    unwatched = Unwatched(speaks_at_once=False)
    monkeypatch.setattr(proc, "core_wait_ns", lambda _: 2 * 10**9)
    assert [(one.rank, one.why, one.seconds) for one in unwatched.find_unarmed(launcher, {}, 5.0)] == [(3, why, 0.0)]
    monkeypatch.setattr(proc, "core_wait_ns", lambda _: 9 * 10**9)
    assert [one.seconds for one in unwatched.find_unarmed(launcher, {}, 17.0)] == [5.0]


def test_a_process_with_the_probe_or_without_torch_is_none(command):
    assert Unwatched(speaks_at_once=False).find_unarmed(command(TORCH, PROBE, flags=("-E",)), {}, 0.0) == []
    assert Unwatched(speaks_at_once=False).find_unarmed(command(flags=("-E",)), {}, 0.0) == []


def test_a_rank_of_torchrun_that_has_the_probe_and_is_not_heard_is_told_of_in_the_end(command):
    (seen,) = Unwatched(speaks_at_once=True).find_unarmed(command(TORCH, PROBE, RANK="1"), {}, 0.0)
    assert (seen.rank, seen.why) == (1, LATE)


def test_what_was_heard_is_watched_and_what_is_below_it_is_its_own(command):
    launcher = command(TORCH, flags=("-E",))
    unwatched = Unwatched(speaks_at_once=False)
    (seen,) = unwatched.find_unarmed(launcher, {}, 0.0)
    assert seen.rank is None
    assert unwatched.find_unarmed(launcher, {seen.pid}, 1.0) == []
    assert Unwatched(speaks_at_once=False).find_unarmed(launcher, {launcher.pid}, 1.0) == []


def test_what_has_ended_is_told_of_as_it_was_seen_last(command):
    launcher = command(TORCH, flags=("-E",), launcher=LAUNCHES + "; sys.stdin.read()")
    unwatched = Unwatched(speaks_at_once=False)
    (seen,) = unwatched.find_unarmed(launcher, {}, 0.0)
    assert not seen.gone
    os.kill(seen.pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{seen.pid}").exists())
    (ended,) = unwatched.find_unarmed(launcher, {}, 1.0)
    assert ended == dataclasses.replace(seen, gone=True)
