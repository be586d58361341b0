"""Test that expensive work is done seldom, and cheap work every time."""

import time

from ddpmon.hub.cpu_budget import CpuBudget


def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_what_takes_long_waits_so_long_that_its_share_is_kept():
    pace = CpuBudget(0.1)
    assert pace.is_due(100.0)
    with pace.measured(100.0):
        busy(0.02)
    assert not pace.is_due(100.19)
    assert pace.due_at >= 100.2
    assert pace.is_due(pace.due_at)


def test_what_is_wanted_by_a_moment_is_due_then_whatever_it_takes():
    pace = CpuBudget(0.001, most_s=0.9)
    with pace.measured(100.0):
        busy(0.005)
    assert not pace.is_due(100.89)
    assert pace.is_due(100.9)
