"""Samples the training thread's Python stack for some seconds when the hub asks for it, and sums the samples up.

The background thread takes them between its turns. A sample costs the training thread the time in which that thread
has the GIL, some 20 µs. Where the training thread keeps the GIL at the moment of a sample, it is signalled and writes
its stack itself (`stack_timer`). Nothing of this runs, and nothing is kept, while nobody asks.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from threading import Event
from types import CodeType
from typing import TYPE_CHECKING

from ddpmon.messages import LOADER_ITERATOR, MAX_FRAMES, MAX_STACKS, SampledStack, StackSamples
from ddpmon.messages.dumps import frames as dumped_frames
from ddpmon.probe import counters
from ddpmon.probe.data_readers import DataReaders
from ddpmon.probe.records import OTHER, RawStep
from ddpmon.probe.stack import place_frames, places
from ddpmon.probe.stack_timer import StackTimer
from ddpmon.probe.step_records import parts
from ddpmon.probe.worker_sampler import WorkerSampler

if TYPE_CHECKING:
    from ddpmon.probe.account import Account
    from ddpmon.probe.every_step import EveryStep

INTERVAL_S = 0.02
"""Mean time between two samples; each is between half of it and one and a half."""
GRACE_S = 0.0005
"""Time after which a sample is due in any case: until then, the background thread may come to have the GIL."""
FEWEST_STEPS = 3
"""Whole steps to sample, if that takes at most PATIENCE times as long as was asked for."""
PATIENCE = 4
WAITS_FOR_WORKERS = {"_get_data", "_try_get_data"}
"""Methods in torch's file of DataLoaders that only iterators with workers have."""
OWN_ITERATOR = "_SingleProcessDataLoaderIter"
"""Class of torch's in the stack of a thread that loads a batch itself."""
MOST_WAITING = 20_000
"""Samples of steps that have not ended; further ones are thrown away."""

Key = tuple[tuple[CodeType, int], ...] | bytes
"""A stack, innermost frame first: code and the instruction that it is at; or what faulthandler wrote of it."""
Sampled = tuple[int, int, Key, int]
"""A sample: its moment in nanoseconds, the phase, the stack, and how many samples it stands for."""


class StackSampler:
    """Takes samples between `request` and `is_due`, when `result` sums them up."""

    def __init__(self, listener: EveryStep) -> None:
        self._listener = listener
        self._chance = random.Random()  # noqa: S311  of its own: the script's draws stay as they are
        self._timer: StackTimer | None = None
        self._reset()

    def _reset(self) -> None:
        self._began = self._until = 0.0
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        self._waiting: list[Sampled] = []
        """Samples of steps that have not been seen to end."""
        self._stacks: Counter[tuple[int, Key]] = Counter()
        self._workers = WorkerSampler()
        self._readers: DataReaders | None = None
        """None: no sample showed a wait for data yet."""
        self._count = self._steps = self._first_step = self._last_step = self._span_ns = 0

    @property
    def is_active(self) -> bool:
        """Return whether samples are wanted."""
        return self._until > 0

    def request(self, seconds: float, now: float) -> None:
        """Begin to sample, for so many seconds. A request in the middle of another one changes nothing."""
        if not self.is_active:
            self._reset()
            self._began, self._until = now, now + seconds
            self._timer = StackTimer(self._listener.native_thread or 0)

    def rest(self, stopping: Event, seconds: float) -> None:
        """Sleep between two turns of the background thread, and take samples meanwhile if they are wanted."""
        if not self.is_active:
            stopping.wait(seconds)
            return
        now = due = time.monotonic()
        end = now + seconds
        due += self._interval()
        while now < end:
            if self._timer is not None:
                self._timer.set(due - now + GRACE_S)
            if stopping.wait(due - now):
                self._reset()
                return
            now, first, count = time.monotonic(), due, 0
            while due <= now or not count:  # compiled code that kept the GIL through several of them counts as often
                due += self._interval()
                count += 1
            stack, had_gil = self._take(first, now - first >= GRACE_S, count)
            self._look_at_readers(stack, had_gil=had_gil)

    def _look_at_readers(self, stack: Sequence[tuple[CodeType, int]], *, had_gil: bool) -> None:
        """Look at the process that loads the batch for which the training thread waits in this stack."""
        passes, names = self._listener.passes, {code.co_qualname.partition(".")[0] for code, _ in stack}
        if LOADER_ITERATOR.rstrip(".") in names:
            pid, workers = passes.awaited_pid(), passes.worker_pids()
            self._readers = self._readers or DataReaders(workers)
            self._readers.look(pid, 0)  # before it runs to answer
            self._workers.take(pid, workers)
        elif OWN_ITERATOR in names:
            self._readers = self._readers or DataReaders(())
            self._readers.look(0, self._listener.native_thread or 0, had_gil=had_gil)

    def _interval(self) -> float:
        """Return the time between two samples. Equal ones would hit steps of the same length at the same place."""
        return INTERVAL_S * (0.5 + self._chance.random())

    def _take(self, due: float, is_late: bool, count: int) -> tuple[Sequence[tuple[CodeType, int]], bool]:
        """Take a sample; return the present stack, and whether the training thread kept the GIL at the moment.

        Args:
            due: When it should have been taken.
            is_late: This thread had to wait for the GIL: the training thread may be elsewhere by now.
            count: How many samples it stands for.

        """
        dump = self._timer.take() if self._timer is not None else b""
        frame = sys._current_frames().get(self._listener.thread or 0)
        key: list[tuple[CodeType, int]] = []
        while frame is not None and len(key) < MAX_FRAMES:
            key.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        if key and len(self._waiting) < MOST_WAITING:
            moment = time.monotonic_ns()
            if is_late and dump.endswith(f"{key[-1][0].co_name}\n".encode("ascii", "backslashreplace")):
                self._note(round((due + GRACE_S) * 1e9), dump, count)
                return key, True
            self._note(moment, tuple(key), count)
        return key, False

    def _note(self, moment: int, key: Key, count: int) -> None:
        """Leave a note like those of the training thread: once it is read, the phase of its moment is known."""
        self._listener.hot.note((_read_sample, time.monotonic_ns(), None, self, (moment, key), count))

    def keep(self, moment: int, phase: int, key: Key, count: int) -> None:
        """Take a sample whose note is read now, with the phase of its moment."""
        self._waiting.append((moment, phase, key, count))

    def step_ended(self, raw: RawStep) -> None:
        """Count the samples of a step whose notes are all read."""
        if not self.is_active:
            return
        pieces = parts(raw)
        start = pieces[0].start
        if start < self._began * 1e9:
            return
        blocked = [(sync.arrival, sync.end) for part in pieces for sync in part.syncs]
        pauses = [(pause.start, pause.end) for part in pieces for pause in part.pauses]
        taken, self._waiting[:] = _split(self._waiting, raw.end)
        for moment, phase, key, count in taken:
            if moment < start or phase > OTHER or _inside(moment, pauses):
                continue
            self._count += count
            if not _inside(moment, blocked):
                self._stacks[phase, key] += count
        self._steps += 1
        self._first_step = self._first_step or raw.step
        self._last_step = raw.step
        self._span_ns += raw.end - start - sum(end - begin for begin, end in pauses)

    def is_due(self, now: float) -> bool:
        """Return whether it is time for `result`."""
        if not self.is_active or now < self._until:
            return False
        return self._steps >= FEWEST_STEPS or now - self._began >= PATIENCE * (self._until - self._began)

    def result(self) -> StackSamples | None:
        """Sum up the samples, and end sampling. None: there was no sample in a whole step."""
        most = self._stacks.most_common(MAX_STACKS)
        made = _merged(most)
        readers, (mount, file_system) = self._readers.result(self._workers.idle) if self._readers else ([], ("", ""))
        samples = StackSamples(
            rank=self._listener.identity.rank,
            pid=os.getpid(),
            first_step=self._first_step,
            last_step=self._last_step,
            steps=self._steps,
            span_us=self._span_ns // 1000,
            count=self._count,
            stacks=made,
            workers=self._workers.result(places()),
            readers=readers,
            mount=mount,
            file_system=file_system,
            swapped_bytes=counters.swapped_bytes(),
        )
        self._reset()
        return samples if samples.count and samples.steps else None


def _read_sample(account: Account, sampler: StackSampler, taken: tuple[int, Key], count: int) -> None:
    """Read the note of a sample. The training thread may have changed its phase since the sample was due."""
    moment, key = taken
    if (phase := account.clock.phase_at(moment)) is not None:
        sampler.keep(moment, phase, key, count)


def _split(samples: list[Sampled], end: int) -> tuple[list[Sampled], list[Sampled]]:
    """Return the samples up to a moment, and those after it."""
    place = next((place for place, sample in enumerate(samples) if sample[0] > end), len(samples))
    return samples[:place], samples[place:]


def _inside(moment: int, spans: list[tuple[int, int]]) -> bool:
    return any(begin <= moment <= end for begin, end in spans)


def _merged(stacks: list[tuple[tuple[int, Key], int]]) -> list[SampledStack]:
    """Return the stacks with the names of their frames, each once."""
    known = places()
    merged: Counter[tuple[int, tuple[str, ...], tuple[int, ...]]] = Counter()
    for (phase, key), count in stacks:
        if isinstance(key, bytes):
            frames, own = dumped_frames(key, known)
        else:
            frames, own = place_frames((code, _line(code, instruction)) for code, instruction in key)
        merged[phase, tuple(_short(frame) for frame in frames), tuple(own)] += count
    return [SampledStack(phase, count, list(frames), list(own)) for (phase, frames, own), count in merged.most_common()]


def _short(frame: str) -> str:
    """Return a frame without the class of its function: faulthandler of Python 3.11 writes the name alone."""
    where, _, function = frame.partition(" ")
    if where.startswith("torch/utils/data/dataloader.py:") and function in WAITS_FOR_WORKERS:
        return f"{where} {LOADER_ITERATOR}{function}"
    return frame if function.startswith(LOADER_ITERATOR) else f"{where} {function.rpartition('.')[2]}"


def _line(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction, as `frame.f_lineno` would."""
    return next(
        (line or 0 for first, last, line in code.co_lines() if first <= instruction < last), code.co_firstlineno
    )
