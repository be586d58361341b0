"""What is written down comes back, and recordings of an older version are read as far as they tell."""

import sqlite3
import time

import msgspec
import pytest

from ddpmon.export import report
from ddpmon.messages import PROTOCOL, Digest, Hello, Sample, Stack, encode
from ddpmon.recording import schema
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import recording_path
from tests.worlds import own_times, records

OLD_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE processes (
    id INTEGER PRIMARY KEY, attempt INTEGER, rank INTEGER, pid INTEGER, start_ticks INTEGER, host TEXT, hello BLOB,
    stage INTEGER, seq INTEGER, steps INTEGER, last_step INTEGER, records INTEGER, dropped INTEGER,
    total_steps INTEGER, left INTEGER, dead INTEGER
);
CREATE TABLE steps (
    process INTEGER, step INTEGER, end_us INTEGER, length_us INTEGER, data_us INTEGER, forward_us INTEGER,
    backward_us INTEGER, optimizer_us INTEGER, other_us INTEGER, loss, samples INTEGER, syncs BLOB,
    PRIMARY KEY (process, step)
) WITHOUT ROWID;
CREATE TABLE samples (
    process INTEGER, time_us INTEGER, cpu_percent REAL, rss_bytes INTEGER, gpu_percent REAL,
    gpu_memory_used_bytes INTEGER, gpu_memory_total_bytes INTEGER, gpu_power_w REAL, gpu_temperature_c REAL,
    gpu_clock_mhz REAL, PRIMARY KEY (process, time_us)
) WITHOUT ROWID;
CREATE TABLE scalars (process INTEGER, step INTEGER, name TEXT, value);
CREATE TABLE events (at REAL, severity TEXT, text TEXT);
CREATE TABLE failures (rank INTEGER, pid INTEGER, failure BLOB, PRIMARY KEY (rank, pid)) WITHOUT ROWID;
CREATE TABLE checkpoints (name TEXT PRIMARY KEY, value BLOB);
"""
"""The tables of the first version that recorded anything."""


def telling(told, rank):
    """Steps of a rank with all that a step can tell."""
    return [msgspec.structs.replace(step, tokens=512, learning_rate=0.1 / step.step, gc_us=2000) for step in told[rank]]


def samples_after(steps, share):
    first = steps[0].end_us + 2_000_000
    return [
        Sample(first + i * 1_000_000, 90.0, 1 << 30, starved_share=share, major_faults_per_s=3.0, threads=7)
        for i in range(10)
    ]


def test_what_ranks_tell_of_a_step_and_a_second_reaches_screen_and_report(stage):
    stage.save(world_size=2)
    stage.hub()
    told = records(own_times(60, 2), first=1)
    ranks = [stage.rank(rank) for rank in range(2)]
    for rank in ranks:
        rank.join(cores=1, compute_threads=1)
        steps = telling(told, rank.rank)
        rank.batch(steps, samples=samples_after(steps, 0.4))
        rank.acknowledged(1)
    shot = stage.viewer().until(lambda s: s.window and len(s.findings) == 2, "both findings")
    (finding,) = [f for f in shot.findings if f.kind == "cpu_starved"]
    assert finding.text == "2 ranks on 1 core: each waits 40% of the time for a core"
    assert [f.cost_ms for f in shot.findings if f.kind == "gc_pauses"] == [pytest.approx(2.0)]
    view = shot.ranks[1]
    assert view.cpu_starved_share == pytest.approx(0.4)
    assert (view.threads, view.major_faults_per_s, view.gc_ms) == (7, 3.0, 2.0)
    assert view.learning_rate == pytest.approx(0.1 / 60)
    assert view.tokens_per_s == pytest.approx(512 / 0.033, rel=0.01)
    for rank in ranks:
        rank.bye()
        rank.acknowledged(1)
    stage.finish()
    made = report.build(stage.run)
    (recorded,) = [f for f in made["findings"] if f["kind"] == "cpu_starved"]
    assert recorded["text"] == finding.text
    assert made["ranks"][1]["cpu_starved_share"] == pytest.approx(0.4)
    assert made["ranks"][1]["gc_ms"] == 2.0


def test_replicas_that_differ_and_gradients_not_synchronised_survive_into_the_report(stage):
    stage.save(world_size=3)
    stage.hub()
    told = records(own_times(60, 3), first=1)
    for rank in (stage.rank(rank, world_size=3) for rank in range(3)):
        rank.join()
        values = [Digest(1, 0, 7, "0", 3), Digest(10, 0, 7 + (rank.rank == 1), "0", 30)]
        rank.batch(told[rank.rank], digests=values, unsynchronised=20 if rank.rank == 2 else 0)
        rank.acknowledged(1)
        rank.bye()
        rank.acknowledged(1)
    expected = {("replicas_differ", 1), ("gradients_not_synchronised", 2)}
    shot = stage.viewer().until(lambda s: len(s.findings) == 2, "two findings")
    assert {(f.kind, *f.ranks) for f in shot.findings} == expected
    stage.finish()
    assert {(f["kind"], *f["ranks"]) for f in report.build(stage.run)["findings"]} == expected


def test_a_stack_reaches_the_snapshot_and_the_recording(stage):
    stage.save(world_size=1)
    stage.hub()
    rank = stage.rank(0, world_size=1)
    rank.join()
    rank.batch(records(own_times(3, 1), first=1)[0])
    rank.acknowledged(1)
    stack = Stack(0, rank.pid, 9_000_000, 3, 8_000_000, 2, ["train.py:3 main"], 0)
    rank.socket.send(encode(stack))
    shot = stage.viewer().until(lambda s: s.ranks[0].stack, "the stack")
    assert shot.ranks[0].stack == stack
    stage.finish()
    assert recorded_snapshot(stage.run).ranks[0].stack == stack


def old_recording(stage):
    """A recording as an older version left it, of a run of two ranks."""
    db = sqlite3.connect(recording_path(stage.run.id))
    db.executescript(OLD_TABLES)
    db.executemany("INSERT INTO meta VALUES (?, ?)", [("schema", 1), ("monotonic_us", 0), ("unix", time.time())])
    told = records(own_times(40, 2), first=1)
    for rank in range(2):
        hello = Hello(PROTOCOL, stage.run.id, rank, rank, 2, 0, "elsewhere", 4_000_000 + rank, 4)
        row = (rank + 1, 0, rank, hello.pid, None, "elsewhere", msgspec.msgpack.encode(hello), 4, 1, 40, 40, 40, 0)
        db.execute(f"INSERT INTO processes VALUES ({', '.join('?' * 16)})", (*row, None, 0, 0))
        for s in told[rank]:
            phases = (s.data_us, s.forward_us, s.backward_us, s.optimizer_us, s.other_us)
            syncs = msgspec.msgpack.encode(s.syncs)
            values = (rank + 1, s.step, s.end_us, s.length_us, *phases, None, 64, syncs)
            db.execute(f"INSERT INTO steps VALUES ({', '.join('?' * 12)})", values)
        db.execute("INSERT INTO samples VALUES (?, 5, 80.0, 1000, NULL, NULL, NULL, NULL, NULL, NULL)", (rank + 1,))
    db.commit()
    db.close()
    return told


def test_an_older_recording_is_read_and_what_it_lacks_is_not_known(stage):
    stage.save(world_size=2)
    old_recording(stage)
    stage.save(ended_at=time.time(), exit_code=0)
    made = report.build(stage.run)
    assert made["steps"]["window"] == [2, 40]
    rank = made["ranks"][0]
    assert (rank["cpu_percent"], rank["cpu_starved_share"], rank["tokens_per_s"], rank["threads"]) == (80.0,) + (
        None,
    ) * 3
    assert made["findings"] == []


def test_a_hub_goes_on_with_an_older_recording(stage):
    stage.save(world_size=2)
    told = old_recording(stage)
    stage.hub()
    further = records(own_times(10, 2), first=41, start_us=told[0][-1].end_us)
    for rank in (stage.rank(rank, world_size=2) for rank in range(2)):
        rank.join()
        rank.batch(telling(further, rank.rank), seq=2, digests=[Digest(41, 0, 5)])
        rank.acknowledged(2)
    shot = stage.viewer().until(lambda s: s.window and s.window[1] == 50, "all steps")
    assert shot.window[0] == 2
    stage.finish()
    with sqlite3.connect(f"file:{recording_path(stage.run.id)}?mode=ro", uri=True) as db:
        found = db.execute("SELECT count(tokens), count(*) FROM steps").fetchall()
    db.close()
    assert found == [(20, 100)]


def test_a_sample_comes_back_as_it_was():
    db = sqlite3.connect(":memory:")
    schema.make(db)
    told = [Sample(5), Sample(6, 90.0, 1 << 30, gpu_throttled="", loader_workers=0, loader_pinned=False)]
    told.append(Sample(7, threads=3, loader_workers=2, loader_pinned=True))
    db.executemany(schema.insert("samples"), [schema.sample_row(1, sample) for sample in told])
    rows = db.execute(schema.select(db, "samples", schema.SAMPLES, "ORDER BY time_us"))
    found = [schema.sample_of(row) for row in rows]
    assert found == told
    assert [sample.loader_pinned for sample in found] == [None, False, True]
    assert msgspec.json.encode(found) == msgspec.json.encode(told)
