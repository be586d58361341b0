"""A job step of Slurm tells each task its place; what a scheduler sends before it ends a job reaches the ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.errors import UsageError
from ddpmon.launch import node_environment
from tests.conftest import ddpmon_program, wait_for

STEP = {
    "SLURM_JOB_ID": "41877",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
}


def test_a_task_of_a_step_knows_its_place_and_where_all_meet():
    place = node_environment.job_step_nodes(STEP)
    assert (place.count, place.rank, place.endpoint) == (4, 2, "gpu07:11880")
    others = [node_environment.job_step_nodes(STEP | {"SLURM_NODEID": str(node)}) for node in range(4)]
    assert {other.endpoint for other in others} == {"gpu07:11880"}
    assert node_environment.job_step_nodes(STEP | {"SLURM_STEP_ID": "4"}).endpoint != place.endpoint, (
        "two steps of a job at once"
    )
    assert node_environment.job_step_nodes(STEP | {"SLURM_STEP_RESV_PORTS": "12004-12007"}).endpoint == "gpu07:12004"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "41877", "SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0"},  # a batch script, without srun
        STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu07"},
    ],
)
def test_elsewhere_there_is_one_node(environment):
    assert node_environment.job_step_nodes(environment) is None


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        ("gpu07", "gpu07"),
        ("gpu07,login", "gpu07"),
        ("gpu[07-09,12],login", "gpu07"),
        ("rack[1-2]node[3,5]", "rack1node3"),
        ("a[9]b", "a9b"),
        ("10.0.0.[1-2]", "10.0.0.1"),
        ("node-[001-128].cluster", "node-001.cluster"),
    ],
)
def test_the_first_host_of_a_list(listed, first):
    assert node_environment.first_host(listed) == first


@pytest.mark.parametrize("listed", ["", ",a", "gpu[07", "gpu]07", "gpu[]", "gpu[1,]", "a[1][", "[[1]]"])
def test_what_is_no_list_of_hosts_is_said(listed):
    with pytest.raises(UsageError, match="not a list of nodes"):
        node_environment.first_host(listed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SLURM_STEP_NUM_TASKS": "32"}, "32 tasks on 4 nodes, but ddpmon run starts the ranks itself"),
        ({"SLURM_STEP_NUM_NODES": "four"}, "SLURM_STEP_NUM_NODES is 'four', which is not a number"),
        ({"SLURM_STEP_NUM_NODES": "\u0664"}, "not a number"),
        ({"SLURM_NODEID": None}, "did not set SLURM_NODEID; give --nnodes, --node-rank and --rdzv-endpoint"),
        ({"SLURM_STEP_NODELIST": ""}, "did not set SLURM_STEP_NODELIST"),
        ({"SLURM_NODEID": "4"}, "--node-rank 4: with --nnodes 4, give 0 to 3"),
    ],
)
def test_a_step_that_cannot_be_is_one_line_and_nothing_is_started(refused_run, changed, said):
    step = {name: value for name, value in (STEP | changed).items() if value is not None}
    assert said in refused_run(step)


def test_what_is_given_counts_more(refused_run):
    said = refused_run(STEP, "--nnodes", "2")
    assert said == "ddpmon: --nnodes 2 also needs --node-rank and --rdzv-endpoint HOST:PORT, on every machine\n"


RANK = """
import os, signal, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["RANK"]
if rank == "0":
    signal.signal(signal.SIGUSR1, lambda *_: (folder / "saved").touch())
(folder / f"up{rank}").touch()
while not (folder / "end").exists():
    time.sleep(0.02)
"""


def test_a_schedulers_signal_reaches_the_ranks_that_listen_and_harms_nobody(home, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    both = f'for RANK in 0 1; do export RANK; "{sys.executable}" "{script}" "{tmp_path}" & done; unset RANK; wait'
    line = [ddpmon_program(), "exec", "--headless", "--", "sh", "-c", both]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as viewer:
        try:
            wait_for(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists())
            run = wait_for(lambda: (found := runs.find(None)).hub and found)
            for process in (run.supervisor, run.hub):  # some schedulers send it to all that they run
                os.kill(process.pid, signal.SIGUSR1)
            viewer.send_signal(signal.SIGUSR1)
            wait_for((tmp_path / "saved").exists)
            assert run.supervisor.alive()
            assert run.hub.alive()
            (tmp_path / "end").touch()
            printed, _ = viewer.communicate(timeout=60)
        finally:
            viewer.kill()
    assert viewer.returncode == 0
    assert "sent SIGUSR1 to 1 rank; 1 rank without a handler for it did not get the signal" in printed
