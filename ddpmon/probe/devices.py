"""Samples this process, its training thread and its GPU once a second, on the background thread."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral

from ddpmon import proc
from ddpmon.messages import Sample
from ddpmon.probe import counters
from ddpmon.probe.cuda import allocator_counters
from ddpmon.probe.gpu_counters import GpuCounters
from ddpmon.probe.identity import Identity

MEMORY_LEFT_S = 5.0
"""Interval in seconds for reading the host's free memory, which changes slowly and takes up to 0.1 ms to read."""
LOOPBACK_INTERFACES = frozenset({"lo", "lo0"})


class Sampler:
    """Takes samples. A value that is not available is None."""

    def __init__(
        self,
        training_thread: Callable[[], int | None],
        identity: Identity,
        loader: Callable[[], tuple[object, object]] = lambda: (None, None),
        worker_pids: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """Create a sampler. Its first sample has no rates, because there are no earlier values.

        Args:
            training_thread: Returns the kernel id of the training thread.
            identity: Names the rank's GPU once there is one, and records problems with that GPU.
            loader: Returns the number of workers of the DataLoader that was used last, and whether it pins memory.
            worker_pids: Returns the pids of the workers of all DataLoaders.

        """
        self._rates = Rates()
        self._training_thread = training_thread
        self._identity = identity
        self._loader = loader
        self._worker_pids = worker_pids
        self._worker_memory = WorkerMemory()
        self._memory_left: int | None = None
        self._memory_left_at = float("-inf")
        self._gpu: GpuCounters | None = None
        self._cards: tuple[set[str], list[str]] = set(), []
        """Names of all network cards of the host, and those of them that are hardware."""

    def take_sample(self, make_way: Callable[[], None] = lambda: None) -> Sample:
        """Sample the process and its GPU. Takes 0.1 ms without a GPU, three times as long with cold CPU caches.

        make_way: called several times, so that this thread never holds the GIL for long.
        """
        now = time.monotonic_ns()
        sample = Sample(time_us=now // 1000)
        self._rates.set_time(now)
        thread = self._training_thread()
        delay = None if thread is None else proc.core_wait_ns(f"self/task/{thread}")
        starved = self._rates.per_s(f"delay of {thread}", delay)
        sample.starved_share = None if starved is None else min(1.0, starved / 1e9)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sample.major_faults_per_s = self._rates.per_s("major faults", usage.ru_majflt)
        sample.minor_faults_per_s = self._rates.per_s("minor faults", usage.ru_minflt)
        sample.cpu_percent = self._rates.per_s("CPU", 100 * (usage.ru_utime + usage.ru_stime))
        if stat := proc.stat("self"):
            sample.threads, sample.rss_bytes = stat.threads, stat.rss_bytes
        read_bytes, written_bytes = proc.storage_bytes() or (None, None)
        sample.read_bytes_per_s = self._rates.per_s("read", read_bytes)
        sample.written_bytes_per_s = self._rates.per_s("written", written_bytes)
        make_way()
        waited_us = self._rates.per_s("storage", counters.storage_wait_us())
        sample.io_wait_share = None if waited_us is None else min(1.0, waited_us / 1e6)
        idle_s = self._rates.per_s("idle cores", counters.idle_core_seconds())
        cores = os.cpu_count()
        if idle_s is not None and cores:
            sample.cores_busy_share = min(1.0, max(0.0, 1 - idle_s / cores))
        self._sample_network(sample)
        self._sample_memory(sample, now / 1e9)
        if self._gpu is None and (uuid := self._identity.cuda_uuid()) is not None:
            self._gpu = GpuCounters(uuid, self._identity)
        workers, pinned = self._loader()
        sample.loader_workers = int(workers) if isinstance(workers, Integral) else None  # It may be a numpy integer.
        sample.loader_pinned = bool(pinned) if self._gpu is not None and pinned is not None else None
        if self._gpu is not None:
            of_torch = allocator_counters(self._identity.cuda_device or 0)
            for field, value in (self._gpu.read_nvml() | of_torch).items():
                setattr(sample, field, value)
        return sample

    def _sample_memory(self, sample: Sample, now_s: float) -> None:
        """Sample the memory of the rank's workers, and the memory that its host has left."""
        if now_s - self._memory_left_at >= MEMORY_LEFT_S:
            self._memory_left, self._memory_left_at = counters.memory_left_bytes(), now_s
        sample.memory_left_bytes = self._memory_left
        sample.worker_memory_bytes = self._worker_memory.total_memory(self._worker_pids(), now_s)

    def _sample_network(self, sample: Sample) -> None:
        """Sample the network traffic of the whole host."""
        counts = counters.network_bytes()
        names, cards = self._cards
        if names != counts.keys():
            cards = network_cards(counts)
            self._cards = set(counts), cards
        if not cards:
            return
        which = ",".join(cards)  # Counts of different sets of cards must never be subtracted.
        sent = self._rates.per_s(f"sent by {which}", sum(counts[card][0] for card in cards))
        received = self._rates.per_s(f"received by {which}", sum(counts[card][1] for card in cards))
        sample.sent_bytes_per_s = None if sent is None else max(0.0, sent)
        sample.received_bytes_per_s = None if received is None else max(0.0, received)


class Rates:
    """Converts rising counters into mean rates per second between two readings."""

    def __init__(self) -> None:
        self._now = 0
        self._before: dict[str, tuple[float, int]] = {}

    def set_time(self, now_ns: int) -> None:
        """Set the time of the counters that are passed from now on."""
        self._now = now_ns

    def per_s(self, name: str, count: float | None) -> float | None:
        """Return the rate of a counter; None without a count, or without an earlier count to compare with."""
        if count is None:
            self._before.pop(name, None)
            return None
        before, at = self._before.get(name, (count, self._now))
        self._before[name] = (count, self._now)
        return (count - before) * 1e9 / (self._now - at) if self._now > at else None


def network_cards(names: Iterable[str], folder: str = "/sys/class/net") -> list[str]:
    """Return a host's hardware network cards. In a container, which shows no hardware, return all cards but loopback.

    Bonds, bridges and tunnels would count the traffic of their cards a second time. No counter includes RDMA.
    """
    others = sorted(name for name in names if name not in LOOPBACK_INTERFACES)
    return [name for name in others if os.path.exists(f"{folder}/{name}/device")] or others


CPU_SHARE = 0.01
"""Share of a core to spend on reading workers' memory: the kernel walks all pages, which takes 43 ms per GiB."""


class WorkerMemory:
    """Adds up the private memory of workers. Each call reads at most one worker: the one whose last reading is oldest.

    A forked worker shares its rank's pages until it writes to them. Resident memory would count shared pages twice.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, int | None] = {}
        """Private bytes of each worker by pid, the latest reading last; None if the worker cannot be read."""
        self._read_again_at = float("-inf")

    def total_memory(self, pids: Sequence[int], now: float) -> int | None:
        """Return the sum over all workers; None until each of them has been read."""
        self._bytes = {pid: size for pid, size in self._bytes.items() if pid in pids}
        if pids and now >= self._read_again_at:
            pid = next((pid for pid in pids if pid not in self._bytes), next(iter(self._bytes), 0))
            began = time.thread_time()
            self._bytes.pop(pid, None)
            self._bytes[pid] = counters.private_bytes(pid)
            self._read_again_at = now + (time.thread_time() - began) / CPU_SHARE
        known = [size for size in self._bytes.values() if size is not None]
        return sum(known) if known and len(self._bytes) == len(pids) else None
