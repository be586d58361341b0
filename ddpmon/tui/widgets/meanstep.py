"""The mean step by phase, for all ranks and for the rank under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon import numbers
from ddpmon.messages import PHASES, RankView, Snapshot
from ddpmon.tui.blocks import Block
from ddpmon.tui.curves import safe_mean
from ddpmon.tui.frame import Frame, finite_or_none
from ddpmon.tui.lines import Line, pane_title
from ddpmon.tui.widgets.columns import decimals
from ddpmon.tui.widgets.laststeps import IN_TIME
from ddpmon.tui.widgets.pane import BlockPane

_LEAST_WIDTH, _NUMBERS = 41, 31
"""Least width of the block in columns, and the width of its names and numbers."""
_NOTABLE = 0.05
"""Share of the mean step by which a rank's phase must exceed that of all ranks to be marked."""


def mean_ms(ranks: Sequence[RankView], phase: str) -> float | None:
    """Return the mean over all ranks that measure the phase."""
    values = [value for rank in ranks if (value := finite_or_none(rank.phase_ms(phase))) is not None]
    return safe_mean(values) if values else None


def mean_step(snapshot: Snapshot, chosen: RankView | None, width: int) -> list[Line]:
    """Return a line for each phase in the order of a step, and one for the whole step."""
    digits = decimals(snapshot.ranks)
    steps = [step for rank in snapshot.ranks if (step := finite_or_none(rank.step_ms)) is not None]
    whole = safe_mean(steps) if steps else None
    named = "" if chosen is None else f"rank {chosen.rank}"
    lines: list[Line] = [[(f" {'ms':<11}{'all ranks':>10}{named:>9}", "muted")]]
    room = max(0, width - _NUMBERS - 1)
    for name, glyph, role in IN_TIME:
        usual = mean_ms(snapshot.ranks, name)
        mine = finite_or_none(chosen.phase_ms(name)) if chosen is not None else None
        longer = mine is not None and usual is not None and whole and mine - usual > _NOTABLE * whole
        # A long wait is not the rank's own fault.
        marked = longer and name != "wait"
        bar = round(room * min(1.0, max(0.0, usual / whole))) if usual is not None and whole else 0
        lines.append(
            [
                (f" {glyph} {name:<9}", role), (f"{numbers.aligned_ms(usual, digits):>10}", "text"),
                (f"{'' if chosen is None else numbers.aligned_ms(mine, digits):>9}", "warn" if marked else "text"),
                (" ▲" if marked else "  ", "warn"), (glyph * bar, role),
            ]
        )  # fmt: skip
    mine = finite_or_none(chosen.step_ms) if chosen is not None else None
    total = f" {'a step':<11}{numbers.aligned_ms(whole, digits):>10}"
    return [*lines, [(total + f"{'' if chosen is None else numbers.aligned_ms(mine, digits):>9}", "strong")]]


class MeanStep(BlockPane):
    """The mean step, as a block of a screen."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        measured = frame.snapshot is not None and any(rank.phases_ms for rank in frame.snapshot.ranks)
        lines = len(PHASES) + 4
        return Block(_LEAST_WIDTH, lines, _LEAST_WIDTH + 15, lines) if measured else None

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [pane_title("the mean step ", width)]
        chosen = self.chosen_rank()
        rank = next((each for each in snapshot.ranks if each.rank == chosen), None)
        window = snapshot.window
        steps = "" if window is None else f" of steps {numbers.count(window[0])}–{numbers.count(window[1])}"
        return [pane_title(f"the mean step{steps} ", width), *mean_step(snapshot, rank, width)]
