"""Creates a hub's initial state: from an earlier recording, from the readable part of a damaged one, or empty."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from ddpmon.errors import NothingRecordedError, RecordingError
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.restoring import restored_store
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store


def open_recording(run: Run) -> tuple[Store, Recorder]:
    """Return the store of an earlier hub's recording, or a new one, and the recorder that continues the recording."""
    path = recording_path(run.id)
    now, unix = time.monotonic(), time.time()
    trouble = None
    if path.exists():
        try:
            _roll_back(path)
            with Recording(run, tails=False) as recording:
                store = restored_store(recording)
                if recording.database.corrupt:
                    trouble = _replace(path, recording)
            store.continue_recording(now)
            if trouble:
                store.add_event(unix, "warn", trouble)
            store.add_event(unix, "warn", "the hub restarted, and the ranks send again the data that was not recorded")
            return store, Recorder(path, run.id, store.clock)
        except NothingRecordedError:
            pass  # The earlier hub ended before it wrote anything, for instance on a full disk.
        except (RecordingError, OSError, sqlite3.Error) as error:
            trouble = str(error)  # The recorder reports if it cannot write.
            with contextlib.suppress(OSError):
                trouble = f"{error}; ddpmon has moved the recording to {_put_aside(path).name}, and started a new one"
    clock = Clock(time.monotonic_ns() // 1000, unix)
    store = Store(run, Registry(run.id, run.world_size, run.host), clock, live=True)
    if trouble:
        store.add_event(unix, "warn", trouble)
    recorder = Recorder(path, run.id, clock)
    recorder.reserve_space()
    return store, recorder


def _roll_back(path: Path) -> None:
    """Roll back a transaction that a killed hub left in a journal, because a read-only connection cannot do so."""
    if Path(f"{path}-journal").exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("SELECT count(*) FROM sqlite_master")


def _replace(path: Path, recording: Recording) -> str:
    """Replace a damaged recording by its readable part, and return the sentence that reports it."""
    whole = path.with_suffix(".whole")
    whole.unlink(missing_ok=True)
    os.close(os.open(whole, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        recording.database.write_to(whole)
        aside = _put_aside(path)
        whole.replace(path)
    finally:
        whole.unlink(missing_ok=True)
    return f"{path} is damaged; ddpmon has moved it to {aside.name}, and saved the readable part as {path.name}"


def _put_aside(path: Path) -> Path:
    """Rename a recording and its log or journal. Left in place, these files would corrupt a new recording."""
    aside = path.with_suffix(".damaged")
    path.replace(aside)
    for suffix in ("-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside
