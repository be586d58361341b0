"""What viewers get, and what they cost."""

import os
import signal
import subprocess
import sys

from ddpmon import runs
from ddpmon.messages import Next, encode
from tests.worlds import own_times, records


def test_a_viewer_hears_at_least_every_second_even_when_nothing_happens(stage):
    stage.hub()
    viewer = stage.viewer()
    snapshot = viewer.get()
    quiet = viewer.get(snapshot)
    for _ in range(3):
        quiet = viewer.get(quiet)
    assert quiet.epoch == snapshot.epoch


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


def test_a_new_viewer_and_one_of_an_earlier_hub_are_answered_at_once(stage):
    stage.hub()
    current = stage.viewer().get()
    for request in (Next(), Next(current.version, "another hub")):
        viewer = stage.viewer()
        viewer.socket.send(encode(request))
        assert viewer.socket.poll(900)


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
    while viewer.socket.poll(2000):
        viewer.socket.recv()
        answers += 1
    assert 1 <= answers <= 3  # the socket may hand over what piled up in more than one go
    assert viewer.get(snapshot)


def test_what_is_no_request_is_ignored(stage):
    stage.hub()
    viewer = stage.viewer()
    viewer.socket.send(b"\xff" * 100)
    viewer.socket.send_multipart([b"a", b"b", b"c"])
    assert viewer.get()


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
