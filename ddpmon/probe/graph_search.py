"""Measures the cost of DDP's search for unused parameters (find_unused_parameters=True), and whether there are any."""

from __future__ import annotations

import time
from collections import deque
from statistics import mean, median
from typing import Any

import torch

from ddpmon.probe.cuda import HostCopy

RECENT_SEARCHES = 100
"""Number of latest searches to average."""
MARKS, TIMES = 20, 5


class UnusedSearch:
    """Times the searches of one model, and now and then counts the parameters that a backward left unused."""

    __slots__ = ("_latest_ns", "_mark_us", "_search_us", "_waiting", "checked", "checks", "unused")

    def __init__(self) -> None:
        self._latest_ns: deque[int] = deque(maxlen=RECENT_SEARCHES)
        self._waiting: deque[HostCopy] = deque()
        """Copies on their way from the device. Each holds, for every parameter, the number of ranks that used it."""
        self._search_us = 0.0
        """Mean duration in µs of a search at the last check; 0 if there was none."""
        self._mark_us = 0.0
        """Time in µs to mark a parameter as used; 0 until it is measured."""
        self.checks = 0
        """Number of backward calls whose used parameters were copied."""
        self.checked = 0
        """Number of copied backward calls whose copy has arrived from the device."""
        self.unused = 0
        """Largest number of parameters that one backward call left unused on some rank."""

    def record_duration(self, duration_ns: int) -> None:
        """Add the duration of a search to the latest ones."""
        self._latest_ns.append(duration_ns)

    def start_count(self, reducer: Any) -> None:
        """Start to count the parameters that the last backward used. Runs on the training thread."""
        if self._latest_ns:
            self._search_us = mean(self._latest_ns) / 1000
        used = reducer._get_local_used_map() if hasattr(reducer, "_get_local_used_map") else None
        if used is None or (used.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        self.checks += 1
        self._waiting.append(HostCopy(used if used.is_cuda else used.clone()))

    def cost_us(self, parameters: int) -> int:
        """Return the time in µs per backward of searching the graph and marking this many parameters as used."""
        return round(self._search_us + parameters * self._mark_us) if self._search_us else 0

    def evaluate_copies(self, ranks: int) -> None:
        """Evaluate the copies that have arrived. ranks: number of ranks that hold the model."""
        while self._waiting and self._waiting[0].has_arrived:
            used = self._waiting.popleft().tensor
            self._mark_us = self._mark_us or _marking_us(used)
            self.checked += 1
            self.unused = max(self.unused, sum(count < ranks for count in used.tolist()))


def _marking_us(used: Any) -> float:
    """Measure in µs how long `used[i] = 1` takes, which the reducer runs for each parameter in each backward."""
    took, scratch = [], used.clone()
    for _ in range(TIMES):
        began = time.perf_counter_ns()
        for _ in range(MARKS):
            scratch.select(0, 0).fill_(1)
        took.append((time.perf_counter_ns() - began) / MARKS / 1000)
    return median(took)
