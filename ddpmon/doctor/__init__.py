"""Checks whether this machine has everything that a run and its dashboard need, and explains what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddpmon.doctor import machine, network, places, terminal, training
from ddpmon.doctor.check import Check, Level

__all__ = ["Check", "Level", "examine"]


def examine(environ: Mapping[str, str], ranks: int | None = None) -> Iterator[Check]:
    """Yield the result of every check as soon as it is made.

    This starts an interpreter that imports torch, which takes seconds. It leaves nothing behind but the folder of runs.

    Args:
        environ: Environment variables that runs would get.
        ranks: Number of ranks that the user plans to start on this machine; None if unknown.

    """
    yield training.python()
    answer = training.ask_torch(environ)
    torch = None if isinstance(answer, Check) else answer
    yield from [answer] if isinstance(answer, Check) else training.torch_checks(answer)
    yield from machine.gpus(torch)
    yield machine.cores(ranks, torch, environ)
    yield machine.shared_memory()
    yield machine.open_files(ranks or machine.cores_here())
    yield machine.ptrace()
    yield machine.attaching(environ)
    yield from places.recordings()
    yield places.sockets()
    yield from network.interfaces(environ)
    yield network.names()
    yield network.ssh(environ)
    yield from terminal.terminal(environ, terminal.size_here())
