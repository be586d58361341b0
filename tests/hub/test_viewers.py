"""Test what viewers receive, and what they cost."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest
import zmq

from ddpmon import runs
from ddpmon.hub.viewers import MAX_VIEWERS, Viewers
from ddpmon.messages import Ask, Next, RankView, RunView, SeriesRequest, Snapshot, StackView, ViewRequest, encode
from ddpmon.messages.changes import apply_changes
from tests.hub.conftest import DEADLINE_S
from tests.worlds import own_times, records


def unchanged(version):
    """Return the answer of a hub about a run to which nothing happened."""
    run = RunView(id="20260101-000000-aaaa", name="mnist", world_size=0)
    return Snapshot(epoch="a hub", version=version, at=0.0, run=run, state="running", verdict="")


class Served:
    """The part of a hub that serves viewers, and its viewers, at moments of the test's own."""

    def __init__(self, context):
        self.context = context
        self.socket = context.socket(zmq.ROUTER)
        self.socket.bind("inproc://view")
        self.asked, self.there = [], []

    def start(self, build=unchanged, parts=lambda made, _: made):
        self.viewers = Viewers(self.socket, build, parts, self.asked.append, "a hub")

    def viewer(self):
        self.there.append(self.context.socket(zmq.DEALER))
        self.there[-1].connect("inproc://view")
        return self.there[-1]

    def turn(self, now):
        self.viewers.process_requests(now)
        self.viewers.answer_due(now)


@pytest.fixture
def served():
    context = zmq.Context()
    made = Served(context)
    yield made
    context.destroy(linger=0)


def test_the_version_stays_while_nothing_happens_and_rises_when_something_does(stage):
    stage.hub()
    viewer = stage.viewer()
    first = viewer.get()
    again = viewer.get(first)
    for _ in range(3):
        first, again = again, viewer.get(again)
    assert again.version == first.version
    stage.rank(0).join()
    assert viewer.until(lambda s: s.ranks[0].health == "ok", "the change").version > again.version


def test_a_new_viewer_and_one_of_an_earlier_hub_are_answered_at_once(served):
    served.start()
    viewers = [served.viewer() for _ in range(3)]
    for viewer, request in zip(viewers, (Next(), Next(1, "another hub"), Next(1, "a hub")), strict=True):
        viewer.send(encode(request))
        served.turn(0.0)
    assert [bool(viewer.poll(0)) for viewer in viewers] == [True, True, False], "who has it waits for another one"


def test_more_viewers_than_a_process_may_have_files_by_default_are_served(stage):
    """ZeroMQ ends a process that can take no further connection."""
    hub = stage.hub(before=["prlimit", "--nofile=48:1024"])
    for viewer in [stage.viewer() for _ in range(40)]:
        viewer.get()
    assert hub.poll() is None


def test_requests_pile_up_to_one_answer(stage):
    """While the hub is held up, twenty come in; it answers the viewer, not each of them."""
    hub = stage.hub()
    viewer = stage.viewer()
    snapshot = viewer.get()
    os.kill(hub.pid, signal.SIGSTOP)
    for _ in range(20):
        viewer.ask()
    os.kill(hub.pid, signal.SIGCONT)
    answers = 0
    while viewer.socket.poll(2000 if answers else DEADLINE_S * 1000):
        viewer.socket.recv()
        answers += 1
    assert 1 <= answers <= 3  # the socket may hand over what piled up in more than one go
    assert viewer.get(snapshot)


def test_a_view_request_that_piled_up_with_a_later_request_is_granted_at_once(served):
    """A viewer that hears an answer to an earlier request asks on, before the hub has looked at its new request."""
    served.start()
    viewer = served.viewer()
    view_request = ViewRequest(SeriesRequest(rows=10, columns=40))
    viewer.send(encode(Next(view_request=ViewRequest())))
    served.turn(0.0)
    version = apply_changes(None, viewer.recv()).version
    viewer.send(encode(Next(view_request=view_request)))
    viewer.send(encode(Next(version, "a hub", view_request)))
    served.turn(0.1)
    assert viewer.poll(0)
    viewer.recv()
    viewer.send(encode(Next(version, "a hub", view_request)))  # which it has now
    served.turn(0.2)
    assert not viewer.poll(0)


def test_what_only_a_part_tells_is_sent_though_nothing_else_has_changed(served):
    told = []
    served.start(parts=lambda made, _: msgspec.structs.replace(made, stacks=[StackView(0, why=str(len(told)))]))
    viewer = served.viewer()
    viewer.send(encode(Next(view_request=ViewRequest(stacks=True))))
    viewer.send(encode(Ask([4])))
    served.turn(10.0)
    assert (served.asked, apply_changes(None, viewer.recv(zmq.NOBLOCK)).version) == ([Ask([4])], 1)
    told.append("an answer")
    viewer.send(encode(Next(1, "a hub", ViewRequest(stacks=True))))
    served.turn(10.6)
    assert not viewer.poll(0)  # nothing else has changed
    served.viewers.expect_news()
    served.viewers.answer_due(10.8)
    again = apply_changes(None, viewer.recv(zmq.NOBLOCK))
    assert (again.version, again.stacks[0].why) == (2, "1")


def test_a_viewer_that_asks_on_keeps_its_view_request_however_many_come_and_go(served):
    granted = []
    served.start(
        lambda version: msgspec.structs.replace(unchanged(version), verdict=f"version {version}"),
        lambda made, view_request: granted.append(view_request) or made,
    )
    view_request = ViewRequest(SeriesRequest(rows=10, columns=40))
    for number in range(MAX_VIEWERS + 2):
        granted.clear()
        served.viewers.process_request(b"dashboard", encode(Next(view_request=view_request)), float(number))
        served.viewers.process_request(b"status %d" % number, encode(Next()), float(number))
        served.viewers.answer_due(float(number))
        assert view_request in granted, number


def test_viewers_of_the_same_are_answered_with_one_encoding_and_so_is_one_that_was_away(served):
    made = []

    def build(version):
        ranks = [RankView(rank, steps=version, own_ms=1.0 / version) for rank in range(4)]
        return msgspec.structs.replace(unchanged(version), run=RunView("id", "mnist", 4), ranks=ranks)

    served.start(build, lambda snapshot, view_request: made.append(view_request) or snapshot)
    view_requests = [*[ViewRequest()] * 3, ViewRequest(SeriesRequest(rows=10, columns=40))]
    viewers = [(served.viewer(), view_request) for view_request in view_requests]
    has = dict.fromkeys(range(4))
    for turn in range(1, 6):
        here = [0, 1, 3] if turn == 3 else range(4)
        for number in here:
            socket, view_request = viewers[number]
            version = has[number].version if has[number] else 0
            socket.send(encode(Next(version, "a hub", view_request, base=version)))
        served.turn(float(turn))
        frames = {number: viewers[number][0].recv() for number in here}
        has |= {number: apply_changes(has[number], frame) for number, frame in frames.items()}
        assert all(has[number].ranks[3].steps == turn for number in here)
        assert len(made) == (3 if turn == 4 else 2), "whoever was away has something else, once"
        made.clear()


STOPPED = """
import sys, zmq
from ddpmon.messages import Next, encode
socket = zmq.Context().socket(zmq.DEALER)
socket.connect(sys.argv[1])
for _ in range(1000):
    socket.send(encode(Next()))
print("asked", flush=True)
sys.stdin.read()
"""


def test_a_viewer_that_stopped_costs_the_others_nothing(stage):
    hub = stage.hub()
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPED, runs.view_address(stage.run.id)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert stopped.stdout.readline() == b"asked\n"
        stopped.send_signal(signal.SIGSTOP)
        viewer = stage.viewer()
        snapshot = viewer.get()
        rank = stage.rank(0)
        rank.join()
        told = records(own_times(200, 1), first=1)[0]
        for i in range(0, 200, 20):
            rank.batch(told[i : i + 20])
            snapshot = viewer.get(snapshot)
        rank.acknowledged(10)
        assert rss(hub.pid) < 200e6
    finally:
        os.kill(stopped.pid, signal.SIGKILL)
        stopped.communicate()


def rss(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
