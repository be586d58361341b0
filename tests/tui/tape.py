"""A tape that notes what it is asked for, and a source with it."""

from dataclasses import replace

from ddpmon.source import TapePosition
from tests.fake_source import FakeSource


class FakeTape:
    def __init__(self, **facts):
        self.cursor = TapePosition(**{"at_s": 134.0, "length_s": 632.0, "speed": 4.0} | facts)
        self.asked = []

    def toggle(self):
        self.cursor = replace(self.cursor, paused=not self.cursor.paused)

    def skip(self, by):
        self.asked.append(("skip", by))

    def step(self, by):
        self.asked.append(("step", by))

    def jump(self, by):
        self.asked.append(("jump", by))

    def faster(self, by):
        self.asked.append(("faster", by))


def replaying(snapshot, **facts) -> FakeSource:
    """A source that plays a recording."""
    source = FakeSource(snapshot, stoppable=False)
    source.tape = FakeTape(**facts)
    return source
