"""The panes at the edges of every screen: the head at the top, and the keys at the bottom."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events

from ddpmon.tui import keys
from ddpmon.tui.frame import Frame
from ddpmon.tui.head import head
from ddpmon.tui.keymap import Key
from ddpmon.tui.lines import Line, cut_text, fit_line
from ddpmon.tui.widgets.pane import Pane


class Head(Pane):
    """The head of every screen."""

    KEEPS_COLOUR = True

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        lines = head(frame, width, height)
        if frame.is_stale:
            lines[2:] = [[(text, "muted") for text, _ in line] for line in lines[2:]]
        return lines


_SCREENS = " screens  "
_READ_ONLY = "read-only"
_LEAST = 36
"""Least width in columns at which "read-only" is shown. In fewer columns, the keys need the room."""


@dataclass(frozen=True)
class PlacedKey:
    """A key in the bar: its first column, the column after its last, and its label."""

    first: int
    end: int
    key: Key
    label: str


def shown(frame: Frame, width: int) -> list[PlacedKey]:
    """Return the keys that fit, with the digits of the screens as one group."""
    placed: list[PlacedKey] = []
    column = 1
    if stands_read_only(frame, width):
        width -= len(_READ_ONLY) + 3  # two columns before "read-only", one after it
    digits = [key for key in keys.available(frame) if key.opens]
    for key in keys.available(frame):
        if key.opens:
            if key is digits[0] and column + len(digits) + len(_SCREENS) <= width:
                for place, digit in enumerate(digits):
                    last = _SCREENS if place == len(digits) - 1 else ""
                    placed.append(PlacedKey(column + place, column + place + 1, digit, last))
                column += len(digits) + len(_SCREENS)
            continue
        text = keys.label(key, frame)
        end = column + len(key.shown) + 1 + len(text)
        if text and end <= width:
            placed.append(PlacedKey(column, end, key, f" {text}  "))
            column = end + 2
    return placed


def stands_read_only(frame: Frame, width: int) -> bool:
    """Return whether the bar shows "read-only". It does if the run is live, keys cannot stop the run, and the bar is
    wide enough.
    """
    return frame.readonly and not frame.ended and frame.cursor is None and width >= _LEAST


def keybar(frame: Frame, width: int) -> Line:
    """Return the line of the key bar."""
    if frame.notice:
        return [(" " + cut_text(frame.notice, width - 1), "info")]
    line: Line = [(" ", "text")]
    for each in shown(frame, width):
        current = each.key.opens == frame.view
        line += [(each.key.shown, "key+select" if current else "key"), (each.label, "muted")]
    if stands_read_only(frame, width):
        line = [*fit_line(line, width - len(_READ_ONLY) - 1), (_READ_ONLY, "info")]
    return line


class KeyBar(Pane):
    """The bar of keys that work now; a click on a key has the effect of the key."""

    KEEPS_COLOUR = True

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        return [keybar(frame, width)]

    async def on_click(self, event: events.Click) -> None:
        if self.frame.notice:
            return
        for each in shown(self.frame, self.size.width):
            if each.first <= event.x < each.end:
                await self.run_action(each.key.action)
