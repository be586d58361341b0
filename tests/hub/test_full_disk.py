"""A disk that is full for a while loses nothing; what a disk that stays full costs is counted, not hidden."""

import contextlib
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpmon.export import report
from ddpmon.hub import opening
from ddpmon.messages import Ack, Batch, Event, Sample
from ddpmon.recording import recorder as recorder_module
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import recording_path
from ddpmon.store.clock import Clock
from tests.hub.conftest import until
from tests.hub.thinned import recorded
from tests.recordings import record, told_by
from tests.worlds import own_times, records


@pytest.fixture
def disk(small_disk):
    return small_disk(8)


@pytest.fixture
def home(disk, home, monkeypatch):
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    return home


def tell(ranks, told, begin, end):
    for i in range(begin, end, 20):
        for rank in ranks:
            rank.batch(told[rank.rank][i : i + 20])


def lost_everywhere(run):
    """Return the losses that each view of the run reports."""
    made, shot = report.build(run), recorded_snapshot(run)
    found = {each["evidence"]["lost"] for each in made["findings"] if each["kind"] == "telemetry_lost"}
    return made["steps"]["records_lost"], shot.records_lost, found.pop() if found else 0


def test_what_a_disk_that_stays_full_to_the_end_costs_is_counted(stage, disk):
    """The spare room of the recorder is enough to write down how many steps there were."""
    told = records(own_times(1200, 2), first=1)
    ranks = stage.start()
    tell(ranks, told, 0, 600)
    for rank in ranks:
        rank.acknowledged(30)
    disk.fill()
    viewer = stage.viewer()
    tell(ranks, told, 600, 1200)
    viewer.until(
        lambda s: s.step == 1200 and any("cannot write the recording" in e.text for e in s.events), "the refusal"
    )
    for rank in ranks:
        rank.bye()
        assert rank.answer(Ack).seq < 60, "the rank keeps what is not on disk"
    disk.fill()
    (hub,) = stage.hubs
    hub.terminate()
    assert hub.wait(20) == 0, stage.log()
    disk.free()
    assert recorded(stage.run) == [(rank, 600, 600) for rank in range(2)]
    stage.save(ended_at=time.time(), exit_code=0)
    assert lost_everywhere(stage.run) == (1200, 1200, 1200)


def test_what_waits_for_a_full_disk_is_bounded_and_what_goes_is_counted(disk, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_HELD_ROWS", 500)
    path = disk.path / "telemetry.db"
    run = SimpleNamespace(id="made-up", world_size=1)
    recorder = Recorder(path, run.id, Clock(0, 0.0))
    told = records(own_times(3000, 1), first=1)[0]
    process = told_by(run, 1, 0, 0, [])
    recorder.record_process(process)

    def take(begin, end):
        for i in range(begin, end, 20):
            steps = process.count_new_steps(told[i : i + 20])
            process.seq, process.steps = process.seq + 1, process.last_step
            batch = Batch(0, process.hello.pid, process.seq, 0, 4, process.steps, 0, steps=steps)
            recorder.record_batch(process, batch, steps)
            recorder.write_soon()
            settled = recorder.write()
            assert not settled or settled[-1][1] == process.seq

    take(0, 100)
    disk.fill()
    take(100, 2900)
    assert recorder.trouble
    disk.free()
    take(2900, 3000)
    assert recorder.trouble is None
    recorder.close()
    with sqlite3.connect(path) as db:
        query = "SELECT sum(count), min(first_step) FILTER (WHERE first_step > 100) FROM step_blocks"
        count, first_late = db.execute(query).fetchone()
        assert db.execute("SELECT last_step, records FROM processes").fetchone() == (3000, count)
    db.close()
    assert (process.lost_records, recorder.unrecorded) == (3000 - count, 3000 - count)
    assert 500 < count <= 700
    assert first_late == 3001 - (count - 100), "the oldest went"
    assert sorted(each.name for each in disk.path.iterdir()) == ["telemetry.db"]


def test_a_disk_that_refuses_is_left_alone_for_a_moment_unless_it_is_urgent(tmp_path, monkeypatch):
    now, tried = [0.0], []
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    recorder = Recorder(tmp_path / "no such folder" / "telemetry.db", "made-up", Clock(0, 0.0))
    monkeypatch.setattr(recorder, "_open", lambda: tried.append(now[0]) or sqlite3.connect(tmp_path))
    recorder.record_event([Event(1.0, "info", "it waits")])
    for now[0] in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        recorder.write()
    recorder.write_soon()
    recorder.write()
    assert tried == [0.0, 2.0, 2.5]
    assert recorder.trouble


def test_a_record_that_no_disk_would_take_holds_nothing_up(tmp_path):
    path = tmp_path / "telemetry.db"
    run = SimpleNamespace(id="made-up", world_size=1)
    recorder = Recorder(path, run.id, Clock(0, 0.0))
    told = records(own_times(40, 1), first=1)[0]
    process = told_by(run, 1, 0, 0, [])
    recorder.record_process(process)
    for begin in (0, 20):
        steps = process.count_new_steps(told[begin : begin + 20])
        process.seq, process.steps = process.seq + 1, process.last_step
        samples = [Sample(5, rss_bytes=1 << 63)] if begin == 0 else []
        batch = Batch(0, process.hello.pid, process.seq, 0, 4, process.steps, 0, steps=steps, samples=samples)
        recorder.record_batch(process, batch, steps)
        recorder.write_soon()
        recorder.write()
    recorder.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT sum(count), min(first_step) FROM step_blocks").fetchone() == (20, 21)
    db.close()
    assert (process.records, process.lost_records, recorder.unrecorded) == (20, 20, 20)


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_hub_goes_on_from_a_recording_whose_log_needs_room_that_the_disk_has_not(home, disk, ranks):
    """SQLite makes the index of a log that a killed hub left anew: without room for it, reading is an I/O error."""
    run = record(own_times(40, 2), events=[(3.0, "connected")])
    path = recording_path(run.id)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("INSERT INTO events VALUES (4.0, 'info', 'in the log')")
        db.execute("DELETE FROM processes WHERE rank >= ?", (ranks,))
        left = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    for suffix, content in left.items():
        Path(f"{path}{suffix}").write_bytes(content)
    disk.fill()
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        with pytest.raises(sqlite3.OperationalError) as refused:
            db.execute("SELECT count(*) FROM events").fetchall()
        assert refused.value.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR
    store, recorder = opening.open_recording(run)
    assert [event.text for event in store.events][:2] == ["connected", "in the log"]
    assert store.step == (40 if ranks else 0)
    recorder.record_event([Event(5.0, "info", "later")])
    recorder.write()
    assert recorder.trouble
    disk.free()
    recorder.close()
    assert [event.text for event in recorded_snapshot(run).events][-1] == "later"
    assert {each.name for each in path.parent.glob("telemetry.*")} == {"telemetry.db"}


def test_a_disk_that_is_full_from_the_first_record_to_the_end_leaves_the_count(stage, disk):
    told = records(own_times(600, 2), first=1)
    stage.save(world_size=2)
    stage.hub()
    until((stage.dir / "telemetry.spare").exists, "the room for the count")
    reserved = stage.dir / "run.reserved"
    reserved.write_bytes(bytes(8192))  # as a supervisor does
    disk.fill()
    ranks = [stage.rank(rank) for rank in range(2)]
    for rank in ranks:
        rank.join()
    tell(ranks, told, 0, 600)
    stage.viewer().until(lambda s: s.step == 600, "the steps")
    for rank in ranks:
        rank.bye()
    reserved.unlink()
    stage.finish()
    assert lost_everywhere(stage.run) == (1200, 1200, 1200)


def test_a_run_of_which_the_disk_took_nothing_has_a_report_that_says_so(stage, disk):
    stage.save(world_size=2, ended_at=time.time(), exit_code=0)
    recording_path(stage.run.id).touch()
    made = report.build(stage.run)
    assert made["verdict"].endswith("no training step recorded")
    assert (
        f"{recording_path(stage.run.id)} is empty, because ddpmon recorded nothing"
        in recorded_snapshot(stage.run).notes
    )
