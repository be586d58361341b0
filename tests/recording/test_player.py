"""A recording plays through the store that a live hub feeds: what was found appears when it appeared."""

import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.errors import RecordingError
from ddpmon.recording import playback
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.steps import RecordedSteps
from tests.recordings import BEGAN, record, story


@pytest.fixture
def player(home):
    """One rank is late from 15 s to 28.5 s."""
    own = story(900, ranks=3, begin=300, end=600)
    made = Player(record(own, events=[(4.0, "connected"), (15.0, "late"), (30.0, "well again")], judged="all"))
    yield made
    made.close()


def kinds(shot):
    return [(finding.kind, *finding.ranks) for finding in shot.findings if finding.until_step is None]


def test_it_tells_the_story_in_its_order(player):
    before, early, late, after = (player.snapshot_at(BEGAN + s) for s in (2.0, 12.0, 20.0, 37.5))
    assert (before.state, before.step, before.loss) == ("waiting", 0, None)
    assert (early.state, kinds(early)) == ("running", [])
    assert (late.state, kinds(late)) == ("slow", [("straggler", 2)])
    assert late.findings[0].since_step == pytest.approx(301, abs=2)
    assert (after.state, kinds(after)) == ("running", [])
    assert early.step < late.step < after.step
    assert early.loss > late.loss > after.loss
    assert [event.text for event in early.events] == ["connected"]
    assert [event.text for event in late.events] == ["connected", "late"]


def test_its_end_is_what_the_recording_shows(player):
    run = player._recording.run
    assert player.snapshot_at(player.end).verdict == recorded_snapshot(run).verdict
    assert player.snapshot_at(player.end + 1e6).state == "done"
    assert player.snapshot_at(player.end - 0.1).state == "running"


def test_a_run_that_was_stopped_is_not_being_stopped_before_that(home):
    player = Player(record(story(60, begin=20, end=40), stopping=True, stopping_at=BEGAN + 5))
    assert player.snapshot_at(BEGAN + 3).run.kill_at is None, "nobody was asked yet: x has nothing to kill"
    player.close()


PLACES = st.lists(st.floats(0.0, 40.0), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A recording, and what playing it from its beginning shows at each second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(tmp_path_factory.mktemp("home")))
        run = record(story(900, ranks=2, late=1, begin=300, end=600), judged="all")
        player = Player(run)
        shown = {seconds: player.snapshot_at(BEGAN + seconds) for seconds in np.arange(1.0, 38.0).tolist()}
        player.close()
        yield lambda: (run, shown)  # hypothesis would print what it is, at length


@settings(max_examples=3, deadline=None)
@given(PLACES)
def test_wherever_it_came_from_a_place_looks_the_same(straight, places):
    run, shown = straight()
    player = Player(run)
    for place in places:
        player.snapshot_at(BEGAN + place)
        seconds = max(1.0, float(round(place)))
        if seconds in shown:
            jumped, played = player.snapshot_at(BEGAN + seconds), shown[seconds]
            assert (jumped.step, jumped.window[1:] if jumped.window else None) == (
                played.step,
                played.window[1:] if played.window else None,
            )
            assert kinds(jumped) == kinds(played)
            assert jumped.state == played.state
            # Steps that were drawn as one with a later one are drawn again only as they come.
            assert jumped.own_series.seconds[-1:] == pytest.approx(played.own_series.seconds[-1:], abs=0.5)
    player.close()


def test_a_jump_reads_a_bounded_part_of_a_long_run(home, monkeypatch):
    """Play two minutes and 7,200 records: the steps between two places are not read."""
    monkeypatch.setattr(playback, "LEAD_RECORDS", 1_400)
    player = Player(record(story(3_600, ranks=2, late=1, begin=3_200, end=3_600)))
    read, steps = [], RecordedSteps.steps
    monkeypatch.setattr(RecordedSteps, "steps", lambda *args, **limits: read.append(steps(*args, **limits)) or read[-1])
    assert player.snapshot_at(player.end - 5.0).step > 3_300
    assert player.snapshot_at(BEGAN + 60).state == "running"
    assert 1_000 < sum(map(len, read)) < 4_800
    player.close()


def test_restarted_ranks_count_their_steps_again(home):
    player = Player(record(story(900, begin=900), restarts=[450]))
    first, second = player.snapshot_at(BEGAN + 15), player.snapshot_at(BEGAN + 30)
    assert first.ranks[0].pid != second.ranks[0].pid
    assert 250 < first.step < 450
    assert 150 < second.step < 450
    assert player.snapshot_at(BEGAN + 15).ranks[0].pid == first.ranks[0].pid
    player.close()


def test_a_rank_that_died_is_well_until_then(home):
    run = record(story(600, begin=600), dead=[1], exit_code=1, ended_at=BEGAN + 40)
    player = Player(run)
    assert player.snapshot_at(BEGAN + 20).ranks[1].health == "ok"
    assert player.snapshot_at(BEGAN + 36).ranks[1].health == "dead"
    player.close()


def test_from_step_to_step_and_back(player):
    at = BEGAN + 12
    shown = player.snapshot_at(at).step
    for by, step in ((1, shown + 1), (1, shown + 2), (-1, shown + 1), (-1, shown)):
        at = player.step_from(at, by)
        assert player.snapshot_at(at).step == step
    assert player.step_from(player.end, 1) == player.end
    assert player.step_from(player.begin, -1) <= player.first_step + 1e-3


def test_from_event_to_event(player):
    assert player.event_from(BEGAN + 10, 1) == BEGAN + 15
    assert player.event_from(BEGAN + 15, 1) == BEGAN + 30
    assert player.event_from(BEGAN + 30, 1) == player.end
    assert player.event_from(BEGAN + 30, -1) == BEGAN + 15
    assert player.event_from(BEGAN + 1, -1) == player.begin


def test_a_recording_without_a_step_is_refused_in_one_line(home):
    with pytest.raises(RecordingError, match="contains no step of told, so there is nothing to replay") as error:
        Player(record(np.zeros((0, 2, 5))))
    assert "\n" not in str(error.value)


def test_a_step_that_cannot_be_read_is_lost_and_the_rest_plays_on(player):
    with sqlite3.connect(player._recording.path) as db:
        db.execute("UPDATE step_blocks SET rows = x'c1' WHERE first_step = 401")
    db.close()
    assert player.snapshot_at(BEGAN + 10).records_lost == 0
    shot = player.snapshot_at(BEGAN + 32)
    assert shot.records_lost == 300
    assert shot.window[1] > 600
