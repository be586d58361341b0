"""Provides a run's snapshots to viewers through one interface: of a live, recorded, replayed or made-up run."""

from ddpmon.source.attaching import attach, snapshot_now
from ddpmon.source.fake import FakeSource
from ddpmon.source.live import LiveSource
from ddpmon.source.protocol import LocalSource, Source, Tape, TapePosition
from ddpmon.source.recorded import RecordedSource

__all__ = [
    "FakeSource",
    "LiveSource",
    "LocalSource",
    "RecordedSource",
    "Source",
    "Tape",
    "TapePosition",
    "attach",
    "snapshot_now",
]
