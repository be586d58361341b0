"""Memory of a rank's DataLoader workers, as far as it is theirs alone."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddpmon.probe import counters

CPU_SHARE = 0.01
"""Share of a core for reading: the kernel walks all pages of a worker, 43 ms for each GiB."""


class WorkerMemory:
    """Adds up the private memory of workers. One worker is read at a time, the one first that was read longest ago.

    A worker begins with the pages of its rank and copies those that it writes to. Resident memory has both in it.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, int | None] = {}
        """Bytes by pid, the one read last at the end; None: it may not be read."""
        self._read_again_at = float("-inf")

    def read(self, pids: Sequence[int], now: float) -> int | None:
        """Return the sum over all workers; None until each of them was read."""
        self._bytes = {pid: size for pid, size in self._bytes.items() if pid in pids}
        if pids and now >= self._read_again_at:
            pid = next((pid for pid in pids if pid not in self._bytes), next(iter(self._bytes), 0))
            began = time.thread_time()
            self._bytes.pop(pid, None)
            self._bytes[pid] = counters.private_bytes(pid)
            self._read_again_at = now + (time.thread_time() - began) / CPU_SHARE
        known = [size for size in self._bytes.values() if size is not None]
        return sum(known) if known and len(self._bytes) == len(pids) else None
