"""The last line of every screen: the keys that work now, or what the last one did."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events

from ddpmon.tui import keys
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut
from ddpmon.tui.widgets.pane import Pane

_SCREENS = " screens  "


@dataclass(frozen=True)
class Placed:
    """A key in the bar: its first column, the column after its last, and what stands there."""

    first: int
    end: int
    key: keys.Key
    label: str


def shown(frame: Frame, width: int) -> list[Placed]:
    """The keys that fit, the digits of the screens as one group."""
    placed: list[Placed] = []
    column = 1
    digits = [key for key in keys.available(frame) if key.opens]
    for key in keys.available(frame):
        if key.opens:
            if key is digits[0] and column + len(digits) + len(_SCREENS) <= width:
                for place, digit in enumerate(digits):
                    last = _SCREENS if place == len(digits) - 1 else ""
                    placed.append(Placed(column + place, column + place + 1, digit, last))
                column += len(digits) + len(_SCREENS)
            continue
        text = keys.label(key, frame)
        end = column + len(key.shown) + 1 + len(text)
        if text and end <= width:
            placed.append(Placed(column, end, key, f" {text}  "))
            column = end + 2
    return placed


def keybar(frame: Frame, width: int) -> Line:
    """The key bar's line."""
    if frame.notice:
        return [(" " + cut(frame.notice, width - 1), "info")]
    line: Line = [(" ", "text")]
    for each in shown(frame, width):
        here = each.key.opens == frame.view and bool(each.key.opens)
        line += [(each.key.shown, "key+select" if here else "key"), (each.label, "muted")]
    return line


class KeyBar(Pane):
    """The keys that work now; a click does what the key does."""

    KEEPS_COLOUR = True

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        return [keybar(frame, width)]

    async def on_click(self, event: events.Click) -> None:
        if self.frame.notice:
            return
        for each in shown(self.frame, self.size.width):
            if each.first <= event.x < each.end:
                await self.run_action(each.key.action)
