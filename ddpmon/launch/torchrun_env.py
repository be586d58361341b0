"""Finds this machine's place among several from the variables that torchrun itself reads, such as PET_NNODES.

Kubeflow's TrainJob sets them in every pod (its constants.go, TorchEnvNumNodes and below), and so do other schedulers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.addresses import bracketed
from ddpmon.errors import UsageError
from ddpmon.launch.torchrun import NodeOptions, node_counts

DEFAULT_PORT = "29500"
"""The default port of torchrun."""


def nodes_from_environment(environment: Mapping[str, str]) -> NodeOptions | None:
    """Return the nodes; None if no variable is set or there is one node. Raise UsageError if torchrun would refuse a
    value.
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
