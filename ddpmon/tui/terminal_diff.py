"""Sends to the terminal only the cells that changed, and only the parts of styles that differ.

Textual sends a changed part of a row from the left edge of its widget on. It also sends every piece of a row with its
whole style before it and a reset after it, which is most of the bytes of a table with many colours.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.control import Control
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from ddpmon.glyphs import ascii_for
from ddpmon.tui.lines import plain_text

_Codes = tuple[str, str, str]
"""Escape codes of a style: its attributes, its colour and its background."""
_PLAIN: _Codes = ("", "39", "49")


@lru_cache(4096)
def _codes(style: Style, system: ColorSystem) -> _Codes:
    attributes = style.without_color.render("\0", color_system=system).partition("\0")[0]
    colour, behind = style.color, style.bgcolor
    return (
        attributes.removeprefix("\x1b[").removesuffix("m"),
        ";".join(colour.downgrade(system).get_ansi_codes()) if colour else _PLAIN[1],
        ";".join(behind.downgrade(system).get_ansi_codes(foreground=False)) if behind else _PLAIN[2],
    )


class _StripWriter:
    """Writes strips one after another. A strip begins in the style in which the strip before it ended.

    All text for the terminal goes through this class, including that of Textual's own widgets. Its control characters
    are removed.
    """

    def __init__(self, console: Console, *, ascii_only: bool) -> None:
        self._shown = _in_ascii if ascii_only else plain_text
        self._system = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001  Textual uses the same default
        self._now = _PLAIN
        self._written: list[str] = []

    def move(self, x: int, y: int) -> None:
        """Move the terminal's cursor to a cell, where the next strip begins."""
        self._written.append(Control.move_to(x, y).segment.text)

    def write(self, strip: Strip) -> None:
        """Write a strip."""
        for piece, style, _ in strip:
            text = self._shown(piece)
            if style is None or style.link:
                self._to(_PLAIN)
                self._written.append(text if style is None else style.render(text, color_system=self._system))
            elif text:
                self._to(_codes(style, self._system))
                self._written.append(text)

    def _to(self, codes: _Codes) -> None:
        if codes == self._now:
            return
        if codes[0] != self._now[0]:
            sent = ["0", *(new for new, plain in zip(codes, _PLAIN, strict=True) if new != plain)]
        else:
            sent = [new for new, now in zip(codes, self._now, strict=True) if new != now]
        self._written.append(f"\x1b[{';'.join(sent)}m")
        self._now = codes

    def text(self) -> str:
        """Return all text that was written. The text ends in the plain style."""
        self._to(_PLAIN)
        return "".join(self._written)


def _in_ascii(text: str) -> str:
    return ascii_for(plain_text(text))


class _Parts(ChopsUpdate):
    """A screen update that redraws parts of some rows."""

    ascii_only = False

    def render_segments(self, console: Console) -> str:
        writer = _StripWriter(console, ascii_only=self.ascii_only)
        for y, first, end in self.spans:
            at = -1
            for right, (left, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or left >= end or right <= first:
                    continue
                begin = max(left, first)
                if begin != at:
                    writer.move(begin, y)
                at = min(right, end)
                writer.write(strip.crop(begin - left, at - left))
        return writer.text()


class _Whole(LayoutUpdate):
    """A screen update that redraws all rows."""

    ascii_only = False

    def render_segments(self, console: Console) -> str:
        writer = _StripWriter(console, ascii_only=self.ascii_only)
        for y, strips in enumerate(self.strips, self.region.y):
            writer.move(self.region.x, y)
            for strip in strips:
                writer.write(strip)
        return writer.text()


def smaller_update(update: RenderableType | None, *, ascii_only: bool = False) -> RenderableType | None:
    """Return the same screen update in fewer bytes. With `ascii_only`, all other characters are replaced by ASCII
    characters.
    """
    made: _Parts | _Whole
    if type(update) is ChopsUpdate:
        made = _Parts(update.chops, update.spans, update.chop_ends)
    elif type(update) is LayoutUpdate:
        made = _Whole(update.strips, update.region)
    else:
        return update
    made.ascii_only = ascii_only
    return made
