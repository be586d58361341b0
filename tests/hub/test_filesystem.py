"""A write-ahead log is used on a disk of this machine alone; elsewhere readers and the writer take turns."""

import contextlib
import math
import os
import sqlite3
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.messages import Event
from ddpmon.recording.recorder import Recorder
from ddpmon.store.clock import Clock
from tests.hub.thinned import EndlessRun, rows


@pytest.fixture
def far(monkeypatch):
    """Every file is on a server, as far as ddpmon knows."""
    monkeypatch.setattr(runs, "is_local", lambda path: False)


def journal(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA journal_mode").fetchone()[0]


def test_a_recording_on_a_server_has_none(far, tmp_path):
    path = tmp_path / "telemetry.db"
    run = EndlessRun(path, whole_bytes=600_000)
    for _ in range(60):
        run.tick()
        assert {name for name in os.listdir(tmp_path) if name.endswith(("-wal", "-shm"))} == set()
    assert rows(path, "SELECT coalesce(sum(count), 0) FROM step_blocks") == [(60 * 10 * 4,)]
    run.recorder.close()


def test_a_server_is_asked_once_a_second_unless_it_is_urgent(far, tmp_path):
    run = EndlessRun(tmp_path / "telemetry.db", whole_bytes=10**9)
    run.tick()
    run.recorder._not_before = math.inf
    run.recorder.record_event([Event(1.0, "info", "soon")])
    run.recorder.write()
    assert rows(tmp_path / "telemetry.db", "SELECT count(*) FROM events") == [(0,)]
    run.recorder.write_soon()
    run.recorder.write()
    assert rows(tmp_path / "telemetry.db", "SELECT count(*) FROM events") == [(1,)]
    run.recorder.close()


def test_a_recording_that_was_moved_to_a_server_loses_its_log(tmp_path, monkeypatch):
    path = tmp_path / "telemetry.db"
    run = EndlessRun(path, whole_bytes=10**9)
    run.tick()
    assert path.with_name("telemetry.db-wal").exists()
    run.recorder._db.close()  # as a hub that was killed leaves it
    monkeypatch.setattr(runs, "is_local", lambda path: False)
    assert journal(path) == "wal"
    later = Recorder(path, "made-up", Clock(0, 0.0))
    later.record_event([Event(1.0, "info", "moved")])
    later.write()
    assert later.trouble is None
    assert journal(path) != "wal"
    assert rows(path, "SELECT coalesce(sum(count), 0) FROM step_blocks") == [(40,)]
    later.close()


READER = """
import sqlite3, sys, time
path = sys.argv[1]
db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2.0)
seen = 0
while True:
    steps = "(SELECT coalesce(sum(count), 0) FROM step_blocks)"
    counts = db.execute(f"SELECT {steps}, (SELECT sum(records) FROM processes)").fetchone()
    assert counts[0] == counts[1] >= seen, (counts, seen)  # never half of a transaction
    if counts[0] > seen:
        print(counts[0], flush=True)
    seen = counts[0]
"""


def test_a_reader_of_another_process_and_the_writer_take_turns(far, tmp_path):
    path = tmp_path / "telemetry.db"
    run = EndlessRun(path, whole_bytes=10**9)
    run.tick()
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        seen = [int(reader.stdout.readline())]
        for _ in range(40):
            run.tick()
            assert run.recorder.trouble is None
            seen.append(int(reader.stdout.readline()))  # it reads while the writer goes on
        reader.kill()
        assert reader.stderr.read() == ""
    run.recorder.close()
    assert seen == sorted(set(seen))
    assert seen[-1] == rows(path, "SELECT coalesce(sum(count), 0) FROM step_blocks")[0][0] == 41 * 40
