"""Runs: what else runs, and what ran before?"""

from __future__ import annotations

import time
from typing import ClassVar

from textual.binding import BindingType

from ddpmon.place import Place
from ddpmon.tui import keys
from ddpmon.tui.frame import Frame
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.runlist import RunList

_READ_AGAIN_S = 2.0


class Runs(OnePane):
    """All runs of this user on a machine."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("runs")]

    def __init__(self, place: Place) -> None:
        self._place = place
        self.list = RunList(place.verdict, id="runs")
        super().__init__(self.list)
        self._read_at: float | None = None

    @property
    def cursor(self) -> RunList:
        return self.list

    def show(self, frame: Frame, palette: Palette) -> None:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _READ_AGAIN_S or not self.list.listed:
            self._read_at = now
            self.list.listed = self._place.read()
        super().show(frame, palette)

    def read_again(self) -> None:
        """Read the runs' folder at the next frame: something in it was changed from here."""
        self._read_at = None
