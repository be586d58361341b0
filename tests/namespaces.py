"""Namespaces of their own for a command line, as in another container of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def unshared(kind: str, *options: str) -> list[str]:
    """Return the words before a command line that give it its own namespace; skip the test where none can be made."""
    prefix = ["unshare", *options]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip(f"no {kind} namespace can be made here")
    return prefix


@pytest.fixture
def other_namespace() -> list[str]:
    """Return what to put before a command line for other pids than ours, with a /proc of its own."""
    return unshared("pid", *([] if os.getuid() == 0 else ["-Ur"]), "-pf", "--mount-proc")


@pytest.fixture
def no_names(tmp_path: Path) -> list[str]:
    """Return what to put before a command line so that no host name resolves for it, not even localhost."""
    empty = tmp_path / "empty"
    empty.touch()
    mounts = "".join(f"mount --bind {empty} {file} && " for file in ("/etc/hosts", "/etc/resolv.conf"))
    options = [*([] if os.getuid() == 0 else ["-Ur"]), "-m", "sh", "-c", f'{mounts}exec "$@"', "sh"]
    return unshared("mount", *options)
