"""Jobs that train without ddpmon are found by /proc: which processes are ranks, and who started them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.ports import free_port
from ddpmon.attach import jobs, start
from ddpmon.launch.processes import descendants
from ddpmon.runs import Process
from ddpmon.tasks import Task
from tests.conftest import ddpmon_program, wait_for
from tests.ranks import EAGER

pytestmark = pytest.mark.e2e


def test_torchrun_may_be_the_first_process_of_a_container(other_namespace, home, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        f"{EAGER}import subprocess, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "subprocess.run([sys.argv[1], 'ls', '--json'], stdout=open(sys.argv[2], 'w'), check=True)\n"
    )
    listed = tmp_path / "listed"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", str(free_port())]
    words = [*other_namespace, *run, str(script), ddpmon_program(), str(listed)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    (row,) = json.loads(listed.read_text())
    assert (row["pid"], row["state"], row["world_size"]) == (1, "unwatched", 1)


def test_spawned_ranks_are_a_job_and_their_workers_are_no_ranks(job):
    started = job("spawn")
    (main,) = started.started
    found = wait_for(started.found)
    ranks = {rank.process.pid for rank in found.ranks}
    assert (found.launcher.pid, len(ranks)) == (main.pid, 2)
    workers = [process.pid for _, process in descendants(*ranks) if process.pid not in ranks]
    assert workers, "each rank has a DataLoader worker"
    for pid in (main.pid, *ranks, workers[0]):
        assert jobs.of_process(pid, jobs.find_all()) == [found]
        assert not jobs.is_above(pid, found)
    assert jobs.is_above(os.getpid(), found), "this test is no part of the job that it started"


def test_tasks_of_srun_are_one_job_by_its_job_and_step(job):
    found = job("slurm").found()
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert (found.launcher, found.world_size, found.ranks[0].task.job) == (None, 2, "SLURM_PROCID 41878 0")


def test_ranks_on_other_machines_are_a_run_of_their_own():
    task = Task("RANK 10.0.0.1 29500", 0, 4)
    rank = jobs.RankProcess(Process.of(os.getpid()), os.getppid(), ("python", "train.py"), task, False, True)
    run = start.run_of(jobs.TrainingJob((rank,), None, rank.words, 0.0), "run")
    assert (run.world_size, run.nnodes, run.notes) == (4, 4, [start.ELSEWHERE])
