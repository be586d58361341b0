"""Which worker runs what, and when: no long module is last, and none keeps the others waiting."""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ONE_BY_ONE = "tests/tui/"
"""Tests that mostly wait for a screen, hundreds of them, and share next to nothing."""


TOGETHER = (("tests/probe/",), ("tests/training/", "tests/test_main_job.py"))
"""Modules whose ranks are forked from a process that has imported torch: each worker that runs some makes its own."""


class Scheduling(LoadScopeScheduling):
    """A worker takes a whole module, so that what its tests share is made once; of the dashboard's, one test."""

    def _split_scope(self, nodeid: str) -> str:
        for prefixes in TOGETHER:
            if nodeid.startswith(prefixes):
                return prefixes[0]
        return nodeid if nodeid.startswith(ONE_BY_ONE) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with real ranks first, then those with other processes, then the rest, the dashboard's last."""
    with_ranks = Counter(item.path for item in items if item.get_closest_marker("e2e"))
    with_processes = {item.path for item in items if "home" in getattr(item, "fixturenames", ())}

    def place(item: pytest.Item) -> tuple[int, bool, bool]:
        return -with_ranks[item.path], item.path not in with_processes, item.nodeid.startswith(ONE_BY_ONE)

    items.sort(key=place)
