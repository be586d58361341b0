"""The user's choice of a quantity to chart, and of the chart's smoothing and scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import LOGGED, QUANTITIES, SAMPLE_SERIES, STEP_SERIES, Quantity, Snapshot
from ddpmon.messages.quantities import LOGGED_PLACE, NUMBER, STEP
from ddpmon.tui.lines import plain_text

SMOOTHINGS = (0.0, 0.6, 0.9)
"""Selectable weights of the exponential moving average: no smoothing, TensorBoard's default, and strong smoothing."""
_CHARTED = frozenset((*STEP_SERIES, *SAMPLE_SERIES))


def quantity_named(name: str) -> Quantity:
    """Return the quantity with this name. An unknown name gives a quantity without a unit, for a value that the script
    logs.
    """
    if name in _CHARTED:
        return QUANTITIES[name]
    logged = plain_text(name.removeprefix(LOGGED))
    title = f"{logged} (logged)" if logged in _CHARTED else logged
    return Quantity(name, NUMBER, title, "", LOGGED_PLACE, worse="", chart=title)


def measured_each(shown: Quantity) -> str:
    """Return what one point of a quantity stands for: a "step", a "second", or a logged "value"."""
    return {STEP: "step", LOGGED_PLACE: "value"}.get(shown.where, "second")


@dataclass(frozen=True)
class Offered:
    """A list from which the user chooses one entry."""

    heading: str
    entries: list[tuple[str, str]]
    """A (value, name) pair for each entry."""
    current: str
    """The value of the current entry."""
    take: Callable[[str], None]
    """Called with the value that the user chose."""


@dataclass
class ChartChoice:
    """The user's choices for a chart, which the World screen and the full-screen chart share."""

    name: str = "loss"
    log: bool = False
    smoothing: float = SMOOTHINGS[0]

    def names(self, snapshot: Snapshot | None) -> list[str]:
        """Return the names of the quantities that the run has."""
        return list(snapshot.quantities) if snapshot is not None and snapshot.quantities else ["loss", "own"]

    def next_name(self, snapshot: Snapshot | None) -> None:
        """Choose the next quantity that the run has."""
        names = self.names(snapshot)
        self.name = names[(names.index(self.name) + 1) % len(names)] if self.name in names else names[0]

    def offered(self, snapshot: Snapshot | None, take: Callable[[str], None]) -> Offered:
        """Return the list of quantities that can be charted. `take` is called with the name of the chosen quantity."""
        entries = [(name, quantity_named(name).chart) for name in self.names(snapshot)]
        return Offered("chart", entries, self.name, take)

    def next_smoothing(self) -> None:
        """Choose the next smoothing: none, weak or strong."""
        self.smoothing = SMOOTHINGS[(SMOOTHINGS.index(self.smoothing) + 1) % len(SMOOTHINGS)]
