"""Reads this rank's GPU counters from NVML on a separate thread, because calls into a broken driver may hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from ddpmon import proc
from ddpmon.messages import GPU_COUNTERS, REASONS_JOIN, GpuUser
from ddpmon.messages.competitors import MAX_GPU_USERS
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.plain import utf8
from ddpmon.probe.identity import Identity

THROTTLES = (
    (0x20 | 0x40, "thermal"),
    (0x04, "power cap"),
    (0x80, "power brake"),
    (0x08, "hardware slowdown"),
    (0x10, "sync boost"),
)
"""Bits of NVML's clocks event reasons, and their common names, without those of idle GPUs and user-set clocks."""
MAX_NVML_WAIT_S = 0.25
"""Longest time in seconds that a sample waits for its values. A healthy driver answers in a few milliseconds."""
UNANSWERED_SAMPLES = 5
"""Consecutive samples without an answer after which the driver counts as hung. A healthy driver may need seconds for
its first answer."""
SLOW_SAMPLES = 10
"""Number of samples between two reads of the GPU's other processes and its ECC errors."""
UNCORRECTABLE = "uncorrectable ECC errors"
MAX_XIDS = 16
"""Largest number of critical errors to read for one sample: a broken GPU may report them without end."""
ADOPTING = "systemd"
"""Name of a process, besides pid 1, that becomes the parent of orphaned processes."""


class GpuCounters:
    """Reads the GPU's values when a sample requests them."""

    def __init__(self, uuid: str, identity: Identity) -> None:
        """Start the thread.

        Args:
            uuid: UUID of the GPU or the MIG instance, as torch writes it: without "GPU-" or "MIG-".
            identity: Receives the GPU's critical errors and its other processes, and the reason for missing values.

        """
        self._uuid = uuid
        self._identity = identity
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._values: dict[str, Any] = {}
        self._unanswered = 0
        threading.Thread(target=self._run, name="ddpmon GPU", daemon=True).start()

    def read_nvml(self) -> dict[str, Any]:
        """Return the values by field name of Sample; none if NVML does not answer in time."""
        if not self._asked.is_set():
            self._answered.clear()
            self._asked.set()
        if self._answered.wait(MAX_NVML_WAIT_S):
            self._unanswered = 0
            return self._values
        self._unanswered += 1
        if self._unanswered == UNANSWERED_SAMPLES:
            self._missing("there are no GPU counters, because NVML does not answer")
        return {}

    def _missing(self, reason: str) -> None:
        self._identity.set_missing(GPU_COUNTERS, reason)

    def _run(self) -> None:
        self._asked.wait()  # A failure to open the GPU must come after the first request, which reports it.
        try:
            nvml, handle = _opened(self._uuid)
            errors, uncorrected = _critical_errors(nvml, handle), _uncorrected(nvml, handle)
            for sample in count():
                self._asked.wait()
                self._values, error = _read(nvml, handle)
                self._missing(f"there are no GPU counters: {error}" if error else "")
                if isinstance(error, nvml.NVMLError_GpuIsLost):
                    self._identity.add_gpu_error(str(error))
                for xid in _new_xids(nvml, errors):
                    self._identity.add_gpu_error(f"Xid {xid}")
                if sample % SLOW_SAMPLES == 0:
                    self._identity.set_gpu_users(others_on_gpu(nvml, handle, self._identity.facts.run_id))
                    if _uncorrected(nvml, handle) > uncorrected:
                        self._identity.add_gpu_error(UNCORRECTABLE)
                self._asked.clear()
                self._answered.set()
        except Exception as error:  # no driver, no library, a container without the device: all normal
            self._values = {}
            self._missing(f"there are no GPU counters: {error}")
            self._answered.set()


def _opened(uuid: str) -> tuple[Any, Any]:
    import pynvml

    pynvml.nvmlInit()
    try:
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _critical_errors(nvml: Any, handle: Any) -> Any:
    """Return the set of events in which NVML reports the GPU's critical errors; None if NVML does not support it."""
    try:
        events = nvml.nvmlEventSetCreate()
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:  # MIG instances, virtual and old GPUs do not support it
        return None
    return events


def _new_xids(nvml: Any, events: Any) -> Iterator[int]:
    """Yield the codes of the critical errors since the last call, without waiting for further errors."""
    for _ in range(MAX_XIDS if events is not None else 0):
        try:
            yield int(nvml.nvmlEventSetWait(events, 0).eventData)
        except nvml.NVMLError:  # A timeout means that there are no more.
            return


def _uncorrected(nvml: Any, handle: Any) -> int:
    """Return the number of memory errors that the GPU's ECC could not correct, since the driver was loaded."""
    try:
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))
    except nvml.NVMLError:  # The GPU has no ECC.
        return 0


def _read(nvml: Any, handle: Any) -> tuple[dict[str, Any], Exception | None]:
    """Return the values that the device supports, and an error if it supports none."""
    errors: list[Exception] = []

    def call(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(handle, *args)
        except nvml.NVMLError as error:  # most often because this device does not support the value
            errors.append(error)
            return None

    rates = call(nvml.nvmlDeviceGetUtilizationRates)
    # As in nvidia-smi, memory that the driver reserves for itself is not used memory. Drivers before 510 count it.
    memory = call(nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlMemory_v2) or call(nvml.nvmlDeviceGetMemoryInfo)
    reserved = getattr(memory, "reserved", 0)
    power_mw = call(nvml.nvmlDeviceGetPowerUsage)
    # The first name came with driver 535. Older drivers know only the second.
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    calls = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
    reasons = next((bits for each in calls if (bits := call(each)) is not None), None)
    values = {
        "gpu_percent": None if rates is None else float(rates.gpu),
        "gpu_memory_used_bytes": None if memory is None else int(memory.used),
        "gpu_memory_total_bytes": None if memory is None else int(memory.total - reserved),
        "gpu_power_w": None if power_mw is None else power_mw / 1000,
        "gpu_temperature_c": call(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "gpu_clock_mhz": call(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "gpu_throttled": None if reasons is None else throttles(reasons),
    }
    measured = any(value is not None for value in values.values())
    return values, None if measured else errors[0]


def throttles(reasons: int) -> str:
    """Return NVML's clocks event reasons in words; "" if none of them slows the GPU down."""
    return REASONS_JOIN.join(name for bits, name in THROTTLES if reasons & bits)


def others_on_gpu(nvml: Any, handle: Any, run_id: str) -> list[GpuUser] | None:
    """Return the other processes that compute on a GPU, those with the most memory first.

    Returns None if NVML does not list this process, because NVML then reports pids of another namespace.
    """
    try:
        listed = {one.pid: one.usedGpuMemory for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except nvml.NVMLError:
        return None
    if os.getpid() not in listed:
        return None
    del listed[os.getpid()]
    users = [_described(pid, used or 0, run_id) for pid, used in listed.items()]
    return sorted(users, key=lambda user: -user.used_bytes)[:MAX_GPU_USERS]


def _described(pid: int, used_bytes: int, run_id: str) -> GpuUser:
    environment, parent = proc.environment(pid), proc.parent(pid)
    of_run = bool(run_id) and environment.get("DDPMON_RUN_ID") == run_id
    is_orphan = parent == 1 or (parent > 1 and proc.program(parent) == ADOPTING)
    left_over = is_orphan and not of_run and {"RANK", "MASTER_PORT"} <= environment.keys()
    return GpuUser(pid, utf8(proc.program(pid))[:MAX_NAME], used_bytes, of_run, left_over)
