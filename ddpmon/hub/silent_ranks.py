"""Examines silent ranks on this machine whose processes are alive.

/proc shows which silent ranks the kernel does not run. Others may hold the GIL in compiled code, so that the
thread that would send the stack cannot run. The hub sends these ranks STACK_SIGNAL, and a handler in C writes the
stack. The signal interrupts system calls, and kills a process that does not catch it. So the hub sends it rarely, only
to ranks that offered to answer, and only if the run stalls or a viewer waits for the stack of a silent rank.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ddpmon import proc
from ddpmon.analysis.processes.disagreements import line_of
from ddpmon.analysis.processes.hangs import Held
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.hub.cpu_activity import TICKS_PER_S
from ddpmon.messages import Stack, WireError
from ddpmon.messages.dumps import parse_frames
from ddpmon.messages.folder import STACKS, Places
from ddpmon.messages.signals import STACK_SIGNAL
from ddpmon.runs import Process, plain_file
from ddpmon.store.processes import RankProcess

MIN_SIGNAL_INTERVAL_S = 4.0
"""Shortest time in seconds between two signals to a rank. It is half of the time for which a stack counts as
current."""
MAX_DUMP_BYTES = PLACES_BYTES = 1 << 20
_tgkill = ctypes.CDLL(None).tgkill
"""Sends a signal to one thread of a process. glibc has this function since 2.30."""


@dataclass
class _Query:
    """Last observation of a silent rank or worker, and the time at which the process was sent a signal."""

    state: str = ""
    at: float | None = None
    answered: bool = True
    seen: tuple[float, int] = (0.0, 0)
    """Time at which a worker was first examined, and the CPU time that it had used by then, in ticks."""


class SilentRanks:
    """Examines silent ranks. Their signal handlers write answers into the run's folder."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / STACKS
        self._queries: dict[int, _Query] = {}

    def examine_rank(self, process: RankProcess, now: float, since_us: int) -> bool:
        """Examine a silent rank: read its answer or send it a signal. Return whether there was a new stack.

        A rank gets a signal only if it was silent at the last check too, because the hub itself may have been delayed.

        Args:
            process: The rank.
            now: Seconds of the hub's clock.
            since_us: Beginning of the rank's current step in microseconds.

        """
        if process.process is None or process.gone:
            return False
        pid = process.process.pid
        thread = self._thread(process)
        first = pid not in self._queries
        query = self._queries.setdefault(pid, _Query())
        before, query.state = query.state, stat.state if (stat := proc.stat(thread or pid)) else ""
        process.held = _why_held(pid, query.state, before, thread or pid)
        got_stack = False
        if not query.answered and (stack := self._answer(process, since_us)):
            query.answered = got_stack = True
            process.take_stack(stack, now)
        if query.state in {"R", "S"} and not first and (query.at is None or now - query.at >= MIN_SIGNAL_INTERVAL_S):
            query.at = now
            query.answered = not self._ask(process.process, thread)
        return got_stack

    def check_worker(self, process: RankProcess, now: float) -> bool:
        """Examine the DataLoader worker for which a rank waits, if any. Return whether viewers should get new facts.

        A worker that was forked from the rank writes its stack into the rank's file. A signal interrupts the work for
        which the rank waits, so the worker gets no more signals after its first answer.
        """
        rank, pid = process.process, process.stack.worker if process.stack else 0
        stat = proc.stat(pid) if pid else None
        # The worker's pid is valid in this pid namespace only if the rank's is.
        if rank is None or rank.pid != process.hello.pid or stat is None or stat.parent != rank.pid:
            return False
        query = self._queries.get(pid)
        if query is None:
            query = self._queries[pid] = _Query(seen=(now, stat.cpu_ticks))
        before = process.worker if process.worker and process.worker.pid == pid else Worker(pid)
        since, ticks = query.seen
        cores = (stat.cpu_ticks - ticks) / TICKS_PER_S / (now - since) if now - since >= MIN_SIGNAL_INTERVAL_S else None
        line = before.line
        if not line and not query.answered and (stack := self._answer(process, 0)):
            line = line_of(stack)
        elif not line and (query.at is None or now - query.at >= MIN_SIGNAL_INTERVAL_S) and (target := Process.of(pid)):
            query.at = now
            query.answered = not self._ask(target, 0, offered_by=rank.pid)
        process.worker = Worker(pid, cores if cores is None else round(cores, 1), proc.kernel_function(pid)[:64], line)
        return process.worker != before

    def forget_rank(self, process: RankProcess) -> None:
        """Discard the observations of a rank that is not silent any more."""
        process.held = None
        self._queries.pop(process.hello.pid, None)

    def forget_worker(self, process: RankProcess) -> None:
        """Discard the observations of a DataLoader worker, because the rank no longer waits for it."""
        if process.worker is not None:
            self._queries.pop(process.worker.pid, None)
            process.worker = None

    def delete_files(self) -> None:
        """Delete the files of all ranks when the run is over, as killed ranks could not delete their own."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _thread(self, process: RankProcess) -> int:
        """Return the kernel id of a rank's training thread, or 0 if it is the main thread or unknown."""
        places = self._places(process)
        pid, own = process.process.pid if process.process else 0, process.hello.pid
        return places.thread if places and pid == own and proc.stat(places.thread) else 0

    def _ask(self, process: Process, thread: int, offered_by: int = 0) -> bool:
        """Send STACK_SIGNAL to a process that exists, offered to answer and catches it. Return whether it was sent.

        Args:
            process: The process.
            thread: The thread to signal, or 0 for the main thread.
            offered_by: Pid of the process that offered the answer, or 0 for the process itself.

        """
        offer = self._folder / f"{offered_by or process.pid}.stack"
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            return False
        try:
            # All checks come after opening the pidfd, so that they hold for the process that it refers to.
            if not process.alive() or not proc.catches(process.pid, STACK_SIGNAL):
                return False
            os.truncate(offer, 0)
            if not thread:
                signal.pidfd_send_signal(handle, STACK_SIGNAL)
            elif _tgkill(process.pid, thread, STACK_SIGNAL):
                return False
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def _places(self, process: RankProcess) -> Places | None:
        try:
            return msgspec.json.decode(
                plain_file.content(self._folder / f"{process.hello.pid}.json", PLACES_BYTES), type=Places
            )
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _answer(self, process: RankProcess, since_us: int) -> Stack | None:
        places = self._places(process)
        if places is None:
            return None
        try:
            with plain_file.opened(self._folder / f"{process.hello.pid}.stack") as file:
                stack_frames, own = parse_frames(file.read(MAX_DUMP_BYTES), places)
            stack = Stack(
                rank=process.rank,
                pid=process.hello.pid,
                time_us=time.monotonic_ns() // 1000,
                step=process.steps,
                since_us=since_us,
                phase=process.phase,
                frames=stack_frames,
                own=own[0] if own else None,
            )
        except (OSError, WireError):
            return None
        return stack if stack_frames else None


def _why_held(pid: int, state: str, before: str, thread: int) -> Held | None:
    if state == "T":
        return Held(pid, "stopped")
    if state == "t":
        return Held(pid, "traced")
    if (
        state == before == "D"
    ):  # A single observation of state D (uninterruptible sleep) may be an ordinary read from a disk.
        return Held(pid, "kernel", proc.kernel_function(thread)[:64])
    return None
