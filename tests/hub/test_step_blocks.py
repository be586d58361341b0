"""A recording whose steps came in blocks tells the same as one that has a row for each."""

import contextlib
import math
import shutil
import sqlite3
import zlib

import numpy as np
import pytest

from ddpmon import runs
from ddpmon.analysis.steps.table import ROW, column_bytes
from ddpmon.export import report
from ddpmon.export.steps import pieces
from ddpmon.messages import STAGE_ENDED, Batch
from ddpmon.recording import schema
from ddpmon.recording.player import Player
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.store.clock import Clock
from tests.hub.thinned import NO_ROOM, SOME_ROOM, TIERS, rows, slow
from tests.recordings import BEGAN, add_as_rows, record, story, told_by
from tests.worlds import own_times, records


@pytest.fixture
def both(home):
    """The same run twice, without blocks and with them: what a function makes of it."""

    def made(make, **how):
        results = []
        for blocks in (False, True):
            run = record(blocks=blocks, **how)
            results.append(make(run))
            shutil.rmtree(runs.run_dir(run.id))
        return results

    return made


def test_reports_are_alike(both):
    loss = np.repeat(2.0 * 0.999 ** np.arange(1800)[:, None], 4, axis=1)
    loss[700, 2] = math.nan
    without, with_blocks = both(report.build, own=story(), loss=loss, restarts=(300,))
    assert with_blocks == without


def test_every_step_is_exported_alike(both):
    def told(run):
        with Recording(run) as recording:
            worlds = [piece.world for piece in pieces(recording)]
        return [
            np.concatenate([getattr(world, name) for world in worlds])
            for name in ("step", "phases_ms", "wait_ms", "transfer_ms", "loss", "samples", "gradient_bytes")
        ]

    for one, other in zip(*both(told, own=story(400)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_moments_are_played_alike(both):
    def told(run):
        player = Player(run)
        places = [player.begin + share * (player.end - player.begin) for share in (0.3, 0.5, 0.9, 0.4)]
        shots = [player.at(place) for place in places]
        ends = [player.step_from(places[0], by) for by in (1, -1)]
        player.close()
        return [(shot.step, shot.verdict, [rank.own_ms for rank in shot.ranks]) for shot in shots], ends

    without, with_blocks = both(told, own=story())
    assert with_blocks == without


@pytest.mark.parametrize("room", [SOME_ROOM, NO_ROOM])
def test_what_is_merged_are_the_same_sums(both, room):
    def told(run):
        merged = rows(run, f"SELECT count(*) FROM ({' UNION ALL '.join(f'SELECT 1 FROM {tier}' for tier in TIERS)})")
        sums = {}
        for tier in TIERS:
            query = "SELECT process, sum(steps), sum(length_us_sum), sum(wait_us_sum), max(own), sum(critical) FROM "
            query += f"(SELECT *, backward_us_max AS own FROM {tier}) GROUP BY process"
            for process, *values in rows(run, query):
                sums[process] = [a + b for a, b in zip(sums.get(process, [0] * 5), values, strict=True)]
        with Recording(run) as recording:
            whole = {each.id: recording.steps(each.id, 1, 1 << 40) for each in recording.processes()}
        assert merged[0][0] > 0
        assert {each: sums[each][0] + len(steps) for each, steps in whole.items()} == dict.fromkeys(whole, 3000)
        return sums if room == NO_ROOM else None

    without, with_blocks = both(told, own=slow(), room=room)
    assert with_blocks == without


def test_a_damaged_block_costs_its_steps_and_is_said(home):
    run = record(own_times(200, 2), blocks=True)
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("UPDATE step_blocks SET rows = x'00' WHERE first_step = 51")
        db.commit()
    with Recording(run) as recording:
        process = recording.processes()[1]
        steps = recording.steps(process.id, 1, 1000)
        assert [step.step for step in steps] == [*range(1, 51), *range(101, 201)]
        assert recording.damaged
        assert recording.unread[process.id] == 50


def test_a_block_of_more_steps_than_any_holds_is_damaged_and_those_after_it_are_read(home):
    run = record(own_times(200, 2), blocks=True)
    table = np.zeros(schema.BLOCK_STEPS + 1, ROW)
    table["step"] = np.arange(1, len(table) + 1)
    bomb = zlib.compress(column_bytes(table))
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("UPDATE step_blocks SET rows = ? WHERE first_step = 1", (bomb,))
        db.commit()
    with pytest.raises(ValueError, match="too large"):
        schema.block_steps(bomb)
    with Recording(run) as recording:
        process = recording.processes()[1]
        assert [step.step for step in recording.steps_from(process.id, 1, 2)] == [51, 52]
        assert list(recording.stretches([process.id], 1, 100)) == [(51, 151), (151, 251)]
        assert recording.damaged


def test_many_steps_of_a_process_are_several_blocks(monkeypatch):
    monkeypatch.setattr(schema, "BLOCK_STEPS", 100)
    table = np.zeros(250, ROW)
    table["step"] = np.arange(1, 251)
    written = schema.block_rows(7, table)
    assert [row[:4] for row in written] == [(7, 1, 100, 100), (7, 101, 200, 100), (7, 201, 250, 50)]
    read = np.concatenate([schema.block_steps(row[-1]) for row in written])
    assert read["step"].tolist() == list(range(1, 251))


def test_a_batch_that_was_recorded_twice_counts_once(home):
    run = record(own_times(100, 2), blocks=True)
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("INSERT INTO step_blocks SELECT process, first_step + 1, last_step, count, first_end_us, "
                   "last_end_us, rows FROM step_blocks")  # fmt: skip
        db.commit()
    with Recording(run) as recording:
        for process in recording.processes():
            assert [step.step for step in recording.steps(process.id, 1, 1000)] == list(range(1, 101))
            assert [step.step for step in recording.steps_from(process.id, 49, 4)] == [49, 50, 51, 52]


def test_counters_of_a_process_are_those_of_what_is_recorded(home):
    """A hub that is killed leaves what its nodes must send again."""
    own = own_times(60, 1)
    run = record(own_times(1, 1))
    told = records(own, first=1)[0]
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN))
    process = told_by(run, 7, 0, 0, [])
    process.left, process.stage, process.seq = False, STAGE_ENDED, 0
    recorder.process(process)
    recorder.write()

    def counters():
        return rows(run, "SELECT seq, last_step, records FROM processes WHERE id = 7")[0]

    for seq in (1, 2):
        batch = Batch(0, process.hello.pid, seq, 0, 4, 30 * seq, 0, steps=told[30 * seq - 30 : 30 * seq])
        process.seq, process.last_step, process.records = seq, 30 * seq, 30 * seq
        if seq == 1:
            add_as_rows(recorder, process, batch)
        else:
            recorder.columns.add(process, batch)
    recorder.write()
    assert counters() == (1, 30, 30), "the second waits"
    assert recorder.recorded(process) == 1
    recorder.process(process)  # it said goodbye, say
    recorder.write()
    assert counters() == (2, 60, 60)
    recorder.close()
    assert runs.load(run.id)
