"""Live and recorded sources, over real sockets and real recordings."""

import threading
import time

import pytest

from ddpmon import runs
from ddpmon.messages import SeriesRequest, ViewRequest
from ddpmon.source import LiveSource, RecordedSource, attach
from tests.hub.conftest import stage, until  # noqa: F401  a fixture is used by its name
from tests.worlds import own_times, records


@pytest.fixture
def live(stage):  # noqa: F811
    source = attach(stage.run)
    yield source
    source.close()


def train(stage, steps=30):  # noqa: F811
    stage.save(world_size=1)
    rank = stage.rank(0, world_size=1)
    rank.join()
    rank.train(records(own_times(steps, 1), first=1)[0])
    return rank


def newest(source, condition):
    return until(lambda: (s := source.snapshot()) is not None and condition(s) and s, "a snapshot")


def test_a_live_run_is_followed_from_before_its_hub_to_its_end(stage, live):  # noqa: F811
    assert isinstance(live, LiveSource)
    assert live.stoppable
    assert live.snapshot() is None
    stage.hub(ready=False)
    newest(live, lambda s: s.state == "waiting")
    train(stage)
    newest(live, lambda s: s.window == (2, 30))
    stage.finish()
    newest(live, lambda s: s.state == "done")
    assert live.silent_for() == 0.0
    assert not live.stoppable


def test_the_same_object_as_long_as_nothing_new_came(stage, live):  # noqa: F811
    stage.hub(ready=False)
    newest(live, lambda s: True)

    def the_same_after_the_hub_spoke_again():
        seen = live.snapshot()
        until(lambda: live.silent_for() > 0.3, "a pause")
        until(lambda: live.silent_for() < 0.3, "the hub spoke again")
        return live.snapshot() is seen

    until(the_same_after_the_hub_spoke_again, "the state settles")


def test_a_killed_hub_is_silence_and_the_next_one_is_found_again(stage, live):  # noqa: F811
    hub = stage.hub()
    before = newest(live, lambda s: True)
    hub.kill()
    hub.wait()
    until(lambda: live.silent_for() > 1.5, "silence")
    stage.hub()
    assert newest(live, lambda s: s.epoch != before.epoch)
    until(lambda: live.silent_for() < 1.2, "heard again")


def test_when_the_run_ended_and_no_hub_is_there_the_recording_takes_over(stage, live):  # noqa: F811
    hub = stage.hub()
    train(stage)
    live.request_view(ViewRequest(heat=SeriesRequest(("own",), per_column=1, rows=10, columns=60)))
    newest(live, lambda s: s.window == (2, 30) and s.heat)
    hub.kill()
    hub.wait()
    stage.save(ended_at=time.time(), exit_code=1)
    snapshot = newest(live, lambda s: s.state == "failed")
    assert snapshot.window == (2, 30)
    newest(live, lambda s: s.heat)
    assert live.silent_for() == 0.0


def test_closing_ends_what_it_began_with_or_without_a_hub(stage):  # noqa: F811
    before = threading.enumerate()
    for hub in (None, stage.hub):
        if hub is not None:
            hub()
        LiveSource(stage.run).close()
        assert set(threading.enumerate()) <= set(before)


def test_an_ended_run_is_shown_from_its_recording(stage):  # noqa: F811
    stage.hub()
    train(stage)
    stage.finish()
    source = attach(runs.load(stage.run.id))
    assert isinstance(source, RecordedSource)
    assert not source.stoppable
    assert source.silent_for() == 0.0
    assert source.snapshot() is source.snapshot()
    assert source.snapshot().state == "done"
    source.close()


def test_a_run_that_ended_before_it_recorded_anything_says_why(stage):  # noqa: F811
    stage.save(ended_at=time.time(), exit_code=127, error="cannot start torchrun: No such file or directory")
    snapshot = attach(stage.run).snapshot()
    assert snapshot.state == "failed"
    assert snapshot.verdict == "cannot start torchrun: No such file or directory"
