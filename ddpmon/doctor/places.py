"""Checks the folders for recordings and sockets: their permissions, free space, and whether a message gets through."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ddpmon import numbers, runs
from ddpmon.doctor.check import Check, note, ok, problem
from ddpmon.errors import UnsafePathError
from ddpmon.runs.visible_processes import is_local

ROOM_BYTES = 2 << 30
"""Free space that a run may need: up to 1.5 GB for its recording and 256 MB for its logs."""
ANSWER_MS = 2000


def recordings() -> Iterator[Check]:
    """Check the folder of runs, which is created first if it is missing, as a first run would do."""
    try:
        runs.private_dir(runs.home())
        folder = runs.private_dir(runs.runs_dir())
    except UnsafePathError as error:
        yield problem("recordings", str(error))
        return
    free = shutil.disk_usage(folder).free
    text = f"{folder}, {numbers.disk_size(free)} free"
    if not _takes_a_database(folder):
        way_out = "set DDPMON_HOME to another file system; in this folder, ddpmon cannot record runs"
        yield problem("recordings", f"SQLite cannot write to {folder}", way_out)
    elif free < ROOM_BYTES:
        yield note("recordings", text, "run ddpmon prune --keep 20GB, or set DDPMON_HOME to a folder on a larger disk")
    else:
        yield ok("recordings", text)
    if not is_local(folder):
        yield note(
            "file system",
            f"{folder} is on a network file system, where ddpmon writes recordings more slowly",
            "set DDPMON_HOME to a folder on a local disk, unless other machines must see the runs",
        )


def sockets() -> Check:
    """Check that a message over ipc arrives, in the folder that would hold a run's sockets."""
    import zmq

    run_id = f"doctor-{os.getpid()}"
    try:
        folder = runs.make_socket_dir(run_id)
    except UnsafePathError as error:
        return problem("sockets", str(error))
    try:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as hub, context.socket(zmq.DEALER) as rank:
            hub.linger = rank.linger = 0
            hub.bind(f"ipc://{folder}/ingest.sock")
            rank.connect(f"ipc://{folder}/ingest.sock")
            rank.send(b"")
            if not hub.poll(ANSWER_MS):
                way_out = "set DDPMON_RUNTIME_DIR to a folder on a local file system"
                return problem(
                    "sockets", f"a test message through a socket in {folder.parent} does not arrive", way_out
                )
    except zmq.ZMQError as error:
        return problem(
            "sockets", f"{folder.parent}: {error.strerror}", "set DDPMON_RUNTIME_DIR to a folder on a local file system"
        )
    finally:
        runs.remove_sockets(run_id)
    return ok("sockets", f"{folder.parent} works: only you can read this folder, and a test message arrived")


def _takes_a_database(folder: Path) -> bool:
    """Return whether SQLite can write to the folder, by writing and deleting a small database."""
    path = folder / ".doctor.db"
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS steps (step)")
            db.execute("INSERT INTO steps VALUES (1)")
            db.commit()
    except sqlite3.Error:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True
