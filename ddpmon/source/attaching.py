"""Opens the source of a run, whether the run is still running or has ended."""

from __future__ import annotations

import time

from ddpmon import runs
from ddpmon.errors import HubUnreachableError, RecordingError
from ddpmon.messages import Snapshot
from ddpmon.runs import Run
from ddpmon.source.live import LiveSource
from ddpmon.source.protocol import Source
from ddpmon.source.recorded import RecordedSource

FIRST_ANSWER_S = 10.0
"""Longest wait for the first answer of a hub, in seconds, including a hub that is just being restarted."""


def attach(run: Run) -> Source:
    """Return the source of a run's snapshots: the run's hub while the run is running, else the recording.

    Raises:
        HubUnreachableError: The run is running, but its hub cannot be reached from this machine or container.

    """
    if run.state() != "running":
        return RecordedSource(run)
    # Containers may share the folder of sockets. Then this container can reach the hub of a run in another one.
    if (elsewhere := run.elsewhere()) and not (runs.socket_dir(run.id) / "view.sock").exists():
        raise HubUnreachableError(f"{run.name} ({run.id}) {elsewhere}; {run.attaching} shows it there")
    return LiveSource(run)


def snapshot_now(run: Run, answer_s: float = FIRST_ANSWER_S) -> Snapshot | None:
    """Return the run's current snapshot, or None if the hub does not answer or there is no readable recording.

    Args:
        run: The run, which may be running or have ended.
        answer_s: Longest wait for the hub's first answer, in seconds.

    Raises:
        HubUnreachableError: The hub's answer is not a valid snapshot.
        UnsafePathError: Another user could have created the socket, so the answer cannot be trusted.

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
