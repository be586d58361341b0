"""The doors of viewers: a live run, a recording, a replay or a made-up one look the same from here."""

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
