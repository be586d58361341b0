"""Choose which worker runs what, and when: no long module is last, and no core waits for ranks.

Modules with real ranks come first, and wait much: four at a time left a core idle for a fifth of the whole run. So the
last of three workers or more begins at the other end, with what only computes, until they meet. Beside it, three that
begin with ranks left a seventh of both cores idle; there are four.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

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

    def schedule(self) -> None:
        """Give every worker at least two tests, or the one that replaces a crashed worker never starts.

        A worker runs a test only when it knows the next one, and asks for more only after it has run one.
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand out again what a crashed worker did not finish, and none of what it did.

        A worker that is given a unit without a test to run reports nothing, and so is never given another.
        """
        work = self.assigned_work[node]
        for scope in [scope for scope, done in work.items() if all(done.values())]:
            del work[scope]
        return super().remove_node(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if len(self.nodes) > 2 and node is self.nodes[-1]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


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
