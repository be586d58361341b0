"""A snapshot that cannot be is refused where it enters, and said so; no viewer has to guard against it."""

from __future__ import annotations

import math
import subprocess
import threading

import pytest
import zmq
from msgspec.structs import replace

from ddpmon import runs
from ddpmon.errors import HubUnreachableError
from ddpmon.export.headless import Lines
from ddpmon.hub.changes import Sent
from ddpmon.messages import (
    RunView,
    Series,
    Snapshot,
    Stack,
    ViewRequest,
    WireError,
    decode_snapshot,
    encode,
    validated_snapshot,
)
from ddpmon.source import LiveSource, snapshot_now
from tests.conftest import wait_for
from tests.tui import odd, through_time
from tests.tui.driving import drive
from tests.tui.through_time import whole

PACE_S = 0.1
STACK = Stack(0, 1, 0, 0, 0, 99, [])


def part(name, **changes):
    return lambda shot: replace(shot, **{name: replace(getattr(shot, name), **changes)})


def shortened(inspect):
    """Return the course of a rank with fewer cells of its peers."""
    courses = [replace(course, peers=course.peers[1:]) for course in inspect.history.courses]
    return replace(inspect, history=replace(inspect.history, courses=courses))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda shot: replace(shot, at=math.nan), "at `$.at`"),
        (lambda shot: replace(shot, step=-1), "at `$.step`"),
        (lambda shot: replace(shot, records_lost=1 << 63), "at `$.records_lost`"),
        (lambda shot: replace(shot, verdict="x" * 100_000), "at `$.verdict`"),
        (lambda shot: replace(shot, verdict="\ud800"), "surrogates"),
        (lambda shot: replace(shot, step=1 << 70), "serialize ints"),
        (part("run", world_size=1 << 31), "at `$.run.world_size`"),
        (part("run", world_size=65_536), "ranks of 65536 out of range: 8"),
        (part("run", started_at=math.inf), "at `$.run.started_at`"),
        (lambda shot: replace(shot, ranks=shot.ranks[::-1]), "rank 7 in the place of rank 0"),
        (lambda shot: replace(shot, ranks=[shot.ranks[0]] * 8), "rank 0 in the place of rank 1"),
        (lambda shot: replace(shot, ranks=[replace(r, stack=STACK) for r in shot.ranks]), "at `$.ranks"),
        (lambda shot: replace(shot, loss_series=Series([1.0], [1.0], [], [1.0])), "points of a series"),
        (part("series", worst=[]), "a quantity over time"),
        (part("series", merged=0), "steps in a point"),
        (part("heat", cells=b""), "cells of a heat map"),
        (part("heat", columns=1 << 40), "a heat map"),
        (part("timeline", ranks=0), "ranks of the last steps"),
        (part("strips", columns=3), "lengths of courses"),
        (part("samples", per_column=0), "columns of courses"),
        (lambda shot: replace(shot, inspect=shortened(shot.inspect)), "lengths of courses"),
    ],
)
def test_what_cannot_be_is_refused_and_named(change, said):
    shot = whole()
    assert validated_snapshot(shot) == shot
    with pytest.raises(WireError, match=said.replace("$", r"\$").replace(".", r"\.")):
        validated_snapshot(change(shot))


def test_measured_quantities_may_be_any_number():
    shot = replace(odd.not_finite(), verdict_since=None, events=[])
    assert repr(decode_snapshot(encode(shot))) == repr(shot)


class Stranger:
    """Answers viewers with whatever snapshot it is told to, always whole, as a hub answers one that has none."""

    def __init__(self, run_id: str) -> None:
        runs.make_socket_dir(run_id)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(runs.view_address(run_id))
        self._answer = b""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def answer(self, shot: Snapshot) -> None:
        _, self._answer = Sent().answer(shot, ViewRequest(), 0)

    def _serve(self) -> None:
        while not self._over.wait(PACE_S):
            while self._socket.poll(0):
                self._socket.send_multipart([self._socket.recv_multipart()[0], self._answer])

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._context.destroy(0)


@pytest.fixture
def stranger(home):
    with subprocess.Popen(["sleep", "600"]) as supervisor:
        run = runs.Run("20260101-000000-aaaa", "mnist", ["true"], "x.py", [], "/", "", runs.boot_id(), 1e9, 4,
                       supervisor=runs.Process.of(supervisor.pid))  # fmt: skip
        runs.create(run)
        speaks = Stranger(run.id)
        yield run, speaks
        speaks.close()
        supervisor.kill()


def test_a_hub_that_sends_what_cannot_be_is_told_on_the_screen_until_it_sends_what_can(stranger):
    run, speaks = stranger
    good = replace(whole(), version=1)
    speaks.answer(good)
    source = LiveSource(run)
    try:
        wait_for(source.snapshot)
        speaks.answer(replace(good, version=2, step=-1))
        wait_for(lambda: source.refused)
        assert source.snapshot() == good
        _, shown = drive(source)
        assert "STALE" in shown
        assert "the hub sent an invalid value: Expected `int` >= 0 - at `$.step`" in shown
        speaks.answer(replace(good, version=3))
        wait_for(lambda: not source.refused)
        assert source.snapshot().version == 3
    finally:
        source.close()


def test_commands_say_it_in_one_line(stranger):
    run, speaks = stranger
    speaks.answer(Snapshot("e", 1, math.nan, RunView("r", "n", 0), "running", ""))
    with pytest.raises(HubUnreachableError, match=r"the hub sent an invalid value: .* at `\$\.at`") as told:
        snapshot_now(run)
    assert "\n" not in str(told.value)
    (line,) = Lines(5.0).of(None, 0.0, 1.0, "the hub sent an invalid value: \x1b[2J")
    assert line.endswith("stale    the hub sent an invalid value: ")
    assert not Lines(5.0).of(None, 0.0, 1.0)


def test_a_world_of_nobody_and_one_of_a_thousand_are_whole():
    nobody = replace(through_time.slow(ranks=4, late=1).plain, ranks=[], run=RunView("r", "n", 0))
    assert validated_snapshot(nobody) == nobody
    assert validated_snapshot(odd.many()) == odd.many()
