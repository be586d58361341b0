"""Reads single values from a GPU, and times on its timeline, without ever waiting for the GPU."""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from ddpmon.probe.records import DeviceEvent, Mark

SLOTS = 1024
OF_THIS_THREAD = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL of the CUDA driver."""


def leave_captures_alone() -> bool:
    """Make this thread's CUDA calls harmless to a graph that another thread of the process captures.

    By default, a query of an event invalidates such a capture, in whatever thread it happens (CUDA driver API,
    cuThreadExchangeStreamCaptureMode). Does nothing without NVIDIA's driver, and returns True in any case.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(OF_THIS_THREAD)))
    return True


def allocator_counters(device: int) -> dict[str, int]:
    """Return the counters of torch's allocator for a GPU, by field name of Sample. Takes the allocator's lock briefly.

    Returns {} if this process has not initialized CUDA, because reading would initialize it, or has a custom allocator.
    """
    if not torch.cuda.is_initialized():
        return {}
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        return {
            "gpu_allocated_bytes": int(stats["allocated_bytes"]["all"]["current"]),
            "gpu_reserved_bytes": int(stats["reserved_bytes"]["all"]["current"]),
            "gpu_alloc_retries": int(stats["num_alloc_retries"]),
        }
    except (RuntimeError, KeyError):
        return {}


class HostCopy:
    """A copy of a tensor from the device to pinned memory. A tensor on the CPU is not copied and counts as arrived."""

    __slots__ = ("_event", "tensor")

    def __init__(self, tensor: Any, pinned: Any = None) -> None:
        """Start the copy on the current stream. pinned: target of the copy; None to allocate one."""
        self.tensor = tensor
        """The tensor on the host; valid once it has arrived."""
        self._event: Any = None
        if tensor.is_cuda:
            if pinned is None:
                pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self.tensor = pinned
            pinned.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensor.device))

    @property
    def has_arrived(self) -> bool:
        """Return whether the copy is done. The call queries the driver and does not wait."""
        return self._event is None or bool(self._event.query())


class Readings:
    """Copies single values to pinned memory on the current stream, into a ring of slots that is allocated at first use.

    A slot is reused after SLOTS further readings. By then its value has long been read, because the background thread
    reads values several times a second.
    """

    def __init__(self) -> None:
        self._slots: Any = None
        self._next = 0

    def start_copy(self, tensor: Any) -> HostCopy | None:
        """Start the copy of a one-element CUDA tensor; return None while the stream is being captured into a graph."""
        if torch.cuda.is_current_stream_capturing():
            return None
        if self._slots is None:
            self._slots = torch.empty(SLOTS, dtype=torch.float32, pin_memory=True)
        slot = self._slots[self._next % SLOTS]
        self._next += 1
        return HostCopy(tensor.detach().reshape(()), slot)


def resolve_reading(value: object) -> float | None:
    """Return the number that a number or reading holds, or the sum of a tuple of them; None if one has not arrived."""
    if isinstance(value, HostCopy):
        return float(value.tensor) if value.has_arrived else None
    if isinstance(value, tuple):
        parts = [part for part in map(resolve_reading, value) if part is not None]
        return sum(parts) if len(parts) == len(value) else None
    return value if isinstance(value, float) else None


def is_pending(value: object) -> bool:
    """Return whether a value is a reading that has not arrived yet, or a tuple that contains one."""
    if isinstance(value, tuple):
        return any(map(is_pending, value))
    return isinstance(value, HostCopy) and not value.has_arrived


class Events:
    """Timing events on the current stream. An event is reused after its step has been read."""

    def __init__(self, captured: Callable[[], object]) -> None:
        """Create an empty pool of events. captured: called when training is captured into a CUDA graph."""
        self._captured = captured
        self._free: deque[DeviceEvent] = deque()

    def event(self) -> DeviceEvent | None:
        """Record an event now; return None while the stream is being captured into a graph."""
        if torch.cuda.is_current_stream_capturing():
            self._captured()
            return None
        try:
            event = self._free.popleft()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def recycle_event(self, event: DeviceEvent) -> None:
        """Return an event to the pool when no mark uses it any longer."""
        self._free.append(event)

    def recycle_step_events(self, marks: list[Mark]) -> None:
        """Return the events of a step that was read to the pool, except the last, which also begins the next step."""
        last = marks[-1].event
        self._free.extend({id(mark.event): mark.event for mark in marks if mark.event is not last}.values())
