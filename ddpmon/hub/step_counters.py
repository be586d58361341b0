"""Reads how many steps a rank had made when it was killed: more than it could send."""

from __future__ import annotations

import contextlib
import os
import stat

from ddpmon.messages import MAX_STEP
from ddpmon.messages.step_counter import BYTES, NAME, finished_steps
from ddpmon.runs import proc
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry


class StepCounters:
    """The step counters of this machine's ranks, open from their Hello until they have ended."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._open: dict[int, tuple[RankProcess, int, int]] = {}
        """Open counters by the process's number: when its program began, and a descriptor."""

    def follow(self, process: RankProcess) -> None:
        """Open the counter of a process that said hello, unless it is open."""
        hello = process.hello
        known = self._open.get(process.id)
        if process.peer is None or not process.peer.pid or (known and known[1] == hello.began_us):
            return
        if known:
            os.close(self._open.pop(process.id)[2])
        with contextlib.suppress(OSError):
            self._open[process.id] = process, hello.began_us, _opened(process.peer.pid, hello.counter_fd)

    def settle(self) -> list[RankProcess]:
        """Return the processes that have ended since: each has its count of steps now."""
        ended = [process for process, _, _ in self._open.values() if self._has_ended(process)]
        for process in ended:
            _, _, descriptor = self._open.pop(process.id)
            if not process.left:
                process.steps = max(process.steps, min(finished_steps(os.pread(descriptor, BYTES, 0)), MAX_STEP - 1))
            os.close(descriptor)
        return ended

    def _has_ended(self, process: RankProcess) -> bool:
        """Return whether it has: of those that have a rank, the registry looks itself."""
        return process.left or process.dead or (not self._registry.is_seated(process) and process.gone)


def _opened(pid: int, descriptor: int) -> int:
    """A counter's descriptor of our own. OSError: there is none, as the script has closed it."""
    path = proc.ROOT / str(pid) / "fd" / str(descriptor)
    if os.readlink(path) != f"/memfd:{NAME} (deleted)":
        raise FileNotFoundError(path)
    mine = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(mine)
    if not stat.S_ISREG(status.st_mode) or status.st_size != BYTES:
        os.close(mine)
        raise FileNotFoundError(path)
    return mine
