"""Test that every whole row of a damaged recording is read, and that the missing ones are counted."""

import contextlib
import os
import random
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest

from ddpmon.errors import RecordingError
from ddpmon.export import report
from ddpmon.hub import opening
from ddpmon.messages import Ack, decode_to_rank
from ddpmon.recording.database import salvage
from ddpmon.recording.recorded import recorded_report, recorded_snapshot, recorded_state
from ddpmon.recording.recording import Recording, recording_path
from tests.recordings import record, story
from tests.worlds import own_times, records

STEPS, RANKS = 600, 2
ENDLESS = """
DROP TABLE step_blocks;
CREATE VIEW step_blocks AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT 1 process, i first_step, i last_step, 1 count, i first_end_us, i last_end_us, x'' rows, NULL records FROM n
"""


HARMLESS = """
UPDATE samples SET cpu_percent = 9e999, rss_bytes = 'x';
UPDATE events SET at = NULL, severity = 7;
UPDATE checkpoints SET value = x'00';
DELETE FROM meta;
"""


@pytest.fixture
def run(home):
    return record(story(STEPS, RANKS, late=1, begin=200, end=400), events=[(3.0, "connected"), (9.0, "late")])


@pytest.fixture
def path(run):
    return recording_path(run.id)


def blocks(db):
    return set(db.execute("SELECT * FROM step_blocks"))


def count(found):
    """How many steps are in rows of `step_blocks`."""
    return sum(row[3] for row in found)


@pytest.fixture
def half_written(path):
    """The recording as a writer without a log leaves it that is killed in the midst of a transaction."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size=1")
        db.execute("PRAGMA journal_mode=TRUNCATE")
        db.execute("BEGIN")
        db.executemany("INSERT INTO events VALUES (?, 'info', ?)", [(float(at), "x" * 500) for at in range(2000)])
        left = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-journal")}
    for suffix, content in left.items():
        Path(f"{path}{suffix}").write_bytes(content)
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        with pytest.raises(sqlite3.OperationalError) as refused:
            db.execute("SELECT coalesce(sum(count), 0) FROM step_blocks").fetchall()
        assert refused.value.sqlite_errorname == "SQLITE_READONLY_ROLLBACK"


def test_a_transaction_that_was_cut_short_keeps_nobody_from_reading(run, path, half_written):
    with Recording(run) as recording:
        assert sum(process.records for process in recording.registry().process_of_rank.values()) == STEPS * RANKS
        assert not recording.is_damaged
    assert Path(f"{path}-journal").stat().st_size, "who reads undoes nothing: a writer may still live"


def test_a_hub_undoes_the_transaction_that_the_one_before_it_did_not_end(run, path, half_written):
    store, recorder = opening.open_recording(run)
    recorder.close()
    assert "the hub restarted" in store.events[-1].text
    assert len(store.events) == 3
    assert store.step == STEPS
    assert {each.name for each in path.parent.glob("telemetry.*")} <= {"telemetry.db", "telemetry.spare"}


def test_rows_are_found_wherever_the_file_is_cut(run, path):
    """Every row that comes back is one that was there, and more of them the later the cut."""
    whole = path.read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as db:
        there = blocks(db)
    found = []
    for cut in (*(len(whole) * tenths // 10 for tenths in range(4, 10)), len(whole) - 100):
        path.write_bytes(whole[:cut])
        with contextlib.closing(salvage(path, is_damaged=True)) as db:
            kept = blocks(db)
        assert kept <= there
        found.append(count(kept))
        with Recording(run) as recording:
            assert sum(process.records for process in recording.registry().process_of_rank.values()) == count(kept)
    assert found == sorted(found)
    assert found[0] < found[1] < found[-1] == STEPS * RANKS, "a cut of 100 bytes loses no step"


def test_rows_behind_a_damaged_page_are_found(home):
    run = record(story(10, 1, late=0), events=[(float(at), f"{at} " + "x" * 200) for at in range(400)])
    path = recording_path(run.id)
    with contextlib.closing(sqlite3.connect(path)) as db:
        there = {text for (text,) in db.execute("SELECT text FROM events")}
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'")
    data = bytearray(path.read_bytes())
    page = data[4096 * (root - 1) : 4096 * root]
    (cell,) = struct.unpack_from(">H", page, 12 + 2 * 3)
    (leaf,) = struct.unpack_from(">I", page, cell)
    data[4096 * (leaf - 1) : 4096 * leaf] = bytes(4096)
    path.write_bytes(data)
    with contextlib.closing(salvage(path, is_damaged=True)) as db:
        kept = {text for (text,) in db.execute("SELECT text FROM events")}
    assert kept < there
    assert len(kept) > 0.9 * len(there)
    assert any(text.startswith("399 ") for text in kept)


def test_a_report_of_half_a_recording_says_what_is_missing(run, path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with contextlib.closing(salvage(path, is_damaged=True)) as db:
        kept = count(blocks(db))
    made = recorded_report(run)
    (finding,) = [each for each in made["findings"] if each["kind"] == "telemetry_lost"]
    assert finding["text"] == f"the recording is damaged: {kept:,} of about 1,200 records of steps are readable"
    shot = recorded_snapshot(run)
    assert made["steps"]["records_lost"] == shot.records_lost == finding["evidence"]["lost"] == 1200 - kept
    assert made["steps"]["window"][1] > 100


def test_a_report_is_what_it_was_where_no_row_is_gone(run, path):
    before = recorded_report(run)
    with path.open("ab") as file:
        file.write(b"\xff" * 10_000)
    assert recorded_report(run) == before


def logged(run, path, tmp_path):
    """The recording again, its second half in the log of a hub that was killed."""
    made = tmp_path / "logged.db"
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("ATTACH ? AS old", (str(path),))
        tables = dict(db.execute("SELECT name, sql FROM old.sqlite_master WHERE type = 'table'"))
        for sql in tables.values():  # first, as a recorder does, so that the file ends with rows
            db.execute(sql)
        for table in tables:
            half = "WHERE last_step <= 300" if table == "step_blocks" else ""
            db.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table} {half}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("INSERT INTO main.step_blocks SELECT * FROM old.step_blocks WHERE first_step IN (301, 401)")
        db.execute("INSERT INTO main.step_blocks SELECT * FROM old.step_blocks WHERE first_step > 500")
        log = made.with_name("logged.db-wal")
        shutil.copy(made, path)
        shutil.copy(log, f"{path}-wal")
    return path.with_name("telemetry.db-wal")


@pytest.mark.parametrize(
    ("file", "log", "last"),
    [
        ("whole", "whole", STEPS),
        ("whole", "cut", 500),
        ("whole", "gone", 300),
        ("cut", "whole", STEPS),
        ("cut", "cut", 500),
        ("no header", "whole", STEPS),
    ],
)
def test_a_log_beside_it_is_read_as_far_as_it_is_whole(run, path, tmp_path, file, log, last):
    wal = logged(run, path, tmp_path)
    if log == "cut":
        wal.write_bytes(wal.read_bytes()[:-2000])
    elif log == "gone":
        wal.unlink()
    data = path.read_bytes()
    if file == "cut":
        path.write_bytes(data[:-100])
    elif file == "no header":
        path.write_bytes(bytes(100) + data[100:])
    with Recording(run) as recording:
        ids = [process.id for process in recording.processes()]
        assert [recording.steps.last_step(number) for number in ids] == [last] * RANKS
        if file == "whole" and log != "cut":
            assert [len(recording.steps.whole_steps(number, 1, 1000)) for number in ids] == [last] * RANKS


def test_a_folder_that_may_not_be_written_to_is_no_damage(run, path, tmp_path):
    """SQLite makes a file beside a log to read it; where it cannot, a copy is read."""
    logged(run, path, tmp_path)
    with contextlib.closing(salvage(path, is_damaged=False)) as db:
        assert count(blocks(db)) == STEPS * RANKS


def test_a_hub_goes_on_with_what_is_whole_of_a_damaged_recording(stage):
    stage.save(world_size=2)
    told = records(own_times(400, 2), first=1)
    stage.hub()
    ranks = [stage.rank(rank) for rank in range(2)]
    for rank in ranks:
        rank.join()
        for i in range(0, 300, 20):
            rank.batch(told[rank.rank][i : i + 20])
    for rank in ranks:
        rank.acknowledged(15)
    stage.hubs[-1].terminate()
    assert stage.hubs[-1].wait(20) == 0, stage.log()
    path = stage.dir / "telemetry.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    stage.hub()
    for rank in ranks:
        rank.join()
        for i in range(300, 400, 20):
            rank.batch(told[rank.rank][i : i + 20])
        rank.acknowledged(20)
        rank.bye()
        rank.acknowledged(20)
    stage.finish()
    made = report.build(stage.run)
    assert [rank["steps"] for rank in made["ranks"]] == [400, 400]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = db.execute("SELECT coalesce(sum(count), 0) FROM step_blocks").fetchone()[0]
    assert made["steps"]["records_lost"] == 800 - kept
    assert kept > 100
    assert path.with_suffix(".damaged").exists()


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("UPDATE processes SET last_step = 9007199254740990, steps = 9007199254740990", 0),
        ("UPDATE processes SET steps = 'many' WHERE rank = 1", 0),
        ("UPDATE step_blocks SET rows = x'00' WHERE first_step = 301", 200),
        ("UPDATE step_blocks SET rows = 'none', records = 5 WHERE first_step IN (1, 101)", 400),
        ("UPDATE step_blocks SET records = rows WHERE first_step = 201", 200),
        (HARMLESS, 0),
        ("UPDATE processes SET hello = x'00'", 0),
        ("DROP TABLE events", 0),
        (ENDLESS, 1200),
    ],
)
def test_values_that_cannot_be_change_no_other_number(run, path, change, lost):
    with sqlite3.connect(path) as db:
        db.executescript(change)
    db.close()
    shot, store = recorded_state(run)
    assert shot.records_lost == lost
    if lost < 1200:
        assert (shot.step, store.world.step[-1] >= 599) == (STEPS, True)
        assert shot.step_ms_p50 == pytest.approx(33, abs=2)


@pytest.mark.parametrize("what", ["folder", "pipe", "another database", "noise", "no header"])
def test_what_is_no_recording_is_one_line(run, path, what):
    whole = path.read_bytes()
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "another database":
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE cats (name)")
    elif what == "no header":
        path.write_bytes(bytes(100) + whole[100:])
    else:
        path.write_bytes(random.Random(1).randbytes(50_000))
    with pytest.raises(RecordingError) as error:
        recorded_snapshot(run)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_ranks_were_told_is_safe_is_there_whenever_the_hub_is_killed(stage):
    """At random moments while ranks send: every acknowledged step is on disk, and no step twice."""
    rng = random.Random(3)
    stage.save(world_size=1)
    told = records(own_times(4000, 1), first=1)[0]
    rank = stage.rank(0, world_size=1)
    sent = acknowledged = 0
    for _ in range(4):
        hub = stage.hub()
        rank.join()
        for batch in range(acknowledged + 1, sent + 1):  # as a probe does for a new hub
            rank.batch(told[20 * (batch - 1) : 20 * batch], seq=batch)
        sent += 1
        rank.batch(told[20 * (sent - 1) : 20 * sent], seq=sent)
        acknowledged = max(acknowledged, rank.answer(Ack).seq)
        for _ in range(rng.randrange(15)):
            sent += 1
            rank.batch(told[20 * (sent - 1) : 20 * sent], seq=sent)
            if rank.socket.poll(rng.randrange(60)):
                message = decode_to_rank(rank.socket.recv())
                acknowledged = max(acknowledged, message.seq) if isinstance(message, Ack) else acknowledged
        hub.kill()
        hub.wait()
        with Recording(stage.run) as recording:
            (process,) = recording.processes()
            assert process.seq >= acknowledged
            steps = [step.step for step in recording.steps.whole_steps(process.id, 1, 10_000)]
            assert steps == list(range(1, process.last_step + 1))
            assert process.last_step == process.records == 20 * process.seq
            assert not recording.is_damaged
