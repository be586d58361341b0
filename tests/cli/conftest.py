"""Runs that only exist on disk, for what looks at them."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import time
from collections.abc import Iterator

import pytest

from ddpmon import runs


@pytest.fixture
def made(home):
    """Write a run as its supervisor would have left it."""
    numbers = itertools.count(1)

    def call(**changes) -> runs.Run:
        number = next(numbers)
        run = runs.Run(
            id=f"20260101-00000{number}-{number:04x}",
            name="mnist",
            argv=["torchrun"],
            script="mnist.py",
            script_args=["--lr", "0.1"],
            cwd="/",
            host="here",
            boot_id=runs.boot_id(),
            created_at=time.time() - 100 + number,
            world_size=4,
            ended_at=time.time(),
            exit_code=0,
        )
        run = dataclasses.replace(run, **changes)
        runs.create(run)
        return run

    return call


@pytest.fixture
def living(home) -> Iterator[runs.Process]:
    """A process that lives, to stand for a supervisor."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        found = runs.Process.of(sleeper.pid)
        assert found is not None
        yield found
        sleeper.kill()
