"""The plan that `scale.py` has its made-up nodes play, and their answers: files between processes."""

from __future__ import annotations

import msgspec

from ddpmon.hub.curve_keys import Keys
from ddpmon.messages import Card


class Plan(msgspec.Struct):
    """The world to play."""

    root: Card
    keys: list[Keys]
    """Keys of each node's hub; the first are those of node 1."""
    first: int
    """First of the nodes that this process plays, counted from 0."""
    nodes: int
    """That it plays."""
    per_node: int
    world_size: int
    steps_per_s: float
    seconds: float
    late_rank: int | None = None
    late_after_s: float = 0.0
    cut_node: int | None = None
    """Its link is cut from `cut_s[0]` to `cut_s[1]`."""
    cut_s: tuple[float, float] = (0.0, 0.0)
    lossy_every: int = 0
    """Every n-th node loses one bundle in ten; 0: none does."""
    restart_after_s: float | None = None
    said: str = ""
    """Path of the file for the answer."""


class Said(msgspec.Struct):
    """The steps that a process played, to compare with the root's account of them."""

    records: list[int] = msgspec.field(default_factory=list)
    """Steps of each of its ranks in the last attempt."""
    own_us: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The least and the largest own time of each of its ranks in the last attempt, from the second step on."""
    sent_bytes: int = 0
    bundles: int = 0
    late_since: int | None = None
    """The first step in which the late rank is late."""
    step_us: list[int] = msgspec.field(default_factory=list)
    """The length of each step of the last attempt."""
    mended_us: list[int] = msgspec.field(default_factory=list)
    """The same, had the late rank not been late."""
    ends_us: list[int] = msgspec.field(default_factory=list)
    """End of each step, CLOCK_MONOTONIC of this machine."""
    behind_s: float = 0.0
    """Longest delay of this process: where it is long, its measurements of the root are worthless."""
    left_over: int = 0
    """Nodes of which the root had not recorded all at the end."""
