"""Who watches for floods: what it takes for one, and what it does where it cannot look."""

import os
import threading
import time
from types import SimpleNamespace

import pytest

from ddpmon.hub.connections import Connection
from ddpmon.hub.floods import Floods
from ddpmon.runs import proc
from tests.hub.conftest import DEADLINE_S


def test_who_watches_for_floods_goes_on_where_memory_cannot_be_read_for_once(monkeypatch):
    read, goes_on = proc.own_memory_bytes, threading.Event()
    readings = iter([read, lambda: os.open("/", os.O_WRONLY)])

    def read_next():
        return next(readings, lambda: goes_on.set() or read())()

    monkeypatch.setattr(proc, "own_memory_bytes", read_next)
    watch = Floods({})
    watch.start()
    try:
        assert goes_on.wait(DEADLINE_S)
    finally:
        watch.finish()


@pytest.mark.parametrize("have_spoken", [True, False])
def test_what_very_many_honest_connections_leave_is_no_flood(monkeypatch, have_spoken):
    now, memory, sought = time.monotonic(), iter([100 << 20, 160 << 20, 160 << 20]), []
    monkeypatch.setattr(proc, "own_memory_bytes", lambda: next(memory))
    monkeypatch.setattr(Floods, "_find_flood", lambda _: sought.append(True))
    watch = Floods({})
    spoke_at = dict.fromkeys(range(100), now) if have_spoken else {}
    receiver = SimpleNamespace(last_message_at=spoke_at, drained_at=now)
    watch._open = {(0, end): Connection(receiver, end, 0, 0, "127.0.0.1", now) for end in range(100)}
    watch._check(now + 2)
    assert bool(sought) is not have_spoken
