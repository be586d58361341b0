"""Samples the training thread's Python stack for some seconds when the hub requests it, and summarises the samples.

The background thread takes samples between its turns. During a sample it holds the GIL for about 20 µs. If the training
thread does not release the GIL when a sample is due, a signal makes the training thread write its stack itself
(`stack_timer`). Without a request, no sample is taken and nothing is stored.
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
from ddpmon.messages.dumps import parse_frames as dumped_frames
from ddpmon.probe import counters
from ddpmon.probe.data_readers import DataReaders
from ddpmon.probe.records import OTHER, RawStep
from ddpmon.probe.stack_report import place_frames, places, without_probe
from ddpmon.probe.stack_timer import StackTimer
from ddpmon.probe.step_records import parts
from ddpmon.probe.worker_sampler import WorkerSampler

if TYPE_CHECKING:
    from ddpmon.probe.account import Account
    from ddpmon.probe.every_step import EveryStep

INTERVAL_S = 0.02
"""Mean interval in seconds between two samples. Intervals are random, from 0.5 to 1.5 times as long."""
GRACE_S = 0.0005
"""Seconds for the background thread to get the GIL for a sample. After that, the timer's signal takes the sample."""
MIN_SAMPLED_STEPS = 3
"""Least number of whole steps to sample, even if that takes up to PATIENCE times as long as requested."""
PATIENCE = 4
WAITS_FOR_WORKERS = {"_get_data", "_try_get_data"}
"""Methods in which torch's DataLoader iterator waits for a batch from its workers."""
OWN_ITERATOR = "_SingleProcessDataLoaderIter"
"""torch's DataLoader iterator without workers, which loads batches on the calling thread."""
MAX_WAITING_SAMPLES = 20_000
"""Largest number of samples of steps that have not ended. Further samples are dropped."""

Key = tuple[tuple[CodeType, int], ...] | bytes
"""A stack: (code, current instruction) of each frame, innermost first; or faulthandler's text of the stack."""
Sampled = tuple[int, int, Key, int]
"""A sample: its time in nanoseconds, its phase, its stack, and the number of samples it stands for."""


class StackSampler:
    """Takes samples from `request` until `is_due` returns True, after which `result` summarises them."""

    def __init__(self, listener: EveryStep) -> None:
        self._listener = listener
        self._chance = random.Random()  # noqa: S311  its own generator keeps the script's random numbers as they are
        self._timer: StackTimer | None = None
        self._reset()

    def _reset(self) -> None:
        self._began = self._until = 0.0
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        self._waiting: list[Sampled] = []
        """Samples of steps that have not ended yet."""
        self._stacks: Counter[tuple[int, Key]] = Counter()
        self._workers = WorkerSampler()
        self._readers: DataReaders | None = None
        """Counts of the processes that load data; None until a sample shows a wait for data."""
        self._count = self._steps = self._first_step = self._last_step = self._span_ns = 0

    @property
    def is_active(self) -> bool:
        """Return whether sampling was requested."""
        return self._until > 0

    def request(self, seconds: float, now: float) -> None:
        """Begin to sample, for this many seconds. A request while sampling runs is ignored."""
        if not self.is_active:
            self._reset()
            self._began, self._until = now, now + seconds
            self._timer = StackTimer(self._listener.native_thread or 0)

    def rest(self, stopping: Event, seconds: float) -> None:
        """Sleep between two turns of the background thread, and take samples meanwhile if they are requested."""
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
            while due <= now or not count:  # Compiled code may have held the GIL for several intervals.
                due += self._interval()
                count += 1
            stack, had_gil = self._take(first, now - first >= GRACE_S, count)
            self._look_at_readers(stack, had_gil=had_gil)

    def _look_at_readers(self, stack: Sequence[tuple[CodeType, int]], *, had_gil: bool) -> None:
        """Sample the process that loads the next batch, if `stack` shows that the training thread waits for a batch."""
        passes, names = self._listener.passes, {code.co_qualname.partition(".")[0] for code, _ in stack}
        if LOADER_ITERATOR.rstrip(".") in names:
            pid, workers = passes.awaited_pid(), passes.worker_pids()
            self._readers = self._readers or DataReaders(workers)
            self._readers.record_state(pid, 0)  # Read the state before the signal, to which the worker responds.
            self._workers.take(pid, workers)
        elif OWN_ITERATOR in names:
            self._readers = self._readers or DataReaders(())
            self._readers.record_state(0, self._listener.native_thread or 0, had_gil=had_gil)

    def _interval(self) -> float:
        """Return a random interval in seconds. A constant one could sample every step at the same place."""
        return INTERVAL_S * (0.5 + self._chance.random())

    def _take(self, due: float, is_late: bool, count: int) -> tuple[Sequence[tuple[CodeType, int]], bool]:
        """Take a sample; return the current stack, and whether the training thread held the GIL at the due time.

        Args:
            due: Time at which the sample was due.
            is_late: True if this thread had to wait for the GIL, so that the training thread may have moved on.
            count: Number of due samples that this one stands for.

        """
        dump = self._timer.take() if self._timer is not None else b""
        frame = sys._current_frames().get(self._listener.thread or 0)
        key: list[tuple[CodeType, int]] = []
        while frame is not None and len(key) < MAX_FRAMES:
            key.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        if key and len(self._waiting) < MAX_WAITING_SAMPLES:
            moment = time.monotonic_ns()
            if is_late and dump.endswith(f"{key[-1][0].co_name}\n".encode("ascii", "backslashreplace")):
                self._note(round((due + GRACE_S) * 1e9), dump, count)
                return key, True
            self._note(moment, tuple(key), count)
        return key, False

    def _note(self, moment: int, key: Key, count: int) -> None:
        """Queue a sample among the training thread's notes. When it is read, the phase at its time is known."""
        self._listener.hot.note((_read_sample, time.monotonic_ns(), None, self, (moment, key), count))

    def keep(self, moment: int, phase: int, key: Key, count: int) -> None:
        """Store a sample whose note is being read, with the phase at its time."""
        self._waiting.append((moment, phase, key, count))

    def step_ended(self, raw: RawStep) -> None:
        """Count the samples of a step whose notes have all been read."""
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
        """Return whether it is time to call `result`."""
        if not self.is_active or now < self._until:
            return False
        return self._steps >= MIN_SAMPLED_STEPS or now - self._began >= PATIENCE * (self._until - self._began)

    def result(self) -> StackSamples | None:
        """Summarise the samples, and end sampling. Returns None if no sample was in a whole step."""
        most = self._stacks.most_common(MAX_STACKS)
        made = _merged(most)
        readers, (mount, file_system) = (
            self._readers.activity_and_mount(self._workers.idle) if self._readers else ([], ("", ""))
        )
        samples = StackSamples(
            rank=self._listener.identity.facts.rank,
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
    """Split samples, which are in order of time, into those up to `end` (ns) and those after it."""
    place = next((place for place, sample in enumerate(samples) if sample[0] > end), len(samples))
    return samples[:place], samples[place:]


def _inside(moment: int, spans: list[tuple[int, int]]) -> bool:
    return any(begin <= moment <= end for begin, end in spans)


def _merged(stacks: list[tuple[tuple[int, Key], int]]) -> list[SampledStack]:
    """Return the distinct stacks, with the names of their frames."""
    known = places()
    merged: Counter[tuple[int, tuple[str, ...], tuple[int, ...]]] = Counter()
    for (phase, key), count in stacks:
        if isinstance(key, bytes):
            frames, own = dumped_frames(key, known)
        else:
            frames, own = place_frames(without_probe((code, _line(code, instruction)) for code, instruction in key))
        merged[phase, tuple(_short(frame) for frame in frames), tuple(own)] += count
    return [SampledStack(phase, count, list(frames), list(own)) for (phase, frames, own), count in merged.most_common()]


def _short(frame: str) -> str:
    """Return a frame without the class of its function, because faulthandler writes only names in Python 3.11."""
    where, _, function = frame.partition(" ")
    if where.startswith("torch/utils/data/dataloader.py:") and function in WAITS_FOR_WORKERS:
        return f"{where} {LOADER_ITERATOR}{function}"
    return frame if function.startswith(LOADER_ITERATOR) else f"{where} {function.rpartition('.')[2]}"


def _line(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction, as `frame.f_lineno` would."""
    return next(
        (line or 0 for first, last, line in code.co_lines() if first <= instruction < last), code.co_firstlineno
    )
