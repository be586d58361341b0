"""Keeps a person's choice of a quantity over time, and of its form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import LOGGED, QUANTITIES, SAMPLE_SERIES, STEP_SERIES, Quantity, Snapshot
from ddpmon.messages.quantities import LOG, NUMBER, STEP
from ddpmon.tui.lines import plain

SMOOTHINGS = (0.0, 0.6, 0.9)
"""Weights of the exponential moving average: none, TensorBoard's default, and a strong one."""
_CHARTED = frozenset((*STEP_SERIES, *SAMPLE_SERIES))


def quantity(name: str) -> Quantity:
    """One of a snapshot's `quantities`. A value that a script logs has no unit, and no end of it is worse."""
    if name in _CHARTED:
        return QUANTITIES[name]
    logged = plain(name.removeprefix(LOGGED))
    title = f"{logged} (logged)" if logged in _CHARTED else logged
    return Quantity(name, NUMBER, title, "", LOG, worse="", chart=title)


def measured_each(shown: Quantity) -> str:
    """Return what a point of it comes from: a "step", a "second", or each "value" that is logged."""
    return {STEP: "step", LOG: "value"}.get(shown.where, "second")


@dataclass(frozen=True)
class Offered:
    """Entries of a list from which a person chooses one."""

    heading: str
    entries: list[tuple[str, str]]
    """(value, name)."""
    current: str
    """The value that is shown now."""
    take: Callable[[str], None]
    """Show another value."""


@dataclass
class ChartChoice:
    """ChartChoice of a chart: the same on World and where the chart fills the screen."""

    name: str = "loss"
    log: bool = False
    smoothing: float = SMOOTHINGS[0]

    def names(self, snapshot: Snapshot | None) -> list[str]:
        """Return the quantities that the run has."""
        return list(snapshot.quantities) if snapshot is not None and snapshot.quantities else ["loss", "own"]

    def next_name(self, snapshot: Snapshot | None) -> None:
        """Go to the next quantity that the run has."""
        names = self.names(snapshot)
        self.name = names[(names.index(self.name) + 1) % len(names)] if self.name in names else names[0]

    def offered(self, snapshot: Snapshot | None, take: Callable[[str], None]) -> Offered:
        """Return what can be charted. take: as of `Offered`."""
        entries = [(name, quantity(name).chart) for name in self.names(snapshot)]
        return Offered("chart", entries, self.name, take)

    def next_smoothing(self) -> None:
        """A moving average over none, some or many points."""
        self.smoothing = SMOOTHINGS[(SMOOTHINGS.index(self.smoothing) + 1) % len(SMOOTHINGS)]
