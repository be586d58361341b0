"""Read what ranks left in a run's folder for a hub that never came, into a copy of the recording in memory."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from ddpmon.messages import Batch, ToRank, decode_lenient
from ddpmon.recording.collector import Collector
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.unsent_files import Tails
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store


class UnreadTails:
    """The files of a run's ranks at this moment. They stay where they are."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.frames: list[list[bytes]] = []
        """Each a connection's name and a message."""
        self.notes: list[str] = []
        """Notes on files that cannot be read."""
        files = Tails(run_dir, self.frames.append, self.notes.append).take_new()
        messages = [decode_lenient(frame)[0] for _, frame in self.frames]
        batch_us = [message.now_us for message in messages if isinstance(message, Batch)]
        self.clock = Clock(max(batch_us), _written_at(files)) if batch_us else None
        """The end of a rank whose recording has none: the last record that it left, and when that was written."""

    def take(self, run: Run, db: sqlite3.Connection, clock: Clock, registry: Registry) -> None:
        """Record it in an open recording, as a hub would that knows of `registry`."""
        recorder = Recorder(self._run_dir, run.id, clock, db)
        collector = Collector(Store(run, registry, clock), recorder, "", _no_answer)
        now = time.monotonic()
        for frames in self.frames:
            collector.take(frames, now, time.time(), ended=True)
        recorder.refused(registry.refusals.rows())
        collector.record_all()


def _no_answer(identity: bytes, message: ToRank) -> None:
    """No rank waits for one any more."""


def _written_at(files: list[Path]) -> float:
    times = []
    for path in files:
        try:
            times.append(path.stat().st_mtime)
        except OSError:  # a hub took it at this moment
            continue
    return max(times, default=time.time())
