"""A thread's stack is written at its moment by a timer of the kernel; a signal of the script's stays the script's."""

import os
import re
import signal
import threading
import time

import pytest

from ddpmon.messages.signals import SAMPLE_SIGNAL
from ddpmon.probe import stack_timer
from ddpmon.probe.stack_signal import handler_of
from ddpmon.probe.stack_timer import StackTimer


@pytest.fixture(autouse=True)
def disarmed():
    stack_timer.disarm()
    yield
    stack_timer.disarm()
    assert handler_of(SAMPLE_SIGNAL) == 0


def keeps_the_lock():
    re.match(r"(a+)+$", "a" * 18 + "b")


def dump_of(timer, work):
    """Return what a timer has written while this thread works."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        timer.set(0.001)
        work()
        if dump := timer.take():
            return dump
    raise AssertionError("nothing was written")


def test_code_that_keeps_the_lock_is_in_the_stack():
    timer = StackTimer(threading.get_native_id())
    dump = dump_of(timer, keeps_the_lock)
    timer.stop()
    assert b" in match\n" in dump
    assert b" in keeps_the_lock\n" in dump
    assert dump.count(b"Stack (most recent call first)") == 1


def test_a_stopped_timer_writes_nothing_and_another_one_follows():
    first = StackTimer(threading.get_native_id())
    dump_of(first, keeps_the_lock)
    first.set(0.001)
    first.stop()
    stack_timer.disarm()
    assert handler_of(SAMPLE_SIGNAL) == 0
    second = StackTimer(threading.get_native_id())
    assert dump_of(second, keeps_the_lock)
    assert first.take() == b""
    second.stop()


def test_where_the_script_has_the_signal_it_keeps_it_and_gets_none():
    calls = []
    signal.signal(SAMPLE_SIGNAL, lambda *_: calls.append(1))
    try:
        timer = StackTimer(threading.get_native_id())
        timer.set(0.001)
        keeps_the_lock()
        assert timer.take() == b""
        timer.stop()
        os.kill(os.getpid(), SAMPLE_SIGNAL)
        assert calls == [1], "the script's own alone"
    finally:
        signal.signal(SAMPLE_SIGNAL, signal.SIG_DFL)


def test_a_descriptor_that_the_script_closed_is_not_written_to():
    timer = StackTimer(threading.get_native_id())
    dump_of(timer, keeps_the_lock)
    os.close(stack_timer._armed.file.number)
    timer.set(0.001)
    assert timer.take() == b""
    timer.stop()
    again = StackTimer(threading.get_native_id())
    assert dump_of(again, keeps_the_lock)
    again.stop()
