"""Finds this machine's place among several from the environment.

Either the variables are those that torchrun itself reads, such as PET_NNODES, which Kubeflow's TrainJob sets in every
pod (its constants.go, TorchEnvNumNodes and below) and other schedulers too. Or they are those that Slurm's srun sets
for each task of a job step (its man page, "output environment variables").
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.addresses import bracketed
from ddpmon.errors import UsageError
from ddpmon.launch.torchrun import NodeOptions, node_counts

DEFAULT_PORT = "29500"
"""The default port of torchrun."""
FIRST_PORT, PORTS = 10_000, 20_000
"""First port for the rendezvous, and number of ports. The range is below Linux's ephemeral ports (from 32768 on)."""


def nodes_from_environment(environment: Mapping[str, str]) -> NodeOptions | None:
    """Return the node options from torchrun's variables; None if no variable is set, or there is only one node.

    Raise UsageError if torchrun would refuse a value.
    """
    count = environment.get("PET_NNODES", "1")
    least, most = node_counts(count, f"PET_NNODES is {count!r}")
    if most == 1:
        return None
    elastic = least if least < most else None
    rank = environment.get("PET_NODE_RANK", "")
    if elastic is not None and not rank:
        return NodeOptions(most, None, _rendezvous_endpoint(environment), elastic)
    if not re.fullmatch(r"[0-9]{1,6}", rank):
        raise UsageError(
            f"PET_NNODES is {count}, and PET_NODE_RANK is {rank!r}; set PET_NODE_RANK to a number from 0 to {most - 1}"
        )
    return NodeOptions(most, int(rank), _rendezvous_endpoint(environment), elastic)


def ranks_per_node(environment: Mapping[str, str]) -> str:
    """Return how many ranks to start on this machine, in the format of --nproc."""
    return environment.get("PET_NPROC_PER_NODE", "1")


def _rendezvous_endpoint(environment: Mapping[str, str]) -> str | None:
    if given := environment.get("PET_RDZV_ENDPOINT"):
        return given if re.search(r":[0-9]+$", given) else f"{given}:{DEFAULT_PORT}"
    host = environment.get("PET_MASTER_ADDR")
    if host is None:
        raise UsageError(
            "PET_NNODES is set, but PET_MASTER_ADDR is not; give --nnodes, --node-rank and --rdzv-endpoint"
        )
    bare = host.removeprefix("[").removesuffix("]")
    return f"{bracketed(bare)}:{environment.get('PET_MASTER_PORT', DEFAULT_PORT)}"


def job_step_nodes(environment: Mapping[str, str]) -> NodeOptions | None:
    """Return the node options of this process's Slurm job step; None without a job step, or with only one node.

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
