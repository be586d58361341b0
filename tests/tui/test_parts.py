"""The parts of the dashboard without the app: the way through time, which run is watched, stopping and starting."""

import asyncio
import dataclasses

import pytest

from ddpmon.errors import DdpmonError, UsageError
from ddpmon.messages import VerdictFacts
from ddpmon.runs import Run, boot_id
from ddpmon.source import FakeSource
from ddpmon.source.place import Here
from ddpmon.source.run_list import Listed
from ddpmon.tui.frame import Frame
from ddpmon.tui.launching import Launching
from ddpmon.tui.palette import DARK
from ddpmon.tui.playback import Playback
from ddpmon.tui.screens.ask import Dialog
from ddpmon.tui.screens.scrolled import Text
from ddpmon.tui.screens.view import View
from ddpmon.tui.showing import NOTICE_FRAMES, Notice
from ddpmon.tui.stopping import Stopping
from ddpmon.tui.watched import Outcome, Watched
from ddpmon.tui.widgets import head
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.runlist import RunList
from tests.tui import snapshots
from tests.tui.tape import replaying


class Desk:
    """A dashboard that notes what it is asked to do, and gives the answer that it was made with."""

    palette = DARK

    def __init__(self, answer=None):
        self.answer = answer
        self.said, self.asked, self.left = [], [], 0

    def say(self, text):
        self.said.append(text)

    def ask(self, dialog, then):
        self.asked.append(dialog)
        if self.answer is not None:
            then(self.answer)

    def in_background(self, work):
        asyncio.run(work)

    def leave(self):
        self.left += 1


class Elsewhere(Here):
    """A place that notes which runs are to stop, and opens made-up ones."""

    def __init__(self, name=""):
        self.name = name
        self.stopped, self.opened = [], []

    def attach(self, run):
        if run.name == "broken":
            raise UsageError("it cannot be read")
        shot = snapshots.slow()
        self.opened.append(FakeSource(snapshots.replace(shot, run=snapshots.replace(shot.run, id=run.id))))
        return self.opened[-1]

    def stop(self, run, now):
        self.stopped.append((run.id, now))


def run_of(number, name="other"):
    return Run(
        id=f"20260909-12000{number}-000{number}", name=name, argv=[], script="train.py", script_args=[], cwd="/",
        host="here", boot_id=boot_id(), created_at=0.0, world_size=4,
    )  # fmt: skip


def listed(run, state="running"):
    return Listed(run, state)


def stopping(desk, *, source=None, place=None, under_cursor=None, readonly=False, owns_run=True):
    watched = Watched(source or FakeSource(snapshots.slow()), place or Elsewhere())
    watched.playback.take_snapshot()
    return Stopping(desk, watched, lambda: under_cursor, readonly=readonly, owns_run=owns_run), watched


def test_a_live_run_is_held_stepped_back_and_let_go_on():
    source = FakeSource(snapshots.slow())
    playback = Playback(source)
    shots = [snapshots.replace(source.current, version=number, at=float(number)) for number in range(5)]
    for source.current in shots:
        playback.take_snapshot()
    playback.skip(-1)
    playback.skip(-1)
    assert (playback.shown, playback.behind_s) == (shots[2], 2.0)
    playback.freeze()
    assert (playback.shown, playback.behind_s) == (shots[4], None)
    assert "no earlier event" in playback.jump(-1)


def test_a_recording_is_moved_and_never_held():
    source = replaying(snapshots.slow())
    playback = Playback(source)
    playback.take_snapshot()
    playback.freeze()
    playback.skip(1)
    assert playback.jump(-1) == ""
    assert playback.held is None
    assert source.tape.cursor.paused
    assert source.tape.asked == [("skip", 1), ("jump", -1)]


def test_a_run_opened_from_here_is_closed_here_and_the_callers_is_not():
    first, place = FakeSource(snapshots.slow()), Elsewhere()
    watched = Watched(first, place)
    watched.playback.take_snapshot()
    assert asyncio.run(watched.open(run_of(1)))
    assert watched.playback.source is place.opened[0]
    assert not watched.is_first
    assert asyncio.run(watched.open(run_of(2)))
    assert place.opened[0].closed
    assert asyncio.run(watched.open(dataclasses.replace(run_of(3), id=first.current.run.id)))
    assert watched.is_first
    assert place.opened[1].closed
    watched.close()
    assert not first.closed


def test_a_run_that_cannot_be_opened_changes_nothing():
    first, place = FakeSource(snapshots.slow()), Elsewhere()
    watched = Watched(first, place)
    assert asyncio.run(watched.open(run_of(1)))
    with pytest.raises(DdpmonError, match="cannot be read"):
        asyncio.run(watched.open(run_of(2, "broken")))
    assert watched.playback.source is place.opened[0]
    assert not place.opened[0].closed


def test_the_watched_run_is_stopped_and_asked_about_a_kill_the_second_time():
    desk = Desk("stop")
    keys, watched = stopping(desk)
    keys.stop()
    desk.answer = "now"
    keys.stop()
    assert watched.playback.source.stops == [False, True]
    assert [dialog.box.heading for dialog in desk.asked] == ["Stop the run?", "Kill now?"]
    assert watched.outcome is Outcome.STOPPING


def test_the_run_under_the_cursor_is_stopped_and_the_outcome_is_not_its():
    desk, place = Desk("stop"), Elsewhere("gpubox")
    keys, watched = stopping(desk, place=place, under_cursor=listed(run_of(7)))
    keys.stop()
    assert place.stopped == [(run_of(7).id, False)]
    assert "Stop other on gpubox?" in desk.asked[0].box.text
    assert desk.said == ["stopping other…  x kills it now"]
    assert watched.outcome is Outcome.DETACHED


@pytest.mark.parametrize(("options", "why"), [
    ({"readonly": True}, "read-only"),
    ({"source": FakeSource(snapshots.done())}, "the run has already ended"),
    ({"under_cursor": listed(run_of(7), "done")}, "the run has already ended"),
])  # fmt: skip
def test_where_nothing_can_be_stopped_nobody_is_asked(options, why):
    desk = Desk("stop")
    keys, _ = stopping(desk, **options)
    assert not keys.can_stop
    keys.stop()
    assert desk.asked == []
    assert why in desk.said[0]


@pytest.mark.parametrize(("options", "asking"), [({}, True), ({"owns_run": False}, False), ({"readonly": True}, False)])
def test_ctrl_c_leaves_where_there_is_nothing_to_ask(options, asking):
    desk = Desk()
    stopping(desk, **options)[0].interrupt(asking=asking)
    assert desk.left == 1
    assert desk.asked == []


def test_ctrl_c_in_a_run_of_ones_own_asks_which():
    desk = Desk("detach")
    keys, watched = stopping(desk)
    keys.interrupt(asking=False)
    assert isinstance(desk.asked[0], Dialog)
    assert desk.left == 1
    assert watched.playback.source.stops == []


def launching(desk, runs, *, place=None, readonly=False):
    watched = Watched(FakeSource(snapshots.slow()), place or Elsewhere())
    watched.playback.take_snapshot()
    pane = RunList(lambda: runs, lambda _: "")
    pane.listed = runs

    async def watch(run):
        desk.said.append(f"watched {run.id}")

    return Launching(desk, watched, pane, watch, readonly=readonly), pane


@pytest.mark.parametrize("key", ["launch", "restart", "rename", "delete"])
def test_a_viewer_that_may_only_look_changes_no_runs(key):
    desk = Desk()
    getattr(launching(desk, [listed(run_of(1), "done")], readonly=True)[0], key)()
    assert desk.said[0].startswith("read-only: cannot")
    assert desk.asked == []


@pytest.mark.parametrize("key", ["launch", "restart", "rename", "delete", "compare"])
def test_runs_of_another_machine_are_changed_there(key):
    desk = Desk()
    getattr(launching(desk, [listed(run_of(1), "done")], place=Elsewhere("gpubox"))[0], key)()
    assert "ssh -t gpubox ddpmon attach" in desk.said[0]
    assert desk.asked == []


def test_a_run_that_runs_is_not_started_again():
    desk = Desk("again")
    launching(desk, [listed(run_of(1))])[0].restart()
    assert desk.said == ["other is running; stop the run with x first, then start it again"]


def test_two_runs_are_marked_and_compared():
    desk = Desk()
    keys, pane = launching(desk, [listed(run_of(1), "done"), listed(run_of(2), "done")])
    keys.compare()
    assert pane.marked == run_of(1).id
    pane.chosen = run_of(2).id
    keys.compare()
    assert len(desk.asked) == 1
    assert pane.marked is None


def test_a_notice_goes_after_a_few_frames_or_when_it_is_taken_back():
    notice = Notice()
    notice.say("copied")
    for _ in range(NOTICE_FRAMES - 1):
        notice.next_frame()
    assert notice.text == "copied"
    notice.next_frame()
    assert notice.text == ""
    notice.say("copied")
    notice.say("")
    assert notice.text == ""


def test_who_it_is_stands_out_of_the_verdict_and_of_an_older_hubs_all_of_it():
    shot = snapshots.replace(snapshots.slow(), verdict="rank 3 is slow: at a:b", verdict_facts=VerdictFacts(["x"], 15))
    assert head.verdict_line(Frame(shot), 80)[:2] == [("rank 3 is slow:", "warn"), (" at a:b", "text")]
    older = snapshots.replace(shot, verdict_facts=None)
    assert head.verdict_line(Frame(older), 80)[0] == ("rank 3 is slow: at a:b", "warn")


@pytest.mark.parametrize(
    ("kind", "given", "lacks"), [(Pane, [], "draw"), (Text, [], "lines"), (View, [print], "panes")]
)
def test_what_draws_nothing_is_no_pane_and_no_screen(kind, given, lacks):
    with pytest.raises(TypeError, match=lacks):
        kind(*given)
