"""Who has no key holds connections to the root's port, and more of them: they are given up before files run out."""

import contextlib
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from ddpmon.hub.connections import Connection
from ddpmon.hub.strangers import CALM_S, Strangers
from tests.hub.conftest import DEADLINE_S
from tests.hub.machines import introduce, machines

__all__ = ["machines"]  # a fixture

FILES = 1536
COME = 2000
HOLD = """
import socket, sys
from ddpmon.runs import open_files
open_files.allow_most()
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) for _ in range(int(sys.argv[2]))]
print(len(held), flush=True)
sys.stdin.read()
"""


def port_of(card):
    return int(card.addresses[0].rpartition(":")[2])


def test_a_hub_to_which_strangers_hold_more_connections_than_it_has_files_lets_everyone_else_in(machines):
    root, node = machines
    hub = root.hub(before=["prlimit", f"--nofile={FILES}:{FILES}"])
    first, _ = root.ranks(0, world="first")
    node.hub()
    second, _ = node.ranks(2, world="first")
    port = port_of(root.meet(first))
    command = [sys.executable, "-c", HOLD, str(port), str(COME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as strangers:
        assert int(strangers.stdout.readline()) == COME
        viewer = root.viewer()
        viewer.get()
        introduce(root, node, first, second)
        viewer.until(lambda s: "4/4 ranks connected" in s.verdict, "the world")
        shot = viewer.until(lambda s: any("proved no key" in event.text for event in s.events), "the strangers")
        assert len([event for event in shot.events if "proved no key" in event.text]) == 1
        strangers.kill()
    assert hub.poll() is None


def test_a_hub_ends_while_strangers_go_on_coming(machines):
    root, _ = machines
    hub = root.hub()
    first, _ = root.ranks(0, world="first")
    port = port_of(root.meet(first))
    some_came, gone = threading.Event(), threading.Event()

    def come():
        with contextlib.suppress(OSError):
            for number in range(1_000_000):
                socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
                if number == COME:
                    some_came.set()
                if gone.is_set():
                    return

    stranger = threading.Thread(target=come)
    stranger.start()
    try:
        assert some_came.wait(DEADLINE_S)
        hub.terminate()
        assert hub.wait(DEADLINE_S) == 0
    finally:
        gone.set()
        stranger.join()


@pytest.fixture
def crowd(monkeypatch):
    """What strangers are closed, where four are too many, and a function that has one come."""
    closed, numbers = [], iter(range(1000))
    monkeypatch.setattr(Connection, "close", lambda connection: closed.append(connection.descriptor))
    strangers = Strangers()
    strangers.most = 3
    receiver = SimpleNamespace(last_message_at={})

    def come(address="10.0.0.9", now=0.0):
        connection = Connection(receiver, next(numbers), 0, 0, address, now)
        return connection, strangers.add(connection)

    return SimpleNamespace(closed=closed, come=come, receiver=receiver, strangers=strangers)


def test_of_too_many_those_of_one_address_are_closed_first_and_of_them_the_oldest(crowd):
    crowd.come("10.0.0.1")
    said = [crowd.come()[1] for _ in range(3)]
    assert crowd.closed == [1, 2]
    assert said[:2] == ["", ""]
    assert said[2] == (
        "4 connections to the port for other nodes proved no key, 3 of them from 10.0.0.9: half are closed (let a "
        "firewall admit the nodes alone)"
    )


def test_who_has_spoken_or_ended_is_no_stranger(crowd):
    spoken, _ = crowd.come()
    ended, _ = crowd.come()
    crowd.receiver.last_message_at[spoken.descriptor] = 1.0
    crowd.strangers.remove(ended)
    for _ in range(3):
        crowd.come()
    assert not crowd.closed
    crowd.come()
    assert spoken.descriptor not in crowd.closed


def test_a_crowd_is_reported_once_and_again_only_after_a_while(crowd):
    said = [crowd.come(now=moment)[1] for moment in (*range(40), *[39 + CALM_S + 1] * 3) for _ in range(3)]
    assert len([text for text in said if text]) == 2
