"""Opens the source of a run, whether it runs or is over."""

from __future__ import annotations

import time

from ddpmon import runs
from ddpmon.errors import HubUnreachableError, RecordingError
from ddpmon.messages import Snapshot
from ddpmon.runs import Run
from ddpmon.source.live import LiveSource
from ddpmon.source.protocol import Source
from ddpmon.source.recorded import RecordedSource

ANSWER_S = 10.0
"""Longest time for a hub's first answer, one that is only being started again included."""


def attach(run: Run) -> Source:
    """Return where to get a run's snapshots: its hub while it runs, else its recording.

    HubUnreachableError if it runs where its hub cannot be reached from here.
    """
    if run.state() != "running":
        return RecordedSource(run)
    # containers may share the folder of sockets
    if (elsewhere := run.elsewhere()) and not (runs.socket_dir(run.id) / "view.sock").exists():
        raise HubUnreachableError(f"{run.name} ({run.id}) {elsewhere}; {run.attaching} shows it there")
    return LiveSource(run)


def snapshot_now(run: Run, answer_s: float = ANSWER_S) -> Snapshot | None:
    """The run's snapshot at this moment; None if its hub does not answer, or it left no recording.

    HubUnreachableError: what the hub answers is no snapshot. UnsafePathError: the answer could be somebody else's.
    """
    try:
        source = attach(run)
    except (HubUnreachableError, RecordingError):
        return None
    try:
        deadline = time.monotonic() + answer_s
        while (snapshot := source.snapshot()) is None and not source.refused and time.monotonic() < deadline:
            time.sleep(0.02)
        if snapshot is None and source.refused:
            raise HubUnreachableError(f"{run.name} ({run.id}): {source.refused}; ddpmon report reads its recording")
        return snapshot
    finally:
        source.close()
