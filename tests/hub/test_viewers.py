"""Test what viewers receive, and what they cost."""

import os
import signal
import subprocess
import sys

import msgspec
import zmq

from ddpmon import runs
from ddpmon.hub.viewers import MOST, Viewers
from ddpmon.messages import Next, RankView, RunView, SeriesRequest, Snapshot, ViewRequest, encode
from ddpmon.messages.changes import apply_changes
from tests.hub.conftest import DEADLINE_S
from tests.worlds import own_times, records


def unchanged(version):
    """Return the answer of a hub about a run to which nothing happened."""
    run = RunView(id="20260101-000000-aaaa", name="mnist", world_size=0)
    return Snapshot(epoch="a hub", version=version, at=0.0, run=run, state="running", verdict="")


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


def test_a_new_viewer_and_one_of_an_earlier_hub_are_answered_at_once():
    context = zmq.Context()
    try:
        hub = context.socket(zmq.ROUTER)
        hub.bind("inproc://view")
        served = Viewers(hub, unchanged, lambda made, view_request: made, lambda ranks: None, "a hub")
        viewers = [context.socket(zmq.DEALER) for _ in range(3)]
        for viewer, request in zip(viewers, (Next(), Next(1, "another hub"), Next(1, "a hub")), strict=True):
            viewer.connect("inproc://view")
            viewer.send(encode(request))
            served.process_requests(0.0)
            served.answer_due(0.0)
        assert [bool(viewer.poll(0)) for viewer in viewers] == [True, True, False], "who has it waits for another one"
    finally:
        context.destroy(linger=0)


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


def test_a_view_request_that_piled_up_with_a_later_request_is_granted_at_once():
    """A viewer that hears an answer to an earlier request asks on, before the hub has looked at its new request."""
    context = zmq.Context()
    hub, viewer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    try:
        hub.bind("inproc://view")
        viewer.connect("inproc://view")
        served = Viewers(hub, unchanged, lambda made, view_request: made, lambda ranks: None, "a hub")
        view_request = ViewRequest(SeriesRequest(rows=10, columns=40))
        viewer.send(encode(Next(view_request=ViewRequest())))
        served.process_requests(0.0)
        served.answer_due(0.0)
        version = apply_changes(None, viewer.recv()).version
        viewer.send(encode(Next(view_request=view_request)))
        viewer.send(encode(Next(version, "a hub", view_request)))
        served.process_requests(0.1)
        served.answer_due(0.1)
        assert viewer.poll(0)
        viewer.recv()
        viewer.send(encode(Next(version, "a hub", view_request)))  # which it has now
        served.process_requests(0.2)
        served.answer_due(0.2)
        assert not viewer.poll(0)
    finally:
        context.destroy(linger=0)


def test_a_viewer_that_asks_on_keeps_its_view_request_however_many_come_and_go():
    context = zmq.Context()
    build = lambda version: msgspec.structs.replace(unchanged(version), verdict=f"version {version}")
    granted = []
    try:
        hub = context.socket(zmq.ROUTER)
        served = Viewers(
            hub, build, lambda made, view_request: granted.append(view_request) or made, lambda ranks: None, "a hub"
        )
        view_request = ViewRequest(SeriesRequest(rows=10, columns=40))
        for number in range(MOST + 2):
            granted.clear()
            served.process_request(b"dashboard", encode(Next(view_request=view_request)), float(number))
            served.process_request(b"status %d" % number, encode(Next()), float(number))
            served.answer_due(float(number))
            assert view_request in granted, number
    finally:
        context.destroy(linger=0)


def test_viewers_of_the_same_are_answered_with_one_encoding_and_so_is_one_that_was_away():
    context = zmq.Context()
    hub, made = context.socket(zmq.ROUTER), []
    run = RunView(id="20260101-000000-aaaa", name="mnist", world_size=4)

    def build(version):
        ranks = [RankView(rank, steps=version, own_ms=1.0 / version) for rank in range(4)]
        return Snapshot("a hub", version, float(version), run, "running", "fine", ranks=ranks)

    def with_parts(snapshot, view_request):
        made.append(view_request)
        return snapshot

    try:
        hub.bind("inproc://view")
        served = Viewers(hub, build, with_parts, lambda ranks: None, "a hub")
        view_requests = [ViewRequest(), ViewRequest(), ViewRequest(), ViewRequest(SeriesRequest(rows=10, columns=40))]
        viewers = [(context.socket(zmq.DEALER), view_request) for view_request in view_requests]
        for socket, _ in viewers:
            socket.connect("inproc://view")
        has = dict.fromkeys(range(4))
        for turn in range(1, 6):
            here = [0, 1, 3] if turn == 3 else range(4)
            for number in here:
                socket, view_request = viewers[number]
                before = has[number]
                socket.send(
                    encode(
                        Next(
                            before.version if before else 0, "a hub", view_request, base=before.version if before else 0
                        )
                    )
                )
            served.process_requests(float(turn))
            served.answer_due(float(turn))
            frames = {number: viewers[number][0].recv() for number in here}
            has |= {number: apply_changes(has[number], frame) for number, frame in frames.items()}
            assert all(has[number].ranks[3].steps == turn for number in here)
            assert len(made) == (3 if turn == 4 else 2), "whoever was away has something else, once"
            made.clear()
    finally:
        context.destroy(linger=0)


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
