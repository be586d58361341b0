"""What a chart can show over time: how each quantity is called and written, and what a person chose of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import LOGGED, Snapshot
from ddpmon.tui import numbers
from ddpmon.tui.lines import plain

SMOOTHINGS = (0.0, 0.6, 0.9)
"""Weights of the exponential moving average: none, TensorBoard's default, and a strong one."""


@dataclass(frozen=True)
class Quantity:
    """One of a snapshot's `quantities`."""

    title: str
    label: Callable[[float | None], str]
    """A value in at most six characters."""
    worst: str = "high"
    """The end at which the rank to look at stands: "high", "low" or, where nobody knows, ""."""
    time: bool = False
    """A duration: one slow step must not press its chart flat."""
    told_by: str = "step"
    """What tells a value: a "step", a "second", or each "value" that is logged."""


def _percent(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100)


_KNOWN = {
    "loss": Quantity("loss", numbers.loss),
    "step": Quantity("step ms", numbers.ms, time=True),
    "own": Quantity("own ms per step", numbers.ms, time=True),
    "wait": Quantity("wait ms per step", numbers.ms, "low", time=True),
    "transfer": Quantity("transfer ms per step", numbers.ms, time=True),
    "samples": Quantity("samples/s of a rank", numbers.short, "low"),
    "gpu": Quantity("GPU utilization", _percent, "low", told_by="second"),
    "gpu_memory": Quantity("GPU memory, GiB", numbers.gigabytes, told_by="second"),
    "cpu": Quantity("CPU of a rank, 100% a core", _percent, told_by="second"),
    "rss": Quantity("memory of a rank, GiB", numbers.gigabytes, told_by="second"),
}


def quantity(name: str) -> Quantity:
    """How a quantity is called and written."""
    if name in _KNOWN:
        return _KNOWN[name]
    logged = plain(name.removeprefix(LOGGED))
    return Quantity(f"{logged} (logged)" if logged in _KNOWN else logged, numbers.loss, "", told_by="value")


@dataclass
class Choice:
    """What is charted, and how; the same on World and where the chart fills the screen."""

    name: str = "loss"
    log: bool = False
    smoothing: float = SMOOTHINGS[0]

    def next_name(self, snapshot: Snapshot | None, by: int) -> None:
        """Go to the next quantity that the run has (by: 1), or the one before (-1)."""
        names = list(snapshot.quantities) if snapshot is not None and snapshot.quantities else ["loss", "own"]
        self.name = names[(names.index(self.name) + by) % len(names)] if self.name in names else names[0]

    def next_smoothing(self) -> None:
        """None, some, much."""
        self.smoothing = SMOOTHINGS[(SMOOTHINGS.index(self.smoothing) + 1) % len(SMOOTHINGS)]
