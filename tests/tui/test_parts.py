"""The parts of the dashboard without the app: the way through time, which run is watched, stopping and starting."""

import asyncio
import dataclasses

import pytest

from ddpmon.errors import UsageError
from ddpmon.messages import VerdictFacts
from ddpmon.runs import Run, boot_id
from ddpmon.source.place import Here
from ddpmon.source.run_list import Listed
from ddpmon.tui.frame import Frame
from ddpmon.tui.launching import Launching
from ddpmon.tui.palette import DARK
from ddpmon.tui.watched import Watched
from ddpmon.tui.widgets import head
from ddpmon.tui.widgets.runlist import RunList
from tests.fake_source import FakeSource
from tests.tui import snapshots


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


def launching(desk, runs, *, place=None, readonly=False):
    watched = Watched(FakeSource(snapshots.slow()), place or Elsewhere())
    watched.playback.take_snapshot()
    pane = RunList(lambda: runs, lambda _: "")
    pane.listed = runs

    async def watch(run):
        desk.said.append(f"watched {run.id}")

    return Launching(desk, watched, pane, watch, readonly=readonly), pane


@pytest.mark.parametrize("key", ["launch", "restart", "rename", "delete", "compare"])
def test_runs_of_another_machine_are_changed_there(key):
    desk = Desk()
    getattr(launching(desk, [listed(run_of(1), "done")], place=Elsewhere("gpubox"))[0], key)()
    assert "ssh -t gpubox ddpmon attach" in desk.said[0]
    assert desk.asked == []


def test_who_it_is_stands_out_of_the_verdict_and_of_an_older_hubs_all_of_it():
    shot = snapshots.replace(snapshots.slow(), verdict="rank 3 is slow: at a:b", verdict_facts=VerdictFacts(["x"], 15))
    assert head.verdict_line(Frame(shot), 80)[:2] == [("rank 3 is slow:", "warn"), (" at a:b", "text")]
    older = snapshots.replace(shot, verdict_facts=None)
    assert head.verdict_line(Frame(older), 80)[0] == ("rank 3 is slow: at a:b", "warn")
