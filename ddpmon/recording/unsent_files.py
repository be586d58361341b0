"""Reads the files that ranks wrote to the run's folder because no hub received their last records.

A hub records the messages in these files and deletes the files. A reader of the recording adds the messages to a copy
of the recording in memory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from ddpmon.messages import Batch, Bye, Hello, ToRank, WireError, decode_lenient
from ddpmon.messages.folder import MAX_TAIL_BYTES, TAIL_NAME, TAILS, unpack_tail
from ddpmon.recording.collector import Collector
from ddpmon.recording.recorder import Recorder
from ddpmon.runs import Run, plain_file
from ddpmon.store.clock import Clock
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store


class Tails:
    """Processes the messages in the files of a run's ranks as if the ranks had sent them."""

    def __init__(self, run_dir: Path, take: Callable[[list[bytes]], None], report: Callable[[str], None]) -> None:
        """Create a reader that has read no file yet.

        Args:
            run_dir: The run's folder.
            take: Processes a message, which is a connection's name and one frame.
            report: Receives one sentence about each file that cannot be read.

        """
        self._folder = run_dir / TAILS
        self._take = take
        self._report = report
        self._read_names: set[str] = set()

    def take_new(self) -> list[Path]:
        """Process the files that are new, and return those that may be deleted once their messages are recorded."""
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except OSError:
            return []
        paths = []
        self._read_names &= set(names)
        for name in sorted(names):
            if name in self._read_names or name.endswith(".new"):
                continue
            self._read_names.add(name)
            trouble = self._read(name)
            if trouble:
                self._report(f"{TAILS}/{name} cannot be read: {trouble}")
            else:
                paths.append(self._folder / name)
        return paths

    def delete_folder(self) -> None:
        """Delete the folder of these files when the run is over, unless the folder still has files."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _read(self, name: str) -> str:
        """Process one file. Return a text that says what is wrong with the file, or "" if the file is valid."""
        path = self._folder / name
        named = TAIL_NAME.fullmatch(name)
        if not named:
            return "the file does not come from a rank"
        try:
            if path.lstat().st_uid != os.getuid():
                return "the file does not come from a rank"
            content = plain_file.content(path, MAX_TAIL_BYTES)
        except OSError as error:
            return error.strerror or "ddpmon cannot open the file"
        frames, trouble = unpack_tail(content)
        connection = f"{TAILS}/{name}".encode()
        for number, frame in enumerate(frames):
            try:
                message, _ = decode_lenient(frame)
            except WireError as error:
                return f"frame {number + 1} of {len(frames)} is not a message ({error})"
            if (message.rank, message.pid) != (int(named[1]), int(named[2])):
                return f"frame {number + 1} of {len(frames)} belongs to another rank"
            if (number == 0) != isinstance(message, Hello) or (isinstance(message, Bye) and number + 1 < len(frames)):
                return f"frame {number + 1} of {len(frames)} is out of order"
            self._take([connection, frame])
        return trouble


class UnreadTails:
    """Reads the existing files of a run's ranks without deleting them."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.frames: list[list[bytes]] = []
        """Messages in the files. Each message is preceded by its connection's name."""
        self.notes: list[str] = []
        """One sentence about each file that cannot be read."""
        files = Tails(run_dir, self.frames.append, self.notes.append).take_new()
        messages = [decode_lenient(frame)[0] for _, frame in self.frames]
        batch_us = [message.now_us for message in messages if isinstance(message, Batch)]
        self.clock = Clock(max(batch_us), _written_at(files)) if batch_us else None
        """Clock for a run without a recording: the time of the last batch in the files, and the time at which the files
        were written."""

    def write_messages(self, run: Run, db: sqlite3.Connection, clock: Clock, registry: Registry) -> None:
        """Write the messages to an open recording, as a hub with the given registry would."""
        recorder = Recorder(self._run_dir, run.id, clock, db)
        collector = Collector(Store(run, registry, clock), recorder, "", _no_answer)
        now = time.monotonic()
        for frames in self.frames:
            collector.process_message(frames, now, time.time(), ended=True)
        recorder.record_refusals(registry.refusals.rows())
        collector.record_all()


def _no_answer(identity: bytes, message: ToRank) -> None:
    """Send nothing, because the ranks have ended."""


def _written_at(files: list[Path]) -> float:
    times = []
    for path in files:
        try:
            times.append(path.stat().st_mtime)
        except OSError:  # A hub has just deleted it.
            continue
    return max(times, default=time.time())
