"""A pid namespace of its own for a command line, with its own /proc: as in another container of this machine."""

from __future__ import annotations

import os
import subprocess

import pytest


@pytest.fixture
def other_namespace() -> list[str]:
    """What to put before a command line."""
    prefix = ["unshare", *([] if os.getuid() == 0 else ["-Ur"]), "-pf", "--mount-proc"]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("no pid namespace can be made here")
    return prefix
