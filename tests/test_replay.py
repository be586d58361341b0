"""A replay is a source with a cursor: keys move it, and the snapshot follows."""

from threading import Event
from types import SimpleNamespace

import pytest

from ddpmon.errors import RecordingError
from ddpmon.recording.player import Player
from ddpmon.recording.recording import recording_path
from ddpmon.recording.steps import RecordedSteps
from ddpmon.source import attach, replay
from ddpmon.source.replay import ReplaySource
from tests.conftest import wait_for
from tests.recordings import BEGAN, UNUSABLE, execute, record, story


@pytest.fixture
def source(home):
    own = story(1800, 2, late=1, begin=300, end=600)
    made = ReplaySource(record(own, events=[(4.0, "connected"), (15.0, "late"), (30.0, "well again")]))
    made.toggle()
    yield made
    made.close()


def shown(source, condition):
    return wait_for(lambda: (s := source.snapshot()) is not None and condition(s) and s)


class Paced(ReplaySource):
    """A replay whose clock is in the hands of the test: how fast this machine is does not matter."""

    now_s = 0.0

    def pass_s(self, seconds):
        with self._turn:
            Paced.now_s += seconds
            self._turn.notify()  # a clock that stands looks like a pause, which is waited for the end of


def test_it_begins_just_before_the_first_step_and_plays_to_the_end(home, monkeypatch):
    monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=lambda: Paced.now_s))
    source = Paced(record(story(900, 2, late=1, begin=300, end=600)), speed=1024.0)
    assert not source.stoppable
    assert shown(source, lambda s: True).step == 0
    source.pass_s(replay.LEAD_S / 1024)
    assert shown(source, lambda s: s.step > 0).step <= 2
    source.pass_s(0.01)
    assert 100 < shown(source, lambda s: s.step > 2).step < 900
    gate, at = Event(), source._player.snapshot_at
    source._player.snapshot_at = lambda *where: gate.wait() and at(*where)
    source.pass_s(1.0)
    assert not source.cursor.paused  # what is shown is still of before the end
    gate.set()
    assert shown(source, lambda s: s.state == "done").step == 900
    assert source.cursor.paused
    assert source.cursor.at_s == source.cursor.length_s
    source.toggle()
    assert shown(source, lambda s: s.state != "done").step == 0
    source.close()


def test_keys_go_by_events_steps_and_pieces_and_while_it_is_paused_nothing_else_moves(source):
    source.jump(1)
    late = shown(source, lambda s: s.at == BEGAN + 15)
    assert late.events[-1].text == "late"
    assert source.cursor.paused
    assert source.cursor.at_s == pytest.approx(15)
    assert source.snapshot() is late
    source.jump(1)
    assert shown(source, lambda s: s.at == BEGAN + 30).events[-1].text == "well again"
    source.jump(-1)
    shown(source, lambda s: s.at == BEGAN + 15)
    source.step(1)
    shown(source, lambda s: s.step == late.step + 1)
    source.step(-1)
    shown(source, lambda s: s.step == late.step)
    at = source.cursor.at_s
    source.skip(1)
    wait_for(lambda: source.cursor.at_s == pytest.approx(at + source.cursor.length_s / 60, abs=0.01))
    source.skip(-1)
    wait_for(lambda: source.cursor.at_s == pytest.approx(at, abs=0.01))
    for _ in range(99):
        source.skip(-1)
    wait_for(lambda: source.cursor.at_s == 0)
    shown(source, lambda s: s.step == 0)


def test_the_speed_has_bounds(source):
    for by, bound in ((1, 1024), (-1, 0.125)):
        for _ in range(30):
            source.faster(by)
        assert source.cursor.speed == bound


@pytest.mark.parametrize(("step", "lead_s"), [(400, replay.LEAD_S), (1, -20.0)])
def test_a_disk_that_fails_in_the_middle_is_a_sentence_on_the_screen(home, monkeypatch, step, lead_s):
    """Also where it is met before anything was shown: the machine was so busy that the first frame came late."""
    monkeypatch.setattr(replay, "LEAD_S", lead_s)
    run = record(story(900, 2, late=1, begin=300, end=600))
    read = RecordedSteps.steps

    def fail(recorded, process, begin, **limits):
        if begin >= step:
            raise RecordingError("telemetry.db cannot be read: the disk is gone")
        return read(recorded, process, begin, **limits)

    player = Player(run)
    monkeypatch.setattr(RecordedSteps, "steps", fail)
    monkeypatch.setattr("ddpmon.recording.player.Player", lambda _: player)
    source = ReplaySource(run)
    source.toggle()
    told = shown(source, lambda s: True)
    while told.step < step and told.severity != "critical":
        source.skip(1)
        told = shown(source, lambda s, before=told.version: s.version != before)
    assert "cannot be read" in told.verdict
    assert "\n" not in told.verdict
    source.toggle()
    source.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        *UNUSABLE.values(),
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: execute(path, "DELETE FROM step_blocks"), "nothing to replay"),
        (lambda path: execute(path, "DELETE FROM processes"), "nothing to replay"),
        (lambda path: execute(path, "UPDATE step_blocks SET rows = 'later'"), "nothing to replay"),
    ],
    ids=[*UNUSABLE, "gone", "no steps", "no ranks", "no block"],
)
def test_what_cannot_be_played_or_shown_is_refused_in_one_line(home, damage, words):
    run = record(story(200, 2, late=1))
    damage(recording_path(run.id))
    for show in (
        [ReplaySource] if words in {"is empty", "does not exist", "nothing to replay"} else [ReplaySource, attach]
    ):
        with pytest.raises(RecordingError) as error:
            show(run)
        assert words in str(error.value)
        assert "\n" not in str(error.value)
