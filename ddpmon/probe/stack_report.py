"""Reports where the training thread is when it makes no progress: its Python stack and its collective.

The background thread reads the stack and the collective, so the training thread may be blocked, asleep or busy. Only
code that never releases the GIL prevents the reading.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from ddpmon.messages import LOADER_ITERATOR, MAX_FRAMES, MAX_SCOPES, MEETINGS, Collective, Scope, Stack
from ddpmon.messages.folder import IMPORTLIB, Places
from ddpmon.plain import utf8
from ddpmon.probe import collectives, source_scopes
from ddpmon.probe.collectives import COLLECTIVE_FUNCTIONS
from ddpmon.probe.device_timeline import steps_reached
from ddpmon.probe.every_step import EveryStep
from ddpmon.probe.records import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import CodeType, FrameType

    Line = tuple[CodeType, int]

OVERDUE_NS = 5_000_000_000
OVERDUE_STEPS = 8
"""A step is overdue once it takes this many times as long as the longest step so far, and at least OVERDUE_NS."""
OVERDUE_SHARE = 0.25
"""A step is also overdue after this share of the shortest timeout of a process group: a timeout ends the run."""
OVERDUE_INTERVAL_S = 2.0
"""Interval in seconds at which a rank whose step is overdue sends its stack without a request."""
FRAME_CHARS = 200
MAX_WALKED_FRAMES = 2 * MAX_FRAMES
"""Number of frames to read of a stack, including frames of the probe and of imports, which are then left out."""

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LIBRARIES = (os.path.join(os.path.dirname(os.__file__), ""), os.path.join(os.path.dirname(_TORCH[:-1]), ""))
"""Folders of the standard library, and of the packages that are installed beside torch."""
_OWN_TIMEOUT = {*MEETINGS, "monitored_barrier"}
"""Functions that use an argument or the store's timeout instead of the timeout of a process group."""
_CALLS = {*COLLECTIVE_FUNCTIONS, *MEETINGS, "send", "recv"}
"""Functions, called by scripts, in which ranks wait for each other."""
_BACKWARD = "_engine_run_backward"
_DDP = {
    "_sync_buffers": "DDP's buffer broadcast",
    _BACKWARD: "DDP's gradient all-reduce",
    "_verify_param_shape_across_processes": "DDP's check of the model",
    "_sync_module_states": "DDP's first broadcast of the model",
    "_pre_forward": "DDP's broadcast of its new buckets",
}
"""Functions of DDP in which ranks wait for each other, with the names that are shown for them."""


class StackReporter:
    """Decides when to send the training thread's stack to the hub, and captures it."""

    def __init__(self, listener: EveryStep) -> None:
        self._asked = False
        """True if the hub requested the stack."""
        self._brief = False
        """True if the hub requested the stack without the Flight Recorder, because the run makes progress."""
        self._listener = listener
        self._longest_ns = 0
        self._reported_at = 0.0
        self._last: tuple[list[str], dict[str, int]] = ([], {})
        self._recorded: tuple[Collective | None, bool] | None = None
        self._scopes: list[Scope] = []
        """Loops and branches around the script's lines in the stack, read once while the stack stays the same."""
        self._place = 0
        """Hash of the training thread's stack at the last call of `has_moved`."""

    def has_moved(self) -> bool:
        """Return whether the training thread's stack has changed since the last call. Takes 10 µs."""
        frame = self._frame()
        place = 0
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            place = hash((place, id(frame.f_code), frame.f_lasti))
            frame = frame.f_back
        before, self._place = self._place, place
        return place != before

    def _frame(self) -> FrameType | None:
        """Return the innermost frame of the training thread; if that thread has ended, of the main thread."""
        # Do not store the dict in a variable: it contains this frame, and the cycle would keep all frames alive.
        frame = sys._current_frames().get(self._listener.thread or 0)
        return frame or sys._current_frames().get(threading.main_thread().ident or 0)

    def request(self, *, brief: bool) -> None:
        """Handle a request of the hub. brief: True to omit the Flight Recorder, since reading it stops the process."""
        self._brief = brief and (self._brief or not self._asked)
        self._asked = True

    def step_took(self, length_ns: int) -> None:
        """Update the longest duration of a step."""
        self._longest_ns = max(self._longest_ns, length_ns)

    def is_due(self, now: float) -> bool:
        """Return whether to send the stack: the hub requested it, or the step takes far longer than earlier steps."""
        return self._asked or (now - self._reported_at >= OVERDUE_INTERVAL_S and self._overdue())

    def _overdue(self) -> bool:
        so_far = time.monotonic_ns() - self._listener.clock.part.start
        if so_far <= OVERDUE_NS:
            return False
        if so_far > OVERDUE_STEPS * self._longest_ns:
            return True
        return so_far > OVERDUE_SHARE * min(collectives.timeouts_s(), default=math.inf) * 1e9

    def capture(self, now: float) -> Stack:
        """Return the training thread's current stack."""
        listener, clock = self._listener, self._listener.clock
        brief, self._asked, self._brief = self._brief, False, False
        stack = _stack(self._frame())
        lines = without_probe(stack)
        frames, own = place_frames(lines)
        issued = collectives.last_sequence_numbers()
        if not brief:
            self._reported_at = now
        # Reading the Flight Recorder stops the process briefly, so do it only once while the stack stays the same.
        if (frames, issued) != self._last:
            self._last = (frames, issued)
            self._recorded = None
            self._scopes = []
        elif self._recorded is None and not brief:
            self._recorded = collectives.unfinished_or_last()
            own_lines = ((index, *lines[index]) for index in own)
            around = (source_scopes.enclosing_line(code.co_filename, line, index) for index, code, line in own_lines)
            self._scopes = list(islice(chain.from_iterable(around), MAX_SCOPES))
        collective, blocked = self._collective(_torch_functions(stack), brief=brief)
        return Stack(
            rank=listener.identity.facts.rank,
            pid=os.getpid(),
            time_us=time.monotonic_ns() // 1000,
            step=clock.step,
            since_us=clock.part.start // 1000,
            phase=min(clock.phase, OTHER),
            frames=frames,
            own=own[0] if own else None,
            collective=collective,
            blocked=blocked,
            issued=issued,
            timeout_s=_timeout_s(collective) if blocked else None,
            scopes=self._scopes,
            device=steps_reached(clock.step, list(clock.finished), list(marks)) if (marks := clock.part.marks) else [],
            worker=listener.passes.awaited_pid() if any(f" {LOADER_ITERATOR}" in frame for frame in frames) else 0,
        )

    def _collective(self, library: list[str], *, brief: bool) -> tuple[Collective | None, bool]:
        """Return the collective in which the thread is blocked, or the last one, and whether it is blocked.

        Args:
            library: Names of torch's functions at the inner end of the stack; empty while the script's own code runs.
            brief: True if the run makes progress, as far as the hub knows.

        """
        called = [function for function in library if function in _CALLS]
        # Collectives call each other: all_gather_object calls all_gather. The script called the outermost one.
        waits = (_DDP[function] for function in library if self._waits_in(function, brief=brief))
        name = called[-1] if called else next(waits, None)
        if self._recorded is not None and name not in MEETINGS:
            last, inside = self._recorded
            if last is None or not (inside and library):
                return last, False  # The thread computes, in torch or in the script.
            return replace(last, name=name or last.name), True
        return (Collective(name), True) if name else (None, False)

    def _waits_in(self, function: str, *, brief: bool) -> bool:
        """Return whether a rank inside this function waits for others.

        In a run that makes progress, a rank inside a backward mostly computes. A single rank never waits.

        Args:
            function: A function of torch on the stack.
            brief: True if the run makes progress, as far as the hub knows.

        """
        may_compute = function == _BACKWARD and brief and not self._overdue()
        return function in _DDP and self._listener.identity.facts.world_size > 1 and not may_compute


def _timeout_s(collective: Collective | None) -> float | None:
    """Return the timeout of a collective in seconds; None if its group is unknown and the groups' timeouts differ."""
    if collective is None or collective.name in _OWN_TIMEOUT:
        return None
    timeouts = collectives.timeouts_s(collective.group) or collectives.timeouts_s()
    return timeouts.pop() if len(timeouts) == 1 else None


def _stack(frame: FrameType | None) -> list[Line]:
    """Return the code and line of each frame of a stack, the innermost first. This reads no variables and no source."""
    lines: list[Line] = []
    while frame is not None and len(lines) < MAX_WALKED_FRAMES:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return lines


def _torch_functions(stack: Iterable[Line]) -> list[str]:
    """Return the names of torch's functions at the inner end of a stack."""
    inner = takewhile(lambda line: line[0].co_filename.startswith((_OURS, _TORCH)), stack)
    return [code.co_name for code, _ in inner if not code.co_filename.startswith(_OURS)]


def without_probe(stack: Iterable[Line]) -> list[Line]:
    """Return the frames to report, without those of ddpmon and of imports."""
    kept = (line for line in stack if not line[0].co_filename.startswith((_OURS, IMPORTLIB)))
    return list(islice(kept, MAX_FRAMES))


def place_frames(lines: Sequence[Line]) -> tuple[list[str], list[int]]:
    """Return frames in the form of a Stack message, and the indices of those outside libraries."""
    frames = [f"{_place(code.co_filename)[0]}:{line} {code.co_qualname}"[:FRAME_CHARS] for code, line in lines]
    return frames, [index for index, (code, _) in enumerate(lines) if not _place(code.co_filename)[1]]


@functools.lru_cache(maxsize=1024)
def _place(file: str) -> tuple[str, bool]:
    name, is_library = places().relative_name(file)
    return utf8(name), is_library


def places() -> Places:
    """Return this process's current folders."""
    return Places(_OURS, _LIBRARIES, sorted({os.path.join(folder, "") for folder in sys.path if folder}))
