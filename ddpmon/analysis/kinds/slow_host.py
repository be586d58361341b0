"""All ranks of a host are slow together: it is the machine, and one finding."""

from __future__ import annotations

from ddpmon.analysis.kinds.kind import Kind
from ddpmon.analysis.kinds.slow import Slow
from ddpmon.analysis.kinds.slow_words import GONE, words

KIND: Kind[Slow] = Kind(
    "slow_host",
    subject="host",
    gone=GONE,
    words=words,
    family="late",
    by_cost=True,
    changes_level=True,
    slows="{host}'s {phase}",
    quantities=(
        *("starved", "major_faults", "read", "written", "io_wait", "sent", "received"),
        *("gpu_clock", "gpu_temperature", "gpu_power"),
    ),
    is_one_of_several=lambda _: True,
)
