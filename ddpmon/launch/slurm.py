"""This machine's place among several, as Slurm's srun tells it to each task of a job step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.errors import UsageError
from ddpmon.launch.torchrun import NodeOptions

FIRST_PORT, PORTS = 10_000, 20_000
"""Ports for the rendezvous: below those that Linux gives away by itself (from 32768)."""


def nodes(environment: Mapping[str, str]) -> NodeOptions | None:
    """The nodes of the job step that this process is a task of; None where there is none, or it has one node.

    The names are srun's (its man page, "output environment variables"). UsageError where a node has several tasks, or
    a variable is not what srun writes.
    """
    count = _number(environment, "SLURM_STEP_NUM_NODES")
    if count is None or count < 2:
        return None
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS")
    if tasks is not None and tasks != count:
        raise UsageError(
            f"srun started {tasks} tasks on {count} nodes, but ddpmon run starts the ranks itself and needs one task"
            " per node: srun --ntasks-per-node=1 ddpmon run --nproc gpu …"
        )
    rank = _number(environment, "SLURM_NODEID")
    listed = environment.get("SLURM_STEP_NODELIST", "")
    if rank is None or not listed:
        missing = "SLURM_NODEID" if rank is None else "SLURM_STEP_NODELIST"
        raise UsageError(
            f"Slurm started a job step of {count} nodes, but did not set {missing}; give --nnodes, --node-rank "
            "and --rdzv-endpoint"
        )
    return NodeOptions(count, rank, f"{first_host(listed)}:{_port(environment)}")


def first_host(listed: str) -> str:
    """The first name of a list of Slurm's: node03 of node[03-05,9],login. UsageError where it is no such list."""
    named = re.match(r"(?:[^\[\],]|\[[^\[\],]+(?:,[^\[\],]+)*\])+", listed)
    if named is None or listed[named.end() :][:1] not in {"", ","}:
        raise UsageError(f"SLURM_STEP_NODELIST is {listed}, which is not a list of nodes")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", named[0])


def _port(environment: Mapping[str, str]) -> int:
    """The same on each node of a step, another one for another step."""
    reserved = environment.get("SLURM_STEP_RESV_PORTS", "")  # srun --resv-ports
    if first_port := re.match(r"\d+", reserved):
        return int(first_port[0])
    return FIRST_PORT + sum(_number(environment, name) or 0 for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")) % PORTS


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(f"{name} is {text!r}, which is not a number")
    return int(text)
