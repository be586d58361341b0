"""doctor says in advance whether this machine allows to attach to running jobs."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from ddpmon import proc
from ddpmon.doctor.check import Level
from ddpmon.doctor.machine import attaching


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="needs no debugger")
def test_without_a_debugger_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    check = attaching({})
    assert (check.level, "install gdb" in check.way_out) == (Level.NOTE, True)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not here")
def test_with_the_permission_it_works_and_without_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(proc, "PTRACE_SCOPE", tmp_path / "scope")
    assert attaching({}).level is Level.OK
    (tmp_path / "scope").write_text("1\n")
    assert attaching({}).level is (Level.OK if os.geteuid() == 0 else Level.NOTE)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "kernel.yama.ptrace_scope=0" in attaching({}).way_out
