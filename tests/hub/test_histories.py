"""Every quantity over time: from steps, samples and what scripts log; live, recorded, played."""

import contextlib
import sqlite3

import msgspec
import numpy as np
import pytest

from ddpmon import runs
from ddpmon.messages import (
    Next,
    Sample,
    Scalar,
    SeriesRequest,
    ViewRequest,
    encode,
)
from ddpmon.messages.changes import apply_changes
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot, recorded_state
from ddpmon.recording.recording import recording_path
from ddpmon.store.histories import LOGGED_MOST, Histories
from ddpmon.store.parts import with_parts
from tests.recordings import BEGAN, FIRST_S, record, story
from tests.worlds import own_times, records, world_with


def part_of(own, first=2, **options):
    world = world_with(own, first=first, **options)
    return world, world.end_us / 1e6


def told(ranks=4, steps=100, late=None, loss=None):
    own = own_times(steps, ranks, noise=0.01)
    if late is not None:
        own[:, late, 0] += 9.0
    histories = Histories()
    histories.add_steps(*part_of(own, loss=loss))
    return histories


def test_only_what_the_run_tells_is_there():
    assert Histories().quantities_present == []
    assert told().quantities_present == ["step", "own", "wait", "transfer", "samples"]
    assert told(ranks=1).quantities_present == ["step", "own", "samples"]
    assert told(loss=np.ones((100, 4))).quantities_present[0] == "loss"
    assert told().view("accuracy", None, None, 10) is None
    assert told().view("log:accuracy", None, None, 10) is None


def test_the_worst_rank_is_the_one_that_holds_the_others_back():
    histories = told(late=2)
    for name in ("own", "wait", "step"):
        assert set(histories.view(name, None, None, 20).worst) == {2}, name
    own, wait = (histories.view(name, None, None, 100) for name in ("own", "wait"))
    assert min(own.high) > max(own.median) + 8
    assert max(wait.low) == 0.0
    assert min(wait.median) > 8


def test_samples_are_put_together_by_the_second():
    histories = told()
    for rank in (0, 1, 3):
        histories.add_samples(
            rank, [Sample(5_000_000 + second * 1_000_000 + rank * 1000, 10.0 * rank, 1 << 30) for second in range(6)], 0
        )
    histories.end_seconds()
    assert histories.quantities_present[-2:] == ["cpu", "rss"]
    view = histories.view("cpu", None, None, 100)
    assert view.seconds == [6.0, 7.0, 8.0, 9.0]
    assert (view.low[0], view.median[0], view.high[0], view.worst[0]) == (0.0, 10.0, 30.0, 3)
    assert view.steps[0] == histories.view("step", 0.1, None, 100).steps[-1]
    histories.end_seconds(final=True)
    assert histories.view("cpu", None, None, 100).seconds[-1] == 11.0
    histories.add_samples(0, [Sample(6_500_000, 99.0)], 0)
    histories.end_seconds(final=True)
    assert max(histories.view("cpu", None, None, 100).high) == 30.0, "a second that is over is over"


def test_what_one_rank_does_not_measure_does_not_disturb_the_others():
    histories = Histories()
    histories.add_samples(0, [Sample(1_000_000, gpu_percent=90.0)], 0)
    histories.add_samples(1, [Sample(1_000_000, cpu_percent=50.0)], 0)
    histories.end_seconds(final=True)
    assert histories.quantities_present == ["gpu", "cpu"]
    assert histories.view("gpu", None, None, 9).median == [90.0]


def test_logged_values_stand_at_the_end_of_their_step():
    histories = Histories()
    histories.add_logged(0, [Scalar(5, "accuracy", 0.5), Scalar(50, "accuracy", 0.9)])
    histories.add_logged(1, [Scalar(5, "accuracy", 0.7)])
    world, seconds = part_of(own_times(20, 2))
    histories.add_steps(world, seconds)
    assert histories.quantities_present[-1] == "log:accuracy"
    view = histories.view("log:accuracy", None, None, 9)
    assert (view.steps, view.seconds) == ([5], [round(float(seconds[3]), 3)])
    assert (view.low, view.median, view.high, view.worst) == (
        [pytest.approx(0.5)], [pytest.approx(0.6)], [pytest.approx(0.7)], [None],
    )  # fmt: skip
    histories.forget_logged()
    histories.add_steps(*part_of(own_times(60, 2), first=2, start_us=9_000_000))
    assert histories.view("log:accuracy", None, None, 9).steps == [5]


def test_names_and_what_waits_for_its_step_are_bounded():
    histories = Histories()
    histories.add_logged(0, [Scalar(1, f"value{number}", 1.0) for number in range(LOGGED_MOST + 5)])
    histories.add_logged(0, [Scalar(step, "value0", 1.0) for step in range(20_000)])
    assert len(histories._by_step) == LOGGED_MOST
    assert len(histories._by_step["value0"]) <= 4096


ALL = ["loss", "step", "own", "wait", "transfer", "samples", "cpu", "rss", "log:accuracy"]


def test_a_recording_tells_all_of_it(home):
    run = record(accuracy=True)
    assert recorded_snapshot(run).quantities == ALL
    shot, store = recorded_state(run)
    for name in ALL:
        series = with_parts(shot, store, ViewRequest(series=SeriesRequest((name,), columns=512))).series
        assert series.name == name
        assert len(series.seconds) > 40
        assert all(value is not None for value in series.median)
    accuracy = with_parts(shot, store, ViewRequest(series=SeriesRequest(("log:accuracy",), columns=512))).series
    assert accuracy.median == [pytest.approx(step / 1000) for step in accuracy.steps]


@contextlib.contextmanager
def changed_history(run):
    """The histories that its recording holds, to be changed in it."""
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db, db:
        ((value,),) = db.execute("SELECT value FROM checkpoints WHERE name = 'history'")
        saved = msgspec.msgpack.decode(value)
        yield saved
        db.execute("UPDATE checkpoints SET value = ? WHERE name = 'history'", (msgspec.msgpack.encode(saved),))


def test_a_damaged_history_is_made_anew_from_the_rows(home):
    run = record(story(600, 2, late=1, begin=200, end=400))
    before = recorded_state(run)[1].histories
    with changed_history(run) as saved:
        saved["histories"]["steps"]["levels"] = [(7, b"?")]
    shot, store = recorded_state(run)
    for name in before.quantities_present:
        assert store.histories.view(name, None, None, 400) == before.view(name, None, None, 400), name
    assert any("is damaged" in note for note in shot.notes)


def test_a_recording_that_plays_shows_each_up_to_its_cursor(home):
    player = Player(record(story(900, 2, late=1, begin=300, end=600), accuracy=True))
    for seconds in (30.0, 12.0, 13.0):
        for name in ("loss", "wait", "cpu", "log:accuracy"):
            series = player.snapshot_at(BEGAN + seconds, ViewRequest(series=SeriesRequest((name,)))).series
            assert seconds - 3.5 < series.seconds[-1] <= seconds + 1e-3, name
            assert series.seconds[0] < FIRST_S + 2, name
            assert series.seconds == sorted(series.seconds), name
    player.close()


def test_restarted_ranks_go_on_in_the_same_chart(home):
    player = Player(record(story(900, begin=900), restarts=[450], accuracy=True))
    series = player.snapshot_at(player.end, ViewRequest(series=SeriesRequest(("own",)))).series
    assert series.seconds == sorted(series.seconds)
    assert series.last_s > 25
    player.close()


def test_a_live_hub_serves_what_is_requested_and_the_recording_the_same(stage):
    told = records(own_times(50, 2), first=1, loss=np.ones((50, 2)))
    for rank in stage.start():
        rank.train(told[rank.rank], scalars=[Scalar(20, "accuracy", 0.25 + rank.rank / 2)])
    view_request = ViewRequest(series=SeriesRequest(("log:accuracy",), columns=9))
    shown = stage.viewer().until(lambda s: "log:accuracy" in s.quantities, "what was logged")
    assert shown.quantities[:3] == ["loss", "step", "own"]
    assert shown.series is None
    viewer = stage.viewer()
    viewer.socket.send(encode(Next(view_request=view_request)))
    assert viewer.socket.poll(20_000)
    live = apply_changes(None, viewer.socket.recv()).series
    assert (live.steps, live.low, live.high) == ([20], [0.25], [0.75])
    stage.finish()
    shot, store = recorded_state(runs.load(stage.run.id))
    assert with_parts(shot, store, view_request).series == live
