"""A pane that says how much room it needs, so that it can share a screen with others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from ddpmon.tui.blocks import Block, Box
from ddpmon.tui.frame import Frame
from ddpmon.tui.widgets.pane import Pane


def nobody() -> int | None:
    """No rank is under a cursor."""
    return None


def none_in_sight() -> list[int | None]:
    """No ranks are listed."""
    return []


class BlockPane(Pane):
    """A block of a screen."""

    chosen_rank: Callable[[], int | None] = staticmethod(nobody)
    """The rank under the cursor of the screen."""

    in_sight: Callable[[], list[int | None]] = staticmethod(none_in_sight)
    """The rank on each line of the screen's first block below its title; None: the line is of no rank."""
    first: Pane | None = None
    """The first block of its screen; None: it is that itself."""
    box: Box | None = None
    """Its place, known before Textual has laid it out; None: it is not on a screen of blocks."""
    followed = False
    """It is the first block, and some stand below or beside it."""
    beside = False
    """It stands beside the first block, and not below."""

    @abstractmethod
    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        """Return the size that it needs on a screen of that size; None: there is nothing to show."""

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines that it has, or is about to have."""
        return self.size if self.box is None else (self.box.width, self.box.height)
