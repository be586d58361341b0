"""This machine's place among several by the variables that torchrun itself reads, PET_NNODES and the like.

Kubeflow's TrainJob sets them in every pod (its constants.go, TorchEnvNumNodes and below), and so do other schedulers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpmon.addresses import bracketed
from ddpmon.errors import UsageError
from ddpmon.launch.torchrun import Nodes

DEFAULT_PORT = "29500"
"""torchrun's."""


def nodes(environment: Mapping[str, str]) -> Nodes | None:
    """The nodes; None where no variable tells, or of one alone. UsageError where they are not what torchrun takes."""
    count = environment.get("PET_NNODES", "1")
    numbers = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", count)
    if numbers is None or not 0 < int(numbers[1]) <= int(numbers[2] or numbers[1]):
        raise UsageError(f"PET_NNODES is {count!r}: a number of nodes is wanted, or LEAST:MOST")
    most = int(numbers[2] or numbers[1])
    if most == 1:
        return None
    least = int(numbers[1]) if int(numbers[1]) < most else None
    rank = environment.get("PET_NODE_RANK", "")
    if least is not None and not rank:
        return Nodes(most, None, _endpoint(environment), least)
    if not re.fullmatch(r"[0-9]{1,6}", rank):
        raise UsageError(f"PET_NNODES is {count}, and PET_NODE_RANK {rank!r}: from 0 to {most - 1} is wanted")
    return Nodes(most, int(rank), _endpoint(environment), least)


def ranks(environment: Mapping[str, str]) -> str:
    """How many ranks there are to be on this machine, as --nproc takes it."""
    return environment.get("PET_NPROC_PER_NODE", "1")


def _endpoint(environment: Mapping[str, str]) -> str | None:
    if given := environment.get("PET_RDZV_ENDPOINT"):
        return given if re.search(r":[0-9]+$", given) else f"{given}:{DEFAULT_PORT}"
    host = environment.get("PET_MASTER_ADDR")
    if host is None:
        raise UsageError("PET_NNODES without PET_MASTER_ADDR; give --nnodes, --node-rank and --rdzv-endpoint")
    bare = host.removeprefix("[").removesuffix("]")
    return f"{bracketed(bare)}:{environment.get('PET_MASTER_PORT', DEFAULT_PORT)}"
