"""A recording whose oldest steps were merged is read like any other: report, replay, CSV, and where it is damaged."""

import contextlib
import shutil
import sqlite3

import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.recording.player import Player
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.restoring import restored_store
from ddpmon.store.clock import Clock
from tests.hub.thinned import NO_ROOM, SOME_ROOM, WIDTHS_US, counts, merge_all, rows, slow
from tests.recordings import BEGAN, change_steps, record


def test_the_report_is_the_same_and_counts_no_merged_step_as_lost(home):
    own = slow(1800)
    whole = report.build(record(own))
    shutil.rmtree(runs.run_dir(whole["run"]["id"]))
    thinned = report.build(record(own, room=(1, 2 * 800)))
    assert counts(runs.load(whole["run"]["id"]))["steps"] == 1600
    assert {name: thinned["steps"][name] for name in ("count", "records_lost")} == {"count": 1800, "records_lost": 0}
    assert thinned["what_if"] is not None
    # Of steps that were merged nobody can tell any more that a rank was slow in them.
    assert thinned["verdict"] == whole["verdict"].partition(";")[0]


def test_what_was_lost_is_still_lost_once_its_neighbours_are_merged(home):
    run = record(slow(600))
    change_steps(run, lambda process, step: None if process == 2 and 50 <= step.step <= 59 else step)
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("UPDATE processes SET records = 590 WHERE id = 2")
        db.commit()
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, *NO_ROOM)
    with Recording(run) as recording:
        recorder.record_process(list(recording.processes())[1])
    merge_all(recorder)
    assert counts(run)["steps"] < 600
    assert report.build(run)["steps"]["records_lost"] == 10


def test_replay_shows_merged_steps_by_their_means_and_says_so(home):
    own = slow()
    whole = record(own)
    player = Player(whole)
    at = [BEGAN + seconds for seconds in (270.0, 500.0)]
    expected = [player.snapshot_at(moment) for moment in at]
    player.close()
    shutil.rmtree(runs.run_dir(whole.id))
    player = Player(record(own, room=SOME_ROOM))
    shown = [player.snapshot_at(moment) for moment in at]
    said = [[event.text for event in shot.events if "means over" in event.text] for shot in shown]
    assert [len(texts) for texts in said] == [1, 0]
    assert {text.split("means over ")[1].split(" for ")[0] for texts in said for text in texts} <= set(WIDTHS_US)
    for before, after in zip(expected, shown, strict=True):
        assert after.step == pytest.approx(before.step, abs=6)
        assert (after.state, after.records_lost) == (before.state, 0)
        for mine, theirs in zip(after.ranks, before.ranks, strict=True):
            assert mine.own_ms == pytest.approx(theirs.own_ms, rel=0.02)
            assert mine.phases_ms[:5] == pytest.approx(theirs.phases_ms[:5], rel=0.05, abs=3.0)
            assert sum(mine.phases_ms) == pytest.approx(sum(theirs.phases_ms), rel=0.05)
            assert mine.sample.cpu_percent == theirs.sample.cpu_percent
    player.close()


def test_replay_begins_at_the_first_step_and_ends_at_the_last_where_all_are_merged(home):
    run = record(slow(1500), restarts=(1400,), room=(1, 0))
    assert counts(run)["steps"] == 0
    player = Player(run)
    assert player.first_step == pytest.approx(BEGAN + 5.2, abs=1.0)
    middle = player.snapshot_at((player.begin + player.end) / 2)
    assert middle.step > 500
    assert player.snapshot_at(player.end - 1.0).step == pytest.approx(100, abs=6)
    player.close()


def change(run, *queries):
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        for query in queries:
            db.execute(query)
        db.commit()


IMPOSSIBLE = [
    "steps = 9007199254740991",
    "last_step = 9223372036854775807, steps = 9223372036854775807",
    "first_step = -9007199254740992, steps = 9007199254740992",
    "length_us_sum = 'long', end_us = x'00'",
    "end_us = -1, steps = 0",
    "learning_rate = 'nan', waits = NULL, loss_sum = 9e999",
    "begin_us = begin_us * 1000000",
]


def test_rows_that_cannot_be_are_left_out_of_a_replay(home):
    run = record(slow(3000), room=(190_000, 200))
    ((begin, end),) = rows(run, "SELECT min(begin_us) / 1e6, max(begin_us) / 1e6 FROM rollup WHERE width_us = 60000000")
    wrong = f"width_us = 60000000 AND begin_us > {(begin + end) / 2 * 1e6}"
    counts = []
    for turn, what in enumerate(IMPOSSIBLE):
        turns = f"{wrong} AND (process + begin_us / 60000000 * 2) % {len(IMPOSSIBLE)} = {turn}"
        counts += rows(run, f"SELECT count(*) FROM rollup WHERE {turns}")[0]
        change(run, f"UPDATE rollup SET {what} WHERE {turns}")
    assert all(counts), "each of them is in some rows"
    player = Player(run)
    shown = [player.snapshot_at(BEGAN + seconds) for seconds in (begin + 30, end - 5)]
    assert all(0 < shot.step <= 3000 for shot in shown)
    assert shown[0].step < shown[-1].step
    player.step_from(BEGAN + end - 5, 1)
    player.close()
    assert report.build(run)["steps"]["count"] == 3000


def test_steps_that_were_merged_are_not_lost_where_the_file_is_damaged(home):
    run = record(slow(), room=SOME_ROOM)
    ((page, size),) = rows(run, "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'events'")
    with recording_path(run.id).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Recording(run) as recording:
        store = restored_store(recording)
        assert recording.database.salvaged
    assert (store.step, store.registry.records_lost) == (3000, 0)
    player = Player(run)
    assert 300 < player.snapshot_at(BEGAN + 100.0).step < 600
    player.close()


def test_csv_holds_whole_steps_and_says_how_many_were_merged(home, cli):
    run = record(slow(), room=SOME_ROOM)
    told = cli("export", "--format", "csv")
    assert told.returncode == 0
    whole = counts(run)["steps"]
    assert len(told.stdout.splitlines()) == 1 + whole
    assert told.stderr.startswith(f"ddpmon: the export lacks {6000 - whole:,} older step records of told (")
    assert cli("export", "--format", "csv", "--last", "5").stderr == ""
