"""A job on two hosts that trains already: one attach on each host makes one run of both."""

import csv
import io
import json
import sys
from collections import defaultdict

import pytest

from ddpmon import proc
from ddpmon.launch import processes
from tests.attach.conftest import needs_gdb
from tests.conftest import ddpmon_program, wait_for
from tests.namespaces import unshared
from tests.nodes.hosts import HUB_PORT, LAUNCH_S, PORT, TRAIN, cable

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), needs_gdb]

OWN_PIDS = ("--pid", "--fork", "--mount-proc")


@pytest.fixture
def hosts():
    unshared("pid", *OWN_PIDS)
    yield from cable()


def address(host, port):
    return f"{host.address.rpartition('.')[0]}.1:{port}"


def train(host):
    """Start this host's ranks, with pids of its own, under a torchrun that knows nothing of ddpmon."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={host.number}"]
    words += ["--nproc-per-node=2", "--rdzv-backend=static", f"--rdzv-endpoint={address(host, PORT)}", str(TRAIN)]
    job = host.start("unshare", *OWN_PIDS, "sh", "-c", '"$0" "$@"; exit $?', *words, LATE="3", LATE_MS="60", ALIKE="1")

    def first():
        below = [process.pid for _, process in processes.descendants(job.pid)]
        return next((pid for pid in below if proc.innermost_pid(pid) == 1 and proc.children().get(pid)), 0)

    host.entered = wait_for(first)
    return job


def attach(host, key):
    """Attach to the host's ranks, once they train."""

    def listed():
        return next((row["pid"] for row in json.loads(host.cli("ls", "--json").stdout) if row["pid"]), None)

    pid = str(wait_for(listed, LAUNCH_S, 1.0))
    hub = address(host, HUB_PORT)
    return host.start(ddpmon_program(), "attach", "--pid", pid, "--headless", "--hub", hub, "--hub-key", str(key))


def losses(host):
    """The losses of each step, by rank, as far as ranks of both hosts have it."""
    steps = defaultdict(dict)
    for row in csv.DictReader(io.StringIO(host.cli("export", "--format", "csv").stdout)):
        if row["loss"]:
            steps[int(row["step"])][int(row["rank"])] = row["loss"]
    return [ranks for ranks in steps.values() if {0, 1} & ranks.keys() and {2, 3} & ranks.keys()]


def test_one_attach_on_each_host_makes_one_run(hosts, tmp_path):
    one, two = hosts.hosts
    jobs = [train(host) for host in (one, two)]
    key = tmp_path / "job.key"
    assert one.cli("key", str(key)).returncode == 0
    attach(two, key)
    wait_for(lambda: "ddpmon watches rank 3" in two.log(), LAUNCH_S)
    attach(one, key)
    for host in (one, two):
        wait_for(lambda host=host: "rank 3 is slow" in host.log(), LAUNCH_S)
        assert "4 ranks on 2 nodes" in host.cli("status").stdout
    compared = wait_for(lambda: len(made := losses(one)) > 50 and made, LAUNCH_S, 1.0)
    assert all(len(set(ranks.values())) == 1 for ranks in compared)
    assert "lost 0\n" in one.cli("report").stdout
    for host in (one, two):
        left = host.cli("detach")
        assert (left.returncode, "continues without the probe" in left.stdout) == (0, True), left.stderr
    assert [job.poll() for job in jobs] == [None, None]
