"""A recording that grows large keeps its oldest steps as minutes and hours, each step in one place."""

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
from ddpmon.messages import Batch, Sample
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.store.clock import Clock
from tests.conftest import wait_for
from tests.hub.thinned import NO_ROOM, SOME_ROOM, EndlessRun, counts, merge_all, rows, slow
from tests.recordings import BEGAN, change_steps, record
from tests.worlds import own_times, records

TIMES = ("length", "data", "forward", "backward", "optimizer", "other", "wait", "transfer")


def exact(run):
    """Return each step of every rank in µs where nothing is merged, and the column of the rank that was waited for."""
    with Recording(run) as recording:
        worlds = [piece.world for piece in pieces(recording)]
    values = {name: [getattr(world, f"{name}_ms") for world in worlds] for name in ("length", "wait", "transfer")}
    values |= {name: [world.phases_ms[..., i] for world in worlds] for i, name in enumerate(TIMES[1:6])}
    critical = np.concatenate([world.critical for world in worlds])
    return {name: np.round(np.concatenate(ms) * 1e3).astype(int) for name, ms in values.items()}, critical


@pytest.mark.parametrize(("room", "tier"), [(SOME_ROOM, "minutes"), (NO_ROOM, "hours")])
def test_sums_are_those_of_the_steps(home, room, tier):
    own = slow()
    run = record(own)
    expected, critical = exact(run)
    shutil.rmtree(runs.run_dir(run.id))
    run = record(own, room=room)
    assert counts(run)[tier] > 0
    for process, rank in rows(run, "SELECT id, rank FROM processes"):
        ((whole,),) = rows(run, "SELECT coalesce(sum(count), 0) FROM step_blocks WHERE process = ?", process)
        merged = len(own) - whole
        assert merged > 1000
        query = "SELECT sum(steps), sum(critical), sum(waits) FROM rollup WHERE process = ?"
        assert rows(run, query, process) == [(merged, (critical[:merged] == rank).sum(), merged)]
        for name in TIMES:
            query = f"SELECT sum({name}_us_sum) FROM rollup WHERE process = ?"
            assert rows(run, query, process) == [(expected[name][:merged, rank].sum(),)], name


def test_the_worst_rank_of_a_span_is_the_one_that_was_waited_for(home):
    run = record(slow(), room=SOME_ROOM)
    worst = rows(run, "SELECT begin_us, waited_steps, critical, worst_rank FROM worst_ranks ORDER BY begin_us")
    assert len(worst) == rows(run, "SELECT count(*) FROM (SELECT DISTINCT width_us, begin_us FROM rollup)")[0][0]
    ((_, waited, critical, rank),) = [row for row in worst if row[0] == 180e6]
    assert (critical, rank) == (waited, 1)
    assert {row[3] for row in worst} == {0, 1}


def test_a_step_that_some_rank_never_told_of_tells_of_no_wait(home):
    run = record(slow(600), dead=(1,))
    change_steps(run, lambda process, step: None if process == 2 and 50 <= step.step <= 99 else step)
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, *NO_ROOM)
    with Recording(run) as recording:
        recorder.record_process(next(iter(recording.processes())))
    merge_all(recorder)
    found = rows(run, "SELECT process, sum(steps), sum(waits) FROM rollup GROUP BY process")
    assert sorted(found) == [(1, 500, 450), (2, 450, 450)]


def test_losses_logged_values_and_samples_keep_count_and_sum(home):
    loss = np.repeat(np.linspace(3.0, 1.0, 3000)[:, None], 2, axis=1)
    loss[100, 0] = math.nan
    run = record(slow(), loss=loss, accuracy=True, room=NO_ROOM)
    ((merged,),) = rows(run, "SELECT sum(steps) FROM rollup WHERE process = 1")
    told = rows(run, "SELECT sum(losses), sum(loss_sum), sum(losses_not_finite) FROM rollup WHERE process = 1")
    finite = np.delete(loss[:merged, 0], 100)
    assert told == [(merged - 1, pytest.approx(finite.sum()), 1)]
    steps = range(10, merged + 1, 10)
    (logged,) = rows(run, "SELECT name, sum(count), sum(sum), sum(not_finite) FROM scalar_rollup")
    assert logged == ("accuracy", len(steps), pytest.approx(sum(steps) / 1000), 0)
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
    recorder.record_batch(process, batch, [])
    merge_all(recorder)
    with Recording(run) as recording:
        (merged,) = recording.samples(process.id, first - 1, first + 10_000_000)
    expected = Sample(told[-1].time_us, 81.0, 102, threads=8, gpu_throttled="", loader_pinned=True)
    assert merged == expected
    assert rows(run, "SELECT merged FROM samples WHERE time_us = ?", merged.time_us) == [(3,)]


def test_the_file_of_a_run_that_goes_on_does_not_grow(home, tmp_path):
    path = tmp_path / "telemetry.db"
    run = EndlessRun(path, whole_bytes=300_000)
    sizes = []
    for tick in range(600):
        run.tick()
        if tick >= 300:
            sizes.append(path.stat().st_size)
    run.recorder.close()
    ((kept,),) = rows(path, "SELECT coalesce(sum(count), 0) FROM step_blocks")
    assert kept < 0.4 * 600 * 10 * 4
    assert max(sizes) < 400_000
    assert rows(path, "SELECT sum(steps) FROM rollup") == [(600 * 10 * 4 - kept,)]


WRITER = """
import sys
from pathlib import Path
from tests.hub.thinned import EndlessRun
run = EndlessRun(Path(sys.argv[1]), whole_bytes=400_000, first=int(sys.argv[2]))
print("began", flush=True)
while True:
    run.tick()
"""


def test_a_writer_that_is_killed_leaves_each_step_in_one_place(home, tmp_path):
    path = tmp_path / "telemetry.db"
    first = 1
    for killed_at in (3000, 5000):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(first)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"began\n"
            wait_for(lambda at=killed_at: path.exists() and told(path, "max(last_step)", "processes") > at)
            writer.send_signal(signal.SIGKILL)
        for process, last, count in rows(path, "SELECT id, last_step, records FROM processes"):
            merged = told(path, f"coalesce(sum(steps), 0) FROM rollup WHERE process = {process}")
            whole = told(path, f"coalesce(sum(count), 0) FROM step_blocks WHERE process = {process}")
            assert merged > 0
            assert last == count == merged + whole
        first = last + 1


def told(path, what, table=None):
    with contextlib.suppress(sqlite3.OperationalError):  # its tables are being made
        return rows(path, f"SELECT {what}{f' FROM {table}' if table else ''}")[0][0] or 0
    return 0


HUB = """
import sys
from ddpmon.hub import hub
from ddpmon.recording import recorder
recorder.Recorder.__init__.__defaults__ = (None, 75_000, 400)
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
        for _ in range(10):
            told = records(own_times(200, 2), first=first, start_us=now_us)
            for rank in ranks:
                rank.batch(told[rank.rank])
            first, now_us, seq = first + 200, told[0][-1].end_us, rank.seq
        for rank in ranks:
            rank.acknowledged(seq)
        wait_for(lambda: rows(stage.run, "SELECT coalesce(sum(count), 0) FROM step_blocks")[0][0] < 3500)
        if not again:
            started.kill()
            started.wait()
            started = hub()
    shot = stage.viewer().until(lambda s: s.step == 4000, "all steps")
    assert shot.records_lost == 0
    stage.finish()
    made = report.build(stage.run)
    assert (made["steps"]["count"], made["steps"]["records_lost"], made["findings"]) == (4000, 0, [])
    merged = rows(stage.run, "SELECT coalesce(sum(steps), 0) FROM rollup")[0][0]
    assert merged + counts(stage.run)["steps"] == 2 * 4000
