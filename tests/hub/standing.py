"""Runs whose real ranks stand still when they are told to."""

from pathlib import Path

import pytest

from ddpmon import source
from ddpmon.launch import stop
from tests.hub.conftest import until
from tests.ranks import launcher

SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "standing.py"


class Watched:
    """A run of three ranks under a supervisor and a hub, seen as a viewer sees it."""

    def __init__(self, launch, folder):
        self.folder = folder
        self.started = launch(*launcher(3, SCRIPT, str(folder)))
        self.source = source.LiveSource(self.started.run)

    def until(self, condition, what, seconds=180):
        return until(lambda: (shot := self.source.snapshot()) and condition(shot) and shot, what, seconds)

    def stand(self, how):
        """Have a rank that trains stand still (`sleep-1`); the finding's snapshot."""
        self.until(lambda s: s.step >= 19, "steps")
        (self.folder / how).touch()
        return self.until(hangs, how)

    def go_on(self, how):
        """Have it go on; nothing is said of it any more once they train."""
        (self.folder / f"{how}.end").touch()
        self.trains()

    def trains(self):
        before = self.source.snapshot().step
        shot = self.until(lambda s: s.state in {"running", "slow"} and s.step > before + 20, "going on")
        assert not hangs(shot)
        return shot


def hangs(shot):
    return [finding for finding in shot.findings if finding.kind == "hang" and finding.is_lasting]


@pytest.fixture
def watch(launch, home):
    """Start a run, in which ranks may stand still from the very first step on."""
    started = []

    def start(*orders):
        for how in orders:
            (home / how).touch()
        started.append(Watched(launch, home))
        return started[-1]

    yield start
    for watched in started:
        watched.source.close()
        stop.request_stop(watched.started.run, now=True)
        stop.wait_until_gone(watched.started.run, 30)
