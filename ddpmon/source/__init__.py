"""Where viewers get a run from: live, recorded, replayed or made up, all through one interface."""

from ddpmon.source.attaching import attach, snapshot_now
from ddpmon.source.fake import FakeSource
from ddpmon.source.live import LiveSource
from ddpmon.source.protocol import Cursor, LocalSource, Source, Tape
from ddpmon.source.recorded import RecordedSource

__all__ = [
    "Cursor",
    "FakeSource",
    "LiveSource",
    "LocalSource",
    "RecordedSource",
    "Source",
    "Tape",
    "attach",
    "snapshot_now",
]
