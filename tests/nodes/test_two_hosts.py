"""Real runs on two hosts: torchrun over gloo in two network namespaces, two ranks each."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess

import psutil
import pytest

from tests import conftest, ranks
from tests.nodes.hosts import APART_S, HUB_PORT, LAUNCH_S, TRAIN, cable

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
def hosts():
    yield from cable()


wait_for = functools.partial(conftest.wait_for, every_s=0.3)  # what a host says costs more than waiting


def says(host, words):
    """Wait until `ddpmon status` on a host says something; returns all that it says then."""
    last = ""

    def found():
        nonlocal last
        last = host.cli("status").stdout
        return words in last and last

    try:
        return wait_for(found, LAUNCH_S)
    except AssertionError:
        raise AssertionError(f"{host.name} never says {words!r}, but {last}\n{host.log()}") from None


def report(host):
    return json.loads(host.cli("report", "--format", "json").stdout)


def events(host):
    """Return the output of `ddpmon run --headless`."""
    return host.log()


def kill(host, word, variable=""):
    """End every process of a host's run with a word in its command line, and with a variable, at once."""
    wanted = {f"DDPMON_HOME={host.folder / 'home'}", variable} - {""}
    for process in psutil.process_iter(["cmdline"]):
        if word in (process.info["cmdline"] or []) and wanted.issubset(_environment(process)):
            process.kill()


def _environment(process):
    try:
        return [f"{name}={value}" for name, value in process.environ().items()]
    except psutil.Error:
        return []


def test_a_late_rank_a_cut_cable_a_killed_hub_and_a_stop(hosts):
    one, two = hosts.hosts
    for host in (one, two):
        host.train(LATE="3")
    for host in (one, two):
        told = says(host, "rank 3 is slow")
        assert "data" in told
        assert "4 ranks on 2 nodes" in told
        assert "rank 3" in host.cli("report").stdout

    hosts.cut()
    wait_for(lambda: "host1 is gone: ranks 2-3" in events(one), 60)
    hosts.heal()
    wait_for(lambda: "host1 is back" in events(one), 60)
    wait_for(lambda: all(rank["steps"] for rank in report(one)["ranks"]), 60)
    before = report(one)["steps"]["count"]
    wait_for(lambda: report(one)["steps"]["count"] > before + 20, 60)
    assert report(one)["steps"]["records_lost"] == 0

    # First the viewer, which would have another supervisor take over, then that, which would start another hub.
    for word in ("--headless", "ddpmon.launch.supervisor", "ddpmon.hub"):
        kill(two, word)
    wait_for(lambda: "no data from host1 (ranks 2-3" in events(one), 60)
    step = report(one)["ranks"][0]["steps"]
    wait_for(lambda: report(one)["ranks"][0]["steps"] > step + 20, 60)

    # `status` sees to a new supervisor, and that to a new hub.
    wait_for(lambda: two.cli("status") and events(one).count("host1 is back") == 2, 60)
    says(two, "4 ranks on 2 nodes")
    assert two.cli("stop").returncode == 0
    assert one.started[0].wait(60) != 0
    for host in (one, two):
        assert report(host)["run"]["state"] == "stopped", host.log()


def test_one_ddpmon_a_rank_under_srun_is_one_run_on_each_host_with_the_weights_of_bare_ranks(hosts):
    one, two = hosts.hosts
    key, watched, plain = (one.folder / name for name in ("key", "watched.pt", "plain.pt"))
    assert one.cli("key", str(key)).returncode == 0
    where = ("--hub", f"{one.address}:{HUB_PORT}", "--hub-key", str(key))
    variables = {"STEPS": "60", "LATE": "2 3"}
    two.train_as_srun_tasks(*where, **variables)
    wait_for(lambda: f"no connection to the hub at {one.address}:{HUB_PORT}" in events(two), LAUNCH_S)
    one.train_as_srun_tasks(*where, WEIGHTS=str(watched), **variables)
    for host in (one, two):
        for started in host.started:
            assert started.wait(LAUNCH_S) == 0, host.log()
        run, *_ = json.loads(host.cli("ls", "--json").stdout)
        assert run["name"] == host.name

    bare = os.environ | variables | {"WEIGHTS": str(plain), "OMP_NUM_THREADS": "1"}
    done = ranks.run(
        4, TRAIN, environment=bare, modules=ranks.LIGHT
    )  # on one host: where ranks are changes nothing of what they compute
    assert done.returncode == 0, done.stderr
    assert len(watched.read_bytes()) == 4 * (8 * 4 + 4)
    assert watched.read_bytes() == plain.read_bytes()
    told = report(one)
    assert [(rank["steps"], rank["host"]) for rank in told["ranks"]] == [(60, f"host{rank // 2}") for rank in range(4)]
    assert told["steps"]["records_lost"] == 0
    (slow,) = [finding for finding in told["findings"] if finding["kind"] in {"slow_host", "straggler"}]
    assert (slow["kind"], slow["ranks"], slow["phase"]) == ("slow_host", [2, 3], "data")
    assert "host1 is slow: both ranks +4" in told["verdict"]
    (clock,) = told["clocks"]
    assert abs(clock["offset_s"] + APART_S) < 5
    assert told["run"]["state"] == report(two)["run"]["state"] == "done"
    assert "host1 has joined the run" in one.log()


def test_a_rank_that_is_restarted_and_a_host_that_dies_leave_a_world_that_trains_on(hosts):
    one, two = hosts.hosts
    for host in (one, two):
        host.train_while_any_is_there(LATE="1")
    says(one, "rank 1 is slow")

    kill(two, str(TRAIN), "RANK=1")  # the torchrun of its host alone counts a restart
    again = wait_for(lambda: trains(report(one), 2, attempts=1), 90)
    assert [rank["host"] for rank in again["ranks"]] == ["host0", "host1"]
    assert "2 ranks on 2 nodes" in says(two, "rank 1 is slow")

    kill_all(two)
    alone = wait_for(lambda: trains(report(one), 1, attempts=2), 90)
    assert [rank["host"] for rank in alone["ranks"]] == ["host0"]
    assert [attempt["world_size"] for attempt in alone["run"]["attempts"]] == [2, 2]
    assert not {finding["kind"] for finding in alone["findings"]} & {"straggler", "hang", "rank_failed"}
    # All that is left to say of it: its last records were lost, and both attempts may have ended at the same step.
    said = one.cli("status").stdout.replace("steps of rank 1 were lost", "")
    assert "rank 1" not in re.sub(r"attempts 1-2 failed in the same way after \d+ steps: rank 1 failed", "", said)
    assert one.cli("stop").returncode == 0


def trains(told, ranks, attempts):
    """The report, if it tells of so many ranks that have come some way after so many attempts."""
    whole = len(told["run"]["attempts"]) == attempts and len(told["ranks"]) == told["run"]["world_size"] == ranks
    return whole and all(rank["steps"] > 20 for rank in told["ranks"]) and told


def kill_all(host):
    """Kill all processes of a host, as a loss of power would."""
    for pid in subprocess.check_output(["ip", "netns", "pids", host.namespace], text=True).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
