"""A host or some ranks are slow again and again, with a rhythm in steps or in seconds: that is one finding."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.slow import Slow
from ddpmon.analysis.kinds.slow_words import GONE, words

KIND: Kind[Slow] = Kind(
    "late_in_bursts",
    subject="host",
    gone=GONE,
    words=words,
    family="late",
    by_cost=True,
    slows="bursts of {host}",
)
