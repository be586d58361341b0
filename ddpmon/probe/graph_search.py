"""DDP's search for unused parameters (find_unused_parameters=True): what it takes, and whether it ever finds one."""

from __future__ import annotations

import time
from collections import deque
from statistics import mean, median
from typing import Any

import torch

from ddpmon.probe.cuda import HostCopy

RECENT = 100
"""Searches of which the mean is taken."""
MARKS, TIMES = 20, 5


class UnusedSearch:
    """Times the searches of one model, and counts now and then which parameters a backward left unused."""

    __slots__ = ("_latest_ns", "_mark_us", "_search_us", "_waiting", "checked", "checks", "unused")

    def __init__(self) -> None:
        self._latest_ns: deque[int] = deque(maxlen=RECENT)
        self._waiting: deque[HostCopy] = deque()
        """On their way from the device: how many ranks used each parameter."""
        self._search_us = 0.0
        """The mean search before the last check; 0: there was none."""
        self._mark_us = 0.0
        """Time to mark a parameter as used; 0: not measured yet."""
        self.checks = 0
        """Backward calls that were looked at."""
        self.checked = 0
        """Backward calls whose used parameters are known by now."""
        self.unused = 0
        """The most parameters that any of them left unused on some rank."""

    def took(self, duration_ns: int) -> None:
        """Count a search."""
        self._latest_ns.append(duration_ns)

    def check(self, reducer: Any) -> None:
        """Have the parameters counted that the backward before this moment used. On the training thread."""
        if self._latest_ns:
            self._search_us = mean(self._latest_ns) / 1000
        used = reducer._get_local_used_map() if hasattr(reducer, "_get_local_used_map") else None
        if used is None or (used.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        self.checks += 1
        self._waiting.append(HostCopy(used if used.is_cuda else used.clone()))

    def cost_us(self, parameters: int) -> int:
        """Return what searching the graph and marking so many parameters as used takes a backward."""
        return round(self._search_us + parameters * self._mark_us) if self._search_us else 0

    def resolve(self, ranks: int) -> None:
        """Count what checks saw that have arrived. ranks: that hold the model."""
        while self._waiting and self._waiting[0].arrived:
            used = self._waiting.popleft().tensor
            self._mark_us = self._mark_us or _marking_us(used)
            self.checked += 1
            self.unused = max(self.unused, sum(count < ranks for count in used.tolist()))


def _marking_us(used: Any) -> float:
    """Return what the reducer's `used[i] = 1` takes here, for each parameter in each backward."""
    took, scratch = [], used.clone()
    for _ in range(TIMES):
        began = time.perf_counter_ns()
        for _ in range(MARKS):
            scratch.select(0, 0).fill_(1)
        took.append((time.perf_counter_ns() - began) / MARKS / 1000)
    return median(took)
