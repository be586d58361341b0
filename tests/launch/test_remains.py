"""Test that every process left of a run whose supervisor was killed is found and ended, however it tried to leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ddpmon import proc, runs
from ddpmon.launch import run_processes
from tests.conftest import wait_for

LEAVES = (
    "env -i sleep 600",  # with an empty environment, printing where the command prints
    "env -i setsid sleep 600 </dev/null 2>/dev/null",  # as `exec -c` does, with a new session
    "env -i sleep 600 >/dev/null 2>&1 </dev/null",  # printing nowhere, in the command's session
    "setsid sh -c 'sleep 600 & exit' >/dev/null 2>&1 </dev/null",  # by a double fork and a session of its own
    # as a child that left everything, of a parent that did not
    "setsid sh -c 'env -i setsid sleep 600 >/dev/null 2>&1 </dev/null & sleep 601 & wait' >/dev/null 2>&1",
)
SLEEPERS = len(LEAVES) + 2
"""Sleeping processes: those that leave, the sibling of the last one, and the command's own."""


def sleepers(mark: str) -> set[int]:
    """Processes of a test by a folder that they work in."""
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd") == mark:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def test_whatever_tried_to_leave_is_found_and_ended(launch, cli, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    started = launch("sh", "-c", f"cd {place}; {' & '.join(LEAVES)} & sleep 600")
    wait_for(lambda: [_command(pid) for pid in sleepers(str(place))].count("sleep\n") == SLEEPERS)
    os.kill(started.run.supervisor.pid, signal.SIGKILL)
    os.kill(started.run.agent.pid, signal.SIGKILL)
    wait_for(lambda: not started.run.supervised() and not started.run.agent.alive())
    left = sleepers(str(place))
    try:
        found = {process.pid for process in run_processes.of_run(started.id)}
        assert [proc.arguments(pid) for pid in left - found] == []
        assert len(left) >= SLEEPERS
        told = cli("stop", started.id, "--now")
        assert told.returncode == 0, told.stderr
        assert not sleepers(str(place))
    finally:
        for pid in sleepers(str(place)):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def test_who_only_reads_a_run_is_none_of_its_processes(launch):
    started = launch("sleep", "600")
    wait_for(lambda: started.run.agent)
    log = started.folder / "logs" / "launcher.log"
    wait_for(log.exists)
    with log.open("rb") as file, subprocess.Popen(["sleep", "600"], stdin=file, cwd=started.folder) as reader:
        found = run_processes.of_run(started.id)
        reader.kill()
    assert found == [started.run.agent], "neither its supervisor nor its hub nor this process"


def test_a_session_that_was_called_after_the_commands_pid_later_is_left_alone(launch):
    started = launch("true")
    started.until_gone()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        now = wait_for(lambda: runs.Process.of(stranger.pid))
        runs.update(started.id, ended_at=None, agent=runs.Process(now.pid, now.start_ticks - 1))
        assert run_processes.of_run(started.id) == []
        runs.update(started.id, agent=now)
        assert run_processes.of_run(started.id) == [now]
        stranger.kill()


REUSED = """
import os, signal, sys, time
from ddpmon.launch import processes
from ddpmon.runs import Process

def child():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    os.setpgid(pid, pid)
    return pid

def is_alive(process):
    # between this look and the signal the process ends, and its pid is given to another
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(process.pid - 1))
    assert child() == process.pid
    return True

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
Process.alive = is_alive
meant = Process.of(child())
processes.send_signal(meant, signal.SIGTERM, to_group=sys.argv[1] == "group")
print(next(line for line in open(f"/proc/{meant.pid}/status") if line.startswith("ShdPnd")).split()[1])
os.kill(meant.pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("to", ["process", "group"])
def test_a_pid_that_is_given_to_another_in_the_last_moment_is_not_signalled(other_namespace, to):
    done = subprocess.run(
        [*other_namespace, sys.executable, "-c", REUSED, to], capture_output=True, text=True, check=False, timeout=60
    )
    if "ns_last_pid" in done.stderr:
        pytest.skip("pids cannot be chosen here")
    assert (done.stdout, done.stderr) == (f"{0:016x}\n", ""), "no signal is pending"


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("refused", ["pidfd_open", "pidfd_send_signal"])
def test_a_kernel_without_pidfds_signals_as_ever(monkeypatch, to_group, refused):
    from ddpmon.launch import processes

    def no_such_call(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os if refused == "pidfd_open" else signal, refused, no_such_call)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as sleeper:
        processes.send_signal(wait_for(lambda: runs.Process.of(sleeper.pid)), signal.SIGTERM, to_group=to_group)
        assert sleeper.wait(30) == -signal.SIGTERM
