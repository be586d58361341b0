"""Samples the Python stacks of the DataLoader workers that the training thread waits for.

A worker that was forked from this process inherits its signal handler in C (`stack_signal`), which appends the worker's
stack to this process's file. The worker runs no Python code of ddpmon.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence

from ddpmon import proc
from ddpmon.messages import MAX_STACKS, SampledStack
from ddpmon.messages.dumps import is_one_dump, parse_frames
from ddpmon.messages.folder import Places
from ddpmon.messages.signals import STACK_SIGNAL
from ddpmon.probe import stack_signal
from ddpmon.probe.records import DATA

STARTED_BY = "torch/utils/data/_utils/worker.py:"
"""Start of the frame of torch's worker loop. Frames outside of it only started the worker."""
SIBLING_EVERY = 4
"""Every fourth sample is taken from a worker that the rank does not wait for."""
MAX_WORKER_DUMP_BYTES = 1 << 16
MAX_SAMPLE_FILE_BYTES = 1 << 20
"""File size in bytes at which sampling ends, in case other programs send the signal too and the file keeps growing."""


class WorkerSampler:
    """Takes samples. Each call of `take` reads the answer to the last signal and sends the next."""

    def __init__(self) -> None:
        self._dumps: Counter[bytes] = Counter()
        """Number of times that workers answered with each stack."""
        self._read_from: int | None = None
        """Size of the file when a worker was last signalled; None if no answer is expected."""
        self._answers: dict[int, bool] = {}
        """By pid of each worker: True if the worker answers the signal."""
        self._takes = 0
        self._sibling = 0
        """Pid of the last signalled worker if the rank waited for another worker; 0 if the rank waited for this one."""
        self._checks: Counter[int] = Counter()
        self._idle: Counter[int] = Counter()

    def take(self, pid: int, workers: Sequence[int] = ()) -> None:
        """Read the last answer, and signal a worker of this process, if it handles the signal.

        Args:
            pid: The worker that the rank waits for.
            workers: All workers of the rank. The others are signalled now and then, in turn.

        """
        path = stack_signal.answer_path()
        if path is None or pid <= 0:
            return
        try:
            self._take_answer(path)
            size = os.stat(path).st_size
            self._takes += 1
            siblings = [worker for worker in workers if worker != pid]
            self._sibling = (
                siblings[self._takes // SIBLING_EVERY % len(siblings)]
                if (siblings and self._takes % SIBLING_EVERY == 0)
                else 0
            )
            pid = self._sibling or pid
            if self._is_worker(pid) and size < MAX_SAMPLE_FILE_BYTES:
                os.kill(pid, STACK_SIGNAL)
                self._read_from = size
        except OSError:  # The worker has ended, or the file is gone.
            self._read_from = None

    def _take_answer(self, path: str) -> None:
        """Count the stack that the worker has written since it was signalled."""
        begin, self._read_from = self._read_from, None
        if begin is None:
            return
        with open(path, "rb") as file:
            file.seek(begin)
            dump = file.read(MAX_WORKER_DUMP_BYTES)
        if is_one_dump(dump) and self._sibling:
            self._checks[self._sibling] += 1
            self._idle[self._sibling] += _is_idle(dump)
        elif is_one_dump(dump):
            self._dumps[dump] += 1

    def _is_worker(self, pid: int) -> bool:
        """Return whether a process was forked from this one and handles the signal."""
        if pid not in self._answers:
            self._answers[pid] = proc.parent(pid) == os.getpid() and proc.catches(pid, STACK_SIGNAL)
        return self._answers[pid]

    @property
    def idle(self) -> dict[int, tuple[int, int]]:
        """Return {pid: (samples, idle samples)} of workers sampled while the rank waited for another one."""
        return {pid: (count, self._idle[pid]) for pid, count in self._checks.items()}

    def result(self, places: Places) -> list[SampledStack]:
        """Return the stacks, the most frequent first, and empty the file. places: the folders of this process."""
        path = stack_signal.answer_path()
        if path is not None and self._answers:
            with contextlib.suppress(OSError):
                os.truncate(path, 0)
        read = (_stack(dump, count, places) for dump, count in self._dumps.most_common(MAX_STACKS))
        return [stack for stack in read if stack is not None]


def _is_idle(dump: bytes) -> bool:
    """Return whether torch's loop in a worker waits for the indices of a batch to load."""
    lines = dump.splitlines()
    end = next((place for place, line in enumerate(lines) if b"torch/utils/data/_utils/worker.py" in line), 0)
    return b"multiprocessing/queues.py" in lines[end - 1] and lines[end - 1].endswith(b"get")


def _stack(dump: bytes, count: int, places: Places) -> SampledStack | None:
    """Parse a worker's stack, up to torch's worker loop. Return None if the worker was not in this loop yet."""
    names, own = parse_frames(dump, places)
    end = next((place for place, name in enumerate(names) if name.startswith(STARTED_BY)), 0)
    return SampledStack(DATA, count, names[: end + 1], [index for index in own if index < end]) if end else None
