"""What this process, its training thread and its GPU do, once a second, read by the sending thread."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

from ddpmon.messages import GPU_COUNTERS, REASONS_JOIN, Sample
from ddpmon.probe import counters

THROTTLES = (
    (0x20 | 0x40, "thermal"),
    (0x04, "power cap"),
    (0x80, "power brake"),
    (0x08, "hardware slowdown"),
    (0x10, "sync boost"),
)
"""Bits of NVML's clocks event reasons, as people call them. An idle GPU and clocks that a person chose are none."""
LOOPBACK = frozenset({"lo", "lo0"})


class Sampler:
    """Takes samples; what is not there is None, and is noted once.

    training_thread: its id as the kernel counts threads. cuda_uuid: the rank's GPU, once there is one. loader: workers
    of the DataLoader that was read last, and whether it pins its batches.
    """

    def __init__(
        self,
        training_thread: Callable[[], int | None],
        cuda_uuid: Callable[[], str | None],
        note: Callable[..., object],
        loader: Callable[[], tuple[object, object]] = lambda: (None, None),
    ) -> None:
        self._rates = Rates()
        self._training_thread = training_thread
        self._cuda_uuid = cuda_uuid
        self._note = note
        self._loader = loader
        self._nvml: Any = None
        self._handle: Any = None
        self._gpu_sought = False
        self._cards: tuple[set[str], list[str]] = set(), []
        """Names of the host's network cards, and which of them stand for hardware."""

    def sample(self, make_way: Callable[[], None] = lambda: None) -> Sample:
        """The process and its GPU now. Takes 0.1 ms without a GPU, and three times as long in cold caches.

        make_way: called now and then, so that no stretch of it is long.
        """
        now = time.monotonic_ns()
        sample = Sample(time_us=now // 1000)
        self._rates.at(now)
        thread = self._training_thread()
        delay = None if thread is None else counters.run_delay_ns(thread)
        starved = self._rates.per_s(f"delay of {thread}", delay)
        sample.starved_share = None if starved is None else min(1.0, starved / 1e9)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sample.major_faults_per_s = self._rates.per_s("major faults", usage.ru_majflt)
        sample.minor_faults_per_s = self._rates.per_s("minor faults", usage.ru_minflt)
        sample.cpu_percent = self._rates.per_s("CPU", 100 * (usage.ru_utime + usage.ru_stime))
        process = counters.process()
        if process is not None:
            sample.threads, sample.rss_bytes = process
        read_bytes, written_bytes = counters.storage_bytes() or (None, None)
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
        self._find_gpu()
        workers, pinned = self._loader()
        sample.loader_workers = int(workers) if isinstance(workers, Integral) else None  # a script may give numpy's
        sample.loader_pinned = bool(pinned) if self._gpu_sought and pinned is not None else None
        if self._handle is not None:
            make_way()
            self._sample_gpu(sample)
        return sample

    def _sample_network(self, sample: Sample) -> None:
        """What the whole host sends and receives."""
        counts = counters.network_bytes()
        names, cards = self._cards
        if names != counts.keys():
            cards = network_cards(counts)
            self._cards = set(counts), cards
        if not cards:
            return
        which = ",".join(cards)  # another card's count is no rise of these
        sent = self._rates.per_s(f"sent by {which}", sum(counts[card][0] for card in cards))
        received = self._rates.per_s(f"received by {which}", sum(counts[card][1] for card in cards))
        sample.sent_bytes_per_s = None if sent is None else max(0.0, sent)
        sample.received_bytes_per_s = None if received is None else max(0.0, received)

    def _find_gpu(self) -> None:
        """Open this rank's GPU in NVML once the rank has one."""
        if self._gpu_sought:
            return
        uuid = self._cuda_uuid()
        if uuid is None:
            return
        self._gpu_sought = True
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml
        except Exception as error:  # no driver, no library, a container without the device: all normal
            self._note(f"no GPU counters: {error}", GPU_COUNTERS)

    def _sample_gpu(self, sample: Sample) -> None:
        nvml, handle = self._nvml, self._handle

        def read(function: Callable[..., Any], *args: Any) -> Any:
            try:
                return function(handle, *args)
            except nvml.NVMLError:
                return None  # a counter that this device does not have

        rates = read(nvml.nvmlDeviceGetUtilizationRates)
        memory = read(nvml.nvmlDeviceGetMemoryInfo)
        power_mw = read(nvml.nvmlDeviceGetPowerUsage)
        # The first name came with driver 535; older drivers answer to the second.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        calls = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
        reasons = next((bits for call in calls if (bits := read(call)) is not None), None)
        sample.gpu_percent = None if rates is None else float(rates.gpu)
        sample.gpu_memory_used_bytes = None if memory is None else int(memory.used)
        sample.gpu_memory_total_bytes = None if memory is None else int(memory.total)
        sample.gpu_power_w = None if power_mw is None else power_mw / 1000
        sample.gpu_temperature_c = read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        sample.gpu_clock_mhz = read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        sample.gpu_throttled = None if reasons is None else throttles(reasons)


class Rates:
    """Turns counters that only rise into rates: by how much they rose a second since they were last read."""

    def __init__(self) -> None:
        self._now = 0
        self._before: dict[str, tuple[float, int]] = {}

    def at(self, now_ns: int) -> None:
        """The moment that the counters given from here on belong to."""
        self._now = now_ns

    def per_s(self, name: str, count: float | None) -> float | None:
        """None where there is no count, or none to compare it with."""
        if count is None:
            self._before.pop(name, None)
            return None
        before, at = self._before.get(name, (count, self._now))
        self._before[name] = (count, self._now)
        return (count - before) * 1e9 / (self._now - at) if self._now > at else None


def network_cards(names: Iterable[str], folder: str = "/sys/class/net") -> list[str]:
    """Those of a host that stand for hardware; in a container, which sees none, all but loopback.

    Bonds, bridges and tunnels count again what their cards carry. RDMA is in none of the counters.
    """
    others = sorted(name for name in names if name not in LOOPBACK)
    return [name for name in others if os.path.exists(f"{folder}/{name}/device")] or others


def throttles(reasons: int) -> str:
    """NVML's clocks event reasons in words; "" for none that slow it down."""
    return REASONS_JOIN.join(name for bits, name in THROTTLES if reasons & bits)
