"""Try failures a second time that are not the fault of ddpmon.

Two do: gloo itself aborts at exit now and then (bare programs do so too), and what waits for processes, threads and
terminals waits in vain on a machine that is busy just then. At most five in a whole run (`--max-suite-reruns`); the
closing line counts them, and the summary names each.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

WAITED_IN_VAIN = re.compile(r"\bnot within [0-9]|\bnever came\b|\bwas never written\b|\bit never ended\b")
"""Words of a test whose deadline has passed."""
GLOO_ABORTED = re.compile(
    rb"terminate called without an active exception|terminate called after throwing an instance of 'gloo::"
)
"""Message of the C++ runtime for a rank whose gloo threads outlive what they use."""

_BEGAN = pytest.StashKey[float]()
_ABORTED = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A worker tells the others' database of each test in two small packets: TCP held the second back for 40 ms."""
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, condition=partial(is_worth_one, item)))


def is_worth_one(item: pytest.Item, error: BaseException) -> bool:
    """Return whether an error of a test may come from gloo, or from too little time."""
    waited = isinstance(error, subprocess.TimeoutExpired) or WAITED_IN_VAIN.search(str(error)) is not None
    return waited or item.stash.get(_ABORTED, False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGAN] = time.time()
    item.stash[_ABORTED] = False
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report = yield
    if report.failed:
        texts = [report.longreprtext, *(text for _, text in report.sections)]
        item.stash[_ABORTED] |= any(GLOO_ABORTED.search(text.encode()) for text in texts) or any(
            GLOO_ABORTED.search(log.read_bytes()) for log in _logs_since(item, item.stash[_BEGAN])
        )
    return report


def _logs_since(item: pytest.Item, began: float) -> Iterator[Path]:
    """Yield the log files of processes of this test, or of fixtures it is the first to use."""
    homes = Path("/tmp").glob(f"dm-{os.getpid()}-*")  # of this worker, as tests.conftest names them
    folders = [item.config._tmp_path_factory.getbasetemp(), *homes]  # pytest has no other door to it
    for folder in folders:
        for log in folder.rglob("*.log"):
            if log.is_file() and log.stat().st_mtime >= began:
                yield log
