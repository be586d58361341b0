"""Test which kills are for want of memory: made-up counters, and real processes in a cgroup with a limit."""

import contextlib
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.launch.exit_traces import MemoryKills, read_kill_counts
from tests.conftest import wait_for

LIMIT_BYTES = 1 << 30
GREEDY = """
import os, time
kept = []
while os.environ["RANK"] == "1":
    kept.append(b"x" * (64 << 20))
    time.sleep(0.02)
time.sleep(600)
"""
"""Rank 1 takes memory piece by piece until it is killed; rank 0 stands by until torchrun ends it."""


@pytest.fixture
def proc(tmp_path):
    """A made-up /proc and its cgroup file systems: by name kind, options and root of each."""

    def make(cgroups: str, mounts: dict[str, tuple[str, str, str]], **files: str) -> Path:
        for name, text in {"proc/self/cgroup": cgroups, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        lines = [
            f"30 20 0:30 {root} {tmp_path / name} rw,relatime shared:9 - {kind} cgroup {options}\n"
            for name, (kind, options, root) in mounts.items()
        ]
        (tmp_path / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/root rw\n" + "".join(lines))
        return tmp_path / "proc"

    return make


@pytest.mark.parametrize("place", ["a/b/", "a/", ""])
def test_a_cgroup_of_version_2_counts_for_itself_or_the_closest_above_does(proc, place):
    files = {f"cg/{place}memory.events": "low 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n"}
    assert read_kill_counts(proc("0::/a/b\n", {"cg": ("cgroup2", "rw", "/")}, **files)) == MemoryKills(2, None)


def test_a_cgroup_of_version_1_counts_beside_an_empty_version_2(proc):
    mounts = {"two": ("cgroup2", "rw", "/"), "cpu": ("cgroup", "rw,cpu", "/"), "one": ("cgroup", "rw,memory", "/")}
    made = proc(
        "4:memory:/job\n2:cpu:/other\n0::/\n", mounts, **{
            "one/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "one/memory.oom_control": "oom_kill 8\n",
            "proc/vmstat": "pgfault 1\noom_kill 11\n",
        }
    )  # fmt: skip
    assert read_kill_counts(made) == MemoryKills(3, 11)


def test_in_a_container_the_mount_is_the_cgroup_itself(proc):
    for mounted in ("/docker/abc", "/elsewhere"):
        mounts = {"cg": ("cgroup", "rw,memory", mounted)}
        made = proc("4:memory:/docker/abc\n", mounts, **{"cg/memory.oom_control": "oom_kill 1\n"})
        assert read_kill_counts(made).cgroup == 1


@pytest.mark.parametrize("text", ["", "oom_kill", "oom_kill x\n", "oom_kill_disable 0\n"])
def test_what_does_not_count_is_not_known(proc, text):
    made = proc("0::/\n", {"cg": ("cgroup2", "rw", "/")}, **{"cg/memory.events": text, "proc/vmstat": text})
    assert read_kill_counts(made) == MemoryKills(None, None)


def test_without_proc_nothing_is_known(tmp_path):
    assert read_kill_counts(tmp_path) == MemoryKills(None, None)


@pytest.mark.parametrize(
    ("before", "now", "where"),
    [
        (MemoryKills(1, 5), MemoryKills(2, 6), "cgroup"),
        (MemoryKills(1, 5), MemoryKills(1, 6), ""),  # another's
        (MemoryKills(None, 5), MemoryKills(None, 6), "host"),
        (MemoryKills(None, 5), MemoryKills(None, 5), ""),
        (MemoryKills(None, None), MemoryKills(None, 3), ""),
    ],
)
def test_only_what_rose_tells_something(before, now, where):
    assert now.increased_since(before) == where


def limited_cgroup() -> Path | None:
    """A new memory cgroup with a limit, of version 1 or 2; None where none can be made."""
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = Path(top) / f"ddpmon-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                (folder / limit).write_text(str(LIMIT_BYTES))
                return folder
            folder.rmdir()
    return None


@pytest.fixture
def limited():
    """The file of a memory cgroup with a limit that who wants to be in it writes itself into."""
    made = limited_cgroup()
    if made is None:
        pytest.skip("no memory cgroup can be made here: that takes root and the memory controller")
    members = made / "cgroup.procs"
    yield members
    wait_for(lambda: not members.read_text())
    made.rmdir()


@pytest.mark.e2e
def test_a_rank_that_the_kernel_killed_for_want_of_memory_is_told_as_that(home, tmp_path, limited):
    script = tmp_path / "greedy.py"
    script.write_text(GREEDY)
    command = [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", "2", str(script)]
    ended = subprocess.run(
        command, cwd=home, capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: limited.write_text(str(os.getpid())),
    )  # fmt: skip
    found = runs.find(None)
    assert found.memory_kills == "cgroup", ended.stdout + ended.stderr
    made = report.build(found)
    assert made["verdict"].startswith("rank 1 failed first: killed by SIGKILL, out of memory; 1 other")
    assert "DataLoader workers" in made["findings"][0]["advice"]
