"""The lock that proves that a run's supervisor lives."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.runs import lock


def test_it_goes_with_its_holder_however_that_ends(run, holder):
    assert runs.held(run.id)
    holder.kill()
    holder.wait()
    assert not runs.held(run.id)


def test_one_process_alone_has_it(run, holder, monkeypatch):
    monkeypatch.setattr(lock, "TRIES_S", 0.05)
    with pytest.raises(DdpmonError, match="already has a supervisor process"):
        runs.hold(run.id)
    holder.kill()
    holder.wait()
    os.close(runs.hold(run.id))


def test_nobody_ever_took_it_is_not_the_same_as_nobody_has_it(run):
    assert lock.lock_held(run.id) is None
    os.close(runs.hold(run.id))
    assert lock.lock_held(run.id) is False
    assert stat.S_IMODE((runs.run_dir(run.id) / "supervisor.lock").stat().st_mode) == 0o600


def test_it_is_seen_from_another_pid_namespace(run, holder, other_namespace):
    program = "import sys; from ddpmon import runs; print(runs.held(sys.argv[1]))"
    look = [*other_namespace, sys.executable, "-c", program, run.id]
    assert subprocess.check_output(look, text=True) == "True\n"
    holder.kill()
    holder.wait()
    assert subprocess.check_output(look, text=True) == "False\n"
