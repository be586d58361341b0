"""Finds this machine's place among several, from the variables that Slurm's srun sets for each task of a job step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.errors import UsageError
from ddpmon.launch.torchrun import NodeOptions

FIRST_PORT, PORTS = 10_000, 20_000
"""Port range for the rendezvous: below the ephemeral ports of Linux, which begin at 32768."""


def job_step_nodes(environment: Mapping[str, str]) -> NodeOptions | None:
    """Return the nodes of the job step that this process is a task of; None if there is no step, or it has one node.

    The variables are srun's (its man page, "output environment variables").

    Raises:
        UsageError: A node has several tasks, or a variable's value is not one that srun writes.

    """
    count = _number_in(environment, "SLURM_STEP_NUM_NODES")
    if count is None or count < 2:
        return None
    tasks = _number_in(environment, "SLURM_STEP_NUM_TASKS")
    if tasks is not None and tasks != count:
        raise UsageError(
            f"srun started {tasks} tasks on {count} nodes, but ddpmon run starts the ranks itself and needs one task"
            " per node: srun --ntasks-per-node=1 ddpmon run --nproc gpu …"
        )
    rank = _number_in(environment, "SLURM_NODEID")
    listed = environment.get("SLURM_STEP_NODELIST", "")
    if rank is None or not listed:
        missing = "SLURM_NODEID" if rank is None else "SLURM_STEP_NODELIST"
        raise UsageError(
            f"Slurm started a job step of {count} nodes, but did not set {missing}; give --nnodes, --node-rank "
            "and --rdzv-endpoint"
        )
    return NodeOptions(count, rank, f"{first_host(listed)}:{_rendezvous_port(environment)}")


def first_host(listed: str) -> str:
    """Return the first name of a Slurm node list: node03 of "node[03-05,9],login". Raise UsageError if it is not a
    list.
    """
    named = re.match(r"(?:[^\[\],]|\[[^\[\],]+(?:,[^\[\],]+)*\])+", listed)
    if named is None or listed[named.end() :][:1] not in {"", ","}:
        raise UsageError(f"SLURM_STEP_NODELIST is {listed}, which is not a list of nodes")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", named[0])


def _rendezvous_port(environment: Mapping[str, str]) -> int:
    """Return a port that is the same on each node of a job step and differs between job steps."""
    reserved = environment.get("SLURM_STEP_RESV_PORTS", "")  # Set by srun --resv-ports.
    if first_port := re.match(r"\d+", reserved):
        return int(first_port[0])
    return FIRST_PORT + sum(_number_in(environment, name) or 0 for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")) % PORTS


def _number_in(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(f"{name} is {text!r}, which is not a number")
    return int(text)
