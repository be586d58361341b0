"""Builds torchrun's command line. ddpmon starts ranks only through torchrun."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ddpmon.addresses import is_own, own_towards, split
from ddpmon.errors import UsageError

KILLS_AFTER_S = 30
"""Seconds after a stop at which a torchrun without --shutdown-timeout kills its ranks."""
LOOPBACK_ADDRESS = "127.0.0.1"
"""Address at which the processes of a run on one machine meet."""
_SHUTDOWN = "--shutdown-timeout"


@dataclass(frozen=True)
class NodeOptions:
    """Number of nodes of a run, number of this node, and address at which the nodes meet."""

    count: int = 1
    """Number of nodes; in an elastic run, the largest number."""
    rank: int | None = None
    endpoint: str | None = None
    """HOST:PORT of the rendezvous, on the machine of rank 0."""
    least: int | None = None
    """Smallest number of nodes with which an elastic run continues. The nodes of an elastic run have no fixed numbers.
    None if the run is not elastic, and needs all nodes."""

    def __post_init__(self) -> None:
        if self.count == 1:
            return
        if self.endpoint is None or (self.rank is None and self.least is None):
            count, which = (
                (self.count, "--node-rank and ") if self.least is None else (f"{self.least}:{self.count}", "")
            )
            raise UsageError(f"--nnodes {count} also needs {which}--rdzv-endpoint HOST:PORT, on every machine")
        if self.rank is not None and not 0 <= self.rank < self.count:
            raise UsageError(f"--node-rank {self.rank}: with --nnodes {self.count}, give 0 to {self.count - 1}")
        try:
            _, port = split(self.endpoint)
        except ValueError as error:
            raise UsageError(f"--rdzv-endpoint {error}") from None
        if not port:
            raise UsageError(f"--rdzv-endpoint {self.endpoint}: port 0 is not possible; give a fixed port")


def node_options(text: str, rank: int | None, endpoint: str | None) -> NodeOptions:
    """Return the node options of a run over N or MIN:MAX nodes, as torchrun takes them.

    Args:
        text: The number of nodes.
        rank: The number of this node.
        endpoint: HOST:PORT at which the nodes meet.

    """
    least, most = node_counts(text, f"--nnodes {text}")
    return NodeOptions(most, rank, endpoint, least if least < most else None)


def node_counts(text: str, source: str) -> tuple[int, int]:
    """Return the smallest and largest number of nodes in N or MIN:MAX. A UsageError names the source of the text."""
    numbers = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", text)
    least = int(numbers[1]) if numbers else 0
    most = int(numbers[2] or least) if numbers else 0
    if not 1 <= least <= most:
        raise UsageError(f"{source}: give a number of machines, or MIN:MAX")
    return least, most


def known_options() -> frozenset[str]:
    """Return the options that the installed torchrun accepts. The set is empty if torchrun's source cannot be read.

    The function searches the source text. Importing torchrun would take seconds, and delay the first screen.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return frozenset()
    try:
        source = Path(spec.origin).with_name("distributed").joinpath("run.py").read_text(errors="replace")
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"""["'](--[a-z][a-z0-9-]*)["']""", source))


def unsupported_requests(grace_s: float) -> list[str]:
    """Return a message if the installed torchrun cannot respect the grace; else []."""
    if grace_s <= KILLS_AFTER_S or _SHUTDOWN in known_options():
        return []
    return [
        (
            f"--grace: torchrun in this version of torch has no {_SHUTDOWN}, so it kills ranks {KILLS_AFTER_S} "
            "s after a stop"
        )
    ]


def without_unsupported(line: list[str]) -> list[str]:
    """Return a torchrun command line of ddpmon without the options that the installed torchrun does not have."""
    if _SHUTDOWN in known_options():
        return line
    end = line.index("--") if "--" in line else len(line)
    return [word for at, word in enumerate(line) if at >= end or not word.startswith(f"{_SHUTDOWN}=")]


def launch_command(
    script: str,
    args: list[str],
    *,
    module: bool,
    nproc: int,
    nodes: NodeOptions,
    max_restarts: int,
    grace_s: float,
    run_id: str,
    log_dir: str,
) -> list[str]:
    """Return the command that starts the ranks. `log_dir` receives each rank's stdout and stderr."""
    # -P keeps the working directory out of the launcher's sys.path, as the torchrun program does.
    line = [sys.executable, "-P", "-m", "torch.distributed.run"]
    count = nodes.count if nodes.least is None else f"{nodes.least}:{nodes.count}"
    line += [f"--nnodes={count}", f"--nproc-per-node={nproc}", f"--max-restarts={max_restarts}"]
    line += ["--redirects=3", f"--log-dir={log_dir}", f"{_SHUTDOWN}={math.ceil(grace_s)}"]
    line += _rendezvous(nodes, run_id)
    # Without --, torchrun would read a script's argument as an abbreviated option of its own ("ambiguous option").
    return without_unsupported([*line, *(["-m"] if module else []), "--", script, *args])


def rendezvous_id(run_id: str) -> str:
    """Return the option with the name under which the processes of a run on one machine meet: the run's id."""
    return f"--rdzv-id={run_id}"


def _rendezvous(nodes: NodeOptions, run_id: str) -> list[str]:
    if nodes.count == 1 or nodes.endpoint is None:
        # This is --standalone with an address instead of localhost, a name that some containers cannot resolve.
        return [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={LOOPBACK_ADDRESS}:0",
            rendezvous_id(run_id),
            "--rdzv-conf=is_host=1",
            f"--local-addr={LOOPBACK_ADDRESS}",
        ]
    host, port = split(nodes.endpoint)
    is_host = nodes.rank == 0 if nodes.rank is not None else is_own(host, port)
    return [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={nodes.endpoint}",
        *([] if nodes.rank is None else [f"--node-rank={nodes.rank}"]),
        # torchrun derives is_host from host names, and every node gets it wrong if the endpoint is an address.
        f"--rdzv-conf=is_host={int(is_host)}",
        f"--local-addr={host if is_host else _address_towards(host, port)}",
    ]


def _address_towards(host: str, port: int) -> str:
    try:
        return own_towards(host, port)
    except OSError as error:
        raise UsageError(f"--rdzv-endpoint {host}:{port} is unreachable: {error.strerror}") from None
