"""A rank that gets no core learns which programs have it, and whether a quota of its container is used up."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from ddpmon.cgroups import Cgroup
from ddpmon.probe.cpu_rivals import RIVALS_INTERVAL_S, RivalSearch, Throttling, _script, read_throttling

SPIN = "import sys, time\nend = time.monotonic() + 60\nprint(flush=True)\nwhile time.monotonic() < end: pass\n"


@pytest.fixture
def busy(tmp_path):
    """A program, not of this process's run, that keeps a core busy, started as a service is."""
    with spinning(tmp_path / "busy.py") as name:
        yield name


@contextlib.contextmanager
def spinning(script):
    script.write_text(SPIN)
    code = "import os, subprocess, sys; subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True)"
    read, write = os.pipe()
    subprocess.run([sys.executable, "-c", code, str(script)], stdout=write, check=True, pass_fds=[write])
    os.close(write)
    assert os.read(read, 1), "it has begun"
    try:
        yield script.name
    finally:
        subprocess.run(["pkill", "-f", str(script)], check=False)
        os.close(read)


def looked(search, now):
    return search.find_rivals(0.9, os.getpid(), now, lambda: None)


def until_named(search, name):
    """Look as a rank does, once a second, until a program is named; on a busy machine it gets little of a core."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert looked(search, began := time.monotonic()) is None
        time.sleep(1.0)
        found = looked(search, time.monotonic())
        assert found is not None, began
        if any(name in program.name for program in found.programs):
            return found
        search = RivalSearch("run")
    raise AssertionError(found)


def test_a_busy_program_is_named_with_its_script(busy):
    found = until_named(RivalSearch("run"), busy)
    program = next(program for program in found.programs if busy in program.name)
    assert program.name.startswith("python")
    assert 0.1 <= program.cores <= 1.5
    assert program.title.startswith(f"process {program.pid} (python")
    assert os.getpid() not in [program.pid for program in found.programs]


def test_a_dashboard_of_ddpmon_is_no_rival(busy, tmp_path):
    with spinning(tmp_path / "ddpmon"):
        found = until_named(RivalSearch("run"), busy)
    assert not [program for program in found.programs if program.name.endswith("ddpmon")]


def test_a_program_that_the_script_starts_is_named_and_its_workers_are_not(tmp_path):
    script, rank = tmp_path / "beside.py", tmp_path / "rank.py"
    script.write_text(SPIN)
    rank.write_text(
        "import json, multiprocessing, os, subprocess, sys, time\n"
        "from ddpmon.probe.cpu_rivals import RivalSearch\n"
        "def spin():\n    while True: pass\n"
        "if __name__ == '__main__':\n"
        "    program = subprocess.Popen([sys.executable, sys.argv[1]], stdout=subprocess.DEVNULL)\n"
        "    ways = [multiprocessing.get_context(way) for way in ('fork', 'spawn')]\n"
        "    workers = [way.Process(target=spin, daemon=True) for way in ways]\n"
        "    [worker.start() for worker in workers]\n"
        "    found, end = [], time.monotonic() + 90\n"
        "    while time.monotonic() < end and program.pid not in found:\n"
        "        search = RivalSearch('run')\n"
        "        search.find_rivals(0.9, os.getpid(), time.monotonic(), lambda: None)\n"
        "        time.sleep(1.0)\n"
        "        rivals = search.find_rivals(0.9, os.getpid(), time.monotonic(), lambda: None)\n"
        "        found = [one.pid for one in rivals.programs]\n"
        "    print(json.dumps([found, program.pid, [worker.pid for worker in workers]]), flush=True)\n"
        "    program.kill()\n"
    )
    environment = os.environ | {"DDPMON_RUN_ID": "run"}
    done = subprocess.run(
        [sys.executable, rank, script], env=environment, stdout=subprocess.PIPE, text=True, timeout=150, check=True
    )
    found, program, workers = json.loads(done.stdout)
    assert program in found
    assert not set(workers) & set(found)


def test_nothing_is_read_while_the_rank_gets_its_cores_and_seldom_else():
    search = RivalSearch("run")
    assert looked(search, 100.0) is None
    assert search.find_rivals(0.0, os.getpid(), 101.0, lambda: None) is None
    assert looked(search, 102.0) is None, "the reading before is too old to compare with"
    assert looked(search, 103.0) is not None
    assert looked(search, 103.0 + RIVALS_INTERVAL_S - 1) is None
    assert looked(search, 103.0 + RIVALS_INTERVAL_S) is None
    assert looked(search, 104.0 + RIVALS_INTERVAL_S) is not None


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (2, {"cpu.max": "50000 100000\n", "cpu.stat": "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n"}),
        (1, {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000", "cpu.stat": "throttled_time 2500000000\n"}),
    ],
)
def test_the_quota_of_a_cgroup_is_read(tmp_path, version, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    unlimited = tmp_path / "above"
    unlimited.mkdir()
    (unlimited / "cpu.max").write_text("max 100000")
    cgroups = [Cgroup(tmp_path, version), Cgroup(unlimited, 2), Cgroup(tmp_path / "none", version)]
    assert read_throttling(lambda: cgroups) == Throttling(0.5, 2.5)
    assert read_throttling(lambda: cgroups[1:]) is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-u", "jobs/eval.py", "--all"], "eval.py"),
        (["-m", "http.server", "80"], "-m http.server"),
        (["-c", "import sys; x = 'secret'"], "-c"),
        (["-W", "ignore::UserWarning", "eval.py"], "eval.py"),
        (["-i"], ""),
        ([], ""),
    ],
)
def test_an_interpreter_is_named_with_what_it_runs(words, named):
    assert _script(["python", *words]) == named
