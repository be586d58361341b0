"""A recording that grows large keeps its oldest steps as seconds, minutes and hours, each step in one place."""

import contextlib
import math
import shutil
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.export.steps import pieces
from ddpmon.messages import PROTOCOL, Batch, Hello, Sample, Scalar
from ddpmon.recording.player import Player
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.restoring import restored_store
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from tests.conftest import wait_for
from tests.recordings import BEGAN, record, story
from tests.worlds import own_times, records

TIERS = ("seconds", "minutes", "hours")
TIMES = ("length", "data", "forward", "backward", "optimizer", "other", "wait", "transfer")
NO_ROOM = (1, 200)
"""All is merged that may be."""
SOME_ROOM = (450_000, 200)


def rows(source, query, *values):
    path = recording_path(source.id) if isinstance(source, runs.Run) else source
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(query, values).fetchall()


def counts(run):
    return {tier: rows(run, f"SELECT count(*) FROM {tier}")[0][0] for tier in ("steps", *TIERS)}


def slow(steps=3000, ranks=2):
    """Five steps a second; rank 1 is late from a third to half of them."""
    return story(steps, ranks, late=1, begin=steps // 3, end=steps // 2) * 6


def exact(run):
    """What every step of every rank was, in µs, where nothing is merged; and the column that was waited for."""
    with Recording(run) as recording:
        worlds = [piece.world for piece in pieces(recording)]
    values = {name: [getattr(world, f"{name}_ms") for world in worlds] for name in ("length", "wait", "transfer")}
    values |= {name: [world.phases_ms[..., i] for world in worlds] for i, name in enumerate(TIMES[1:6])}
    critical = np.concatenate([world.critical for world in worlds])
    return {name: np.round(np.concatenate(ms) * 1e3).astype(int) for name, ms in values.items()}, critical


def test_a_recording_that_has_room_is_left_as_it_is(home):
    assert counts(record(story(300))) == {"steps": 1200, "seconds": 0, "minutes": 0, "hours": 0}


@pytest.mark.parametrize(("room", "tier"), [(SOME_ROOM, "seconds"), (NO_ROOM, "hours")])
def test_sums_least_and_largest_are_those_of_the_steps(home, room, tier):
    own = slow()
    run = record(own)
    expected, critical = exact(run)
    shutil.rmtree(runs.run_dir(run.id))
    run = record(own, room=room)
    assert counts(run)[tier] > 0
    for process, rank in rows(run, "SELECT id, rank FROM processes"):
        ((whole,),) = rows(run, "SELECT count(*) FROM steps WHERE process = ?", process)
        merged = len(own) - whole
        assert merged > 1000
        told = [
            rows(run, f"SELECT sum(steps), sum(critical), sum(waits) FROM {t} WHERE process = ?", process)[0]
            for t in TIERS
        ]
        assert sum(row[0] or 0 for row in told) == sum(row[2] or 0 for row in told) == merged
        assert sum(row[1] or 0 for row in told) == (critical[:merged] == rank).sum()
        for name in TIMES:
            query = f"SELECT sum({name}_us_sum), min({name}_us_min), max({name}_us_max) FROM {{}} WHERE process = ?"
            found = [row for t in TIERS if (row := rows(run, query.format(t), process)[0])[0] is not None]
            us = expected[name][:merged, rank]
            sums, least, largest = zip(*found, strict=True)
            assert (sum(sums), min(least), max(largest)) == (us.sum(), us.min(), us.max()), name


def test_the_worst_rank_of_a_span_is_the_one_that_was_waited_for(home):
    run = record(slow(), room=SOME_ROOM)
    worst = rows(run, "SELECT begin_us, waited_steps, critical, worst_rank FROM worst_ranks ORDER BY begin_us")
    assert len(worst) == sum(rows(run, f"SELECT count(DISTINCT begin_us) FROM {tier}")[0][0] for tier in TIERS)
    late = [row for row in worst if 200e6 < row[0] < 280e6]
    assert len(late) > 50
    assert all((critical, rank) == (waited, 1) for _, waited, critical, rank in late)
    assert {row[3] for row in worst} == {0, 1}


def test_a_step_that_some_rank_never_told_of_tells_of_no_wait(home):
    run = record(slow(600), dead=(1,))
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("DELETE FROM steps WHERE process = 2 AND step BETWEEN 50 AND 99")
        db.commit()
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, *NO_ROOM)
    thin(recorder, run)
    found = rows(run, "SELECT process, sum(steps), sum(waits) FROM minutes GROUP BY process")
    found += rows(run, "SELECT process, sum(steps), sum(waits) FROM hours GROUP BY process")
    assert sorted(found) == [(1, 500, 450), (2, 450, 450)]


def thin(recorder, run):
    """Have a recorder of a run that is over merge all it can."""
    with Recording(run) as recording:
        recorder.process(next(iter(recording.processes())))
    recorder.write()
    while recorder.too_large:
        recorder.thin()
    recorder.close()


def test_losses_logged_values_and_samples_keep_count_sum_and_extremes(home):
    loss = np.repeat(np.linspace(3.0, 1.0, 3000)[:, None], 2, axis=1)
    loss[100, 0] = math.nan
    run = record(slow(), loss=loss, accuracy=True, room=NO_ROOM)
    ((merged,),) = rows(run, "SELECT sum(steps) FROM hours WHERE process = 1")
    query = "SELECT sum(losses), sum(loss_sum), max(loss_max), min(loss_min), sum(losses_not_finite) FROM hours"
    told = rows(run, f"{query} WHERE process = 1")
    finite = np.delete(loss[:merged, 0], 100)
    assert told[0][:2] == (merged - 1, pytest.approx(finite.sum()))
    assert told[0][2:] == (3.0, finite.min(), 1)
    steps = range(10, merged + 1, 10)
    (logged,) = rows(run, "SELECT name, sum(count), sum(sum), min(min), max(max), sum(not_finite) FROM scalar_hours")
    assert logged == ("accuracy", len(steps), pytest.approx(sum(steps) / 1000), 0.01, merged // 10 / 100, 0)
    assert rows(run, "SELECT count(*) FROM scalars") == [((3000 - merged) // 10,)]
    assert rows(run, "SELECT count(*) FROM samples WHERE merged IS NULL")[0][0] < 2 * 120
    assert rows(
        run, "SELECT DISTINCT cpu_percent, rss_bytes, merged FROM samples WHERE merged > 1 AND time_us > 60000000"
    ) == [(90.0, 1 << 30, 60)]


def test_a_merged_sample_is_a_mean_but_for_what_fills_up(home):
    run = record(slow(300))
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, 1, 0)
    with Recording(run) as recording:
        process = next(iter(recording.processes()))
    first = 100_000_000_000
    told = [
        Sample(first + i * 1_000_000, 80.0 + i, 100 + i, threads=7 + i % 2, gpu_throttled="", loader_pinned=True)
        for i in range(3)
    ]
    later = [Sample(first + 7_300_000_000, 50.0)]
    batch = Batch(0, process.hello.pid, process.seq + 1, 0, 4, 300, 0, samples=[*told, *later])
    recorder.batch(process, batch, [])
    recorder.write()
    while recorder.too_large:
        recorder.thin()
    recorder.close()
    with Recording(run) as recording:
        (merged,) = recording.samples(process.id, first - 1, first + 10_000_000)
    expected = Sample(told[-1].time_us, 81.0, 102, threads=8, gpu_throttled="", loader_pinned=True)
    assert merged == expected
    assert rows(run, "SELECT merged FROM samples WHERE time_us = ?", merged.time_us) == [(3,)]


def test_the_report_is_the_same_and_counts_no_merged_step_as_lost(home):
    own = slow()
    whole = report.build(record(own))
    shutil.rmtree(runs.run_dir(whole["run"]["id"]))
    thinned = report.build(record(own, room=(1, 2 * 1200)))
    assert counts(runs.load(whole["run"]["id"]))["steps"] == 2400
    window = {"count", "window", "samples_per_s", "records_lost"}
    assert {name: thinned["steps"][name] for name in ("count", "records_lost")} == {"count": 3000, "records_lost": 0}
    assert window <= thinned["steps"].keys()
    assert thinned["what_if"] is not None
    assert thinned["verdict"] == whole["verdict"]


def test_what_was_lost_is_still_lost_once_its_neighbours_are_merged(home):
    run = record(slow(600))
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("DELETE FROM steps WHERE process = 2 AND step BETWEEN 50 AND 59")
        db.execute("UPDATE processes SET records = 590 WHERE id = 2")
        db.commit()
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, *NO_ROOM)
    with Recording(run) as recording:
        recorder.process(list(recording.processes())[1])
    recorder.write()
    while recorder.too_large:
        recorder.thin()
    recorder.close()
    assert counts(run)["steps"] < 600
    assert report.build(run)["steps"]["records_lost"] == 10


def test_replay_shows_merged_steps_by_their_means_and_says_so(home):
    own = slow()
    whole = record(own)
    player = Player(whole)
    at = [BEGAN + seconds for seconds in (60.0, 270.0, 290.0, 500.0)]
    expected = [player.at(moment) for moment in at]
    player.close()
    shutil.rmtree(runs.run_dir(whole.id))
    player = Player(record(own, room=SOME_ROOM))
    shown = [player.at(moment) for moment in at]
    said = [[event.text for event in shot.events if "means of" in event.text] for shot in shown]
    assert [len(texts) for texts in said] == [1, 1, 1, 0]
    assert {text.split("means of ")[1].split(":")[0] for texts in said for text in texts} <= set(TIERS)
    for before, after in zip(expected, shown, strict=True):
        assert after.step == pytest.approx(before.step, abs=6)
        assert (after.state, after.records_lost) == (before.state, 0)
        for mine, theirs in zip(after.ranks, before.ranks, strict=True):
            assert mine.own_ms == pytest.approx(theirs.own_ms, rel=0.02)
            assert mine.phases_ms == pytest.approx(theirs.phases_ms, rel=0.05, abs=3.0)
            assert mine.cpu_percent == theirs.cpu_percent
    kinds = [[(f.kind, *f.ranks) for f in shot.findings if f.severity != "info"] for shot in shown]
    assert kinds == [[], [("straggler", 1)], [("straggler", 1)], []]
    player.close()


def test_replay_begins_at_the_first_step_and_ends_at_the_last_where_all_are_merged(home):
    run = record(slow(1500), restarts=(1400,), room=(1, 0))
    assert counts(run)["steps"] == 0
    player = Player(run)
    assert player.first_step == pytest.approx(BEGAN + 5.2, abs=1.0)
    middle = player.at((player.begin + player.end) / 2)
    assert middle.step > 500
    assert player.at(player.end - 1.0).step == pytest.approx(100, abs=6)
    player.close()


def change(run, *queries):
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        for query in queries:
            db.execute(query)
        db.commit()


@pytest.mark.parametrize(
    "what",
    [
        "steps = 9007199254740991",
        "last_step = 9223372036854775807, steps = 9223372036854775807",
        "first_step = -9007199254740992, steps = 9007199254740992",
        "length_us_sum = 'long', end_us = x'00'",
        "end_us = -1, steps = 0",
        "learning_rate = 'nan', waits = NULL, loss_sum = 9e999",
        "begin_us = begin_us * 1000000",
    ],
)
def test_rows_that_cannot_be_are_left_out_of_a_replay(home, what):
    run = record(slow(2000), room=(400_000, 200))
    ((begin, end),) = rows(run, "SELECT min(begin_us) / 1e6, max(begin_us) / 1e6 FROM seconds")
    change(run, f"UPDATE seconds SET {what} WHERE begin_us > {(begin + end) / 2 * 1e6}")
    player = Player(run)
    shown = [player.at(BEGAN + seconds) for seconds in (begin + 5, (begin + end) / 2 + 5, end - 5, end + 10)]
    assert all(0 < shot.step <= 2000 for shot in shown)
    assert shown[0].step < shown[-1].step
    player.step_from(BEGAN + end - 5, 1)
    player.close()
    assert report.build(run)["steps"]["count"] == 2000


def test_steps_that_were_merged_are_not_lost_where_the_file_is_damaged(home):
    run = record(slow(), room=SOME_ROOM)
    ((page, size),) = rows(run, "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'events'")
    with recording_path(run.id).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Recording(run) as recording:
        store = restored_store(recording)
        assert recording.database.salvaged
    assert (store.step, store.records_lost) == (3000, 0)
    player = Player(run)
    assert 300 < player.at(BEGAN + 100.0).step < 600
    player.close()


def test_csv_holds_whole_steps_and_says_how_many_were_merged(home, cli):
    run = record(slow(), room=SOME_ROOM)
    told = cli("export", "--format", "csv")
    assert told.returncode == 0
    whole = counts(run)["steps"]
    assert len(told.stdout.splitlines()) == 1 + whole
    assert told.stderr.startswith(f"ddpmon: {6000 - whole:,} older step records of told (")
    assert cli("export", "--format", "csv", "--last", "5").stderr == ""


class World:
    """A run that goes on: its ranks tell of half a second at a time."""

    def __init__(self, path, ranks=4, *, whole_bytes, kept_records=400, first=1):
        self.recorder = Recorder(path, "made-up", Clock(0, BEGAN), None, whole_bytes, kept_records)
        hellos = [Hello(PROTOCOL, "made-up", r, r, ranks, 0, "here", 1000 + r, 4) for r in range(ranks)]
        self.processes = [RankProcess(r + 1, 0, hello, stage=4) for r, hello in enumerate(hellos)]
        self.own = own_times(10, ranks, noise=0.1)
        self.number, self.now_us = first - 1, first * 50_000
        for process in self.processes:
            process.last_step = process.records = self.number

    def tick(self):
        told = records(self.own, first=self.number + 1, start_us=self.now_us)
        for process in self.processes:
            steps = told[process.rank]
            process.seq += 1
            process.last_step = process.steps = steps[-1].step
            process.records += len(steps)
            at_us = self.now_us // 1_000_000 * 1_000_000
            samples = [] if at_us == getattr(process, "sampled_us", None) else [Sample(at_us, 90.0, 1 << 30)]
            process.sampled_us = at_us
            scalars = [Scalar(step.step, "loss", 1.0) for step in steps] if process.rank == 0 else []
            batch = Batch(process.rank, process.hello.pid, process.seq, self.now_us, 4, process.steps, 0,
                          steps=steps, samples=samples, scalars=scalars)  # fmt: skip
            self.recorder.batch(process, batch, steps)
        self.number, self.now_us = self.number + len(self.own), told[0][-1].end_us
        self.recorder.write()
        while self.recorder.too_large:
            self.recorder.thin()


def test_the_file_of_a_run_that_goes_on_does_not_grow(home, tmp_path):
    path = tmp_path / "telemetry.db"
    world = World(path, whole_bytes=600_000)
    sizes = []
    for tick in range(900):
        world.tick()
        if tick >= 300:
            sizes.append(path.stat().st_size)
    world.recorder.close()
    ((kept,),) = rows(path, "SELECT count(*) FROM steps")
    assert kept < 0.25 * 900 * 10 * 4
    assert max(sizes) < 700_000
    assert rows(path, "SELECT sum(steps) FROM (SELECT steps FROM seconds UNION ALL SELECT steps FROM minutes)") == [
        (900 * 10 * 4 - kept,)
    ]


WRITER = """
import sys
from pathlib import Path
from tests.hub.test_thinning import World
world = World(Path(sys.argv[1]), whole_bytes=400_000, first=int(sys.argv[2]))
print("began", flush=True)
while True:
    world.tick()
"""


def test_a_writer_that_is_killed_leaves_each_step_in_one_place(home, tmp_path):
    path = tmp_path / "telemetry.db"
    first = 1
    for killed_at in (3000, 5000, 7000):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"began\n"
            wait_for(lambda at=killed_at: path.exists() and told(path, "max(last_step)", "processes") > at)
            writer.send_signal(signal.SIGKILL)
        for process, last, count in rows(path, "SELECT id, last_step, records FROM processes"):
            merged = [told(path, f"coalesce(sum(steps), 0) FROM {t} WHERE process = {process}") for t in TIERS]
            whole = told(path, f"count(*) FROM steps WHERE process = {process}")
            assert sum(merged) > 0
            assert last == count == sum(merged) + whole
        first = last + 1


def told(path, what, table=None):
    with contextlib.suppress(sqlite3.OperationalError):  # its tables are being made
        return rows(path, f"SELECT {what}{f' FROM {table}' if table else ''}")[0][0] or 0
    return 0


HUB = """
import sys
from ddpmon.hub import hub
from ddpmon.recording import recorder
recorder.Recorder.__init__.__defaults__ = (None, 600_000, 400)
sys.exit(hub.main(sys.argv[1]))
"""


def test_a_live_hub_merges_while_it_serves_and_a_later_one_goes_on(stage):
    stage.save(world_size=2)
    now_us, first, seq = 1_000_000, 1, 0

    def hub():
        with (stage.dir / "logs" / "hub.log").open("ab") as log:
            started = subprocess.Popen([sys.executable, "-c", HUB, stage.run.id], stdout=log, stderr=log)
        stage.hubs.append(started)
        stage.viewer().get()
        return started

    started = hub()
    for again in range(2):
        ranks = [stage.rank(rank) for rank in range(2)]
        for rank in ranks:
            rank.seq = seq
            rank.join()
        for _ in range(20):
            told = records(own_times(200, 2), first=first, start_us=now_us)
            for rank in ranks:
                rank.batch(told[rank.rank])
            for rank in ranks:
                rank.acknowledged(rank.seq)
            first, now_us, seq = first + 200, told[0][-1].end_us, rank.seq
        wait_for(lambda: rows(stage.run, "SELECT count(*) FROM steps")[0][0] < 7000)
        if not again:
            started.kill()
            started.wait()
            started = hub()
    shot = stage.viewer().until(lambda s: s.step == 8000, "all steps")
    assert shot.records_lost == 0
    stage.finish()
    made = report.build(stage.run)
    assert (made["steps"]["count"], made["steps"]["records_lost"], made["findings"]) == (8000, 0, [])
    merged = sum(rows(stage.run, f"SELECT coalesce(sum(steps), 0) FROM {tier}")[0][0] for tier in TIERS)
    assert merged + counts(stage.run)["steps"] == 2 * 8000
