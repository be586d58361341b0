"""Provides the snapshots of a live, recorded or replayed run to viewers, through one interface."""

from ddpmon.source.attaching import attach, snapshot_now
from ddpmon.source.live import LiveSource
from ddpmon.source.protocol import Source, Tape, TapePosition
from ddpmon.source.recorded import RecordedSource

__all__ = [
    "LiveSource",
    "RecordedSource",
    "Source",
    "Tape",
    "TapePosition",
    "attach",
    "snapshot_now",
]
