"""Every colour of the dashboard, by role: dark, light, the terminal's own sixteen, and none.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; no two states differ by red and
green. A colour is never alone: what is wrong is also bold and carries a glyph, so NO_COLOR and sixteen colours
lose nothing.
"""

from __future__ import annotations

from functools import cached_property

from rich.style import Style
from textual.theme import Theme

_DARK = {
    "text": "#d5dbe4",
    "strong": "bold #ffffff",
    "muted": "#8a93a3",
    "title": "#aab3c0",
    "rule": "#465062",
    "ok": "#4fb99f",
    "warn": "bold #e69f00",
    "bad": "bold #e8743b",
    "info": "#56b4e9",
    "comm": "#7aa6d8",
    "data": "#cc79a7",
    "compute": "#c3cad5",
    "wait": "#9aa3b2",
    "key": "bold #ffffff",
    "band": "on #263242",
    "select": "on #2d4258",
}
_LIGHT = {
    "text": "#20262e",
    "strong": "bold #000000",
    "muted": "#5f6875",
    "title": "#4a535f",
    "rule": "#b4bcc6",
    "ok": "#00674f",
    "warn": "bold #8a5a00",
    "bad": "bold #a53a00",
    "info": "#00609a",
    "comm": "#2f5f9e",
    "data": "#8c3f6b",
    "compute": "#3a434e",
    "wait": "#6a7380",
    "key": "bold #000000",
    "band": "on #dbe5ee",
    "select": "on #c5daee",
}
# The terminal's own foreground wherever a colour says nothing: its bright black is invisible in some schemes.
_ANSI = {
    "text": "",
    "strong": "bold",
    "muted": "",
    "title": "",
    "rule": "",
    "ok": "",
    "warn": "bold yellow",
    "bad": "bold red",
    "info": "cyan",
    "comm": "blue",
    "data": "magenta",
    "compute": "",
    "wait": "",
    "key": "bold",
    "band": "",
    "select": "reverse",
}
_NONE = {name: " ".join(word for word in style.split() if word in {"bold", "reverse"}) for name, style in _ANSI.items()}

ROLES = tuple(_DARK)

ANSI_THEME = "ansi-dark"
"""Textual's own theme of a terminal's sixteen colours and its own background, which fits light ones as well."""

THEMES = (
    Theme(
        name="ddpmon-dark", primary="#56b4e9", warning="#e69f00", error="#e8743b", success="#4fb99f",
        foreground="#d5dbe4", background="#101419", surface="#101419", panel="#19202a", dark=True,
    ),
    Theme(
        name="ddpmon-light", primary="#00609a", warning="#8a5a00", error="#a53a00", success="#00674f",
        foreground="#20262e", background="#ffffff", surface="#ffffff", panel="#edf1f5", dark=False,
    ),
)  # fmt: skip


class Palette:
    """Styles by role. `muted` is the same palette with everything in the muted colour: values of long ago."""

    def __init__(self, colours: dict[str, str]) -> None:
        self._base = {name: Style.parse(colour) if colour else Style.null() for name, colour in colours.items()}
        self._joined = dict(self._base)

    def style(self, roles: str) -> Style:
        """The style of one role, or of several joined with "+"."""
        style = self._joined.get(roles)
        if style is None:
            style = Style.combine(self._base[name] for name in roles.split("+"))
            self._joined[roles] = style
        return style

    @cached_property
    def muted(self) -> Palette:
        """This palette with one colour for all."""
        faded = Palette({})
        faded._base = dict.fromkeys(self._base, self._base["muted"])
        return faded


DARK, LIGHT, ANSI, NONE = (Palette(colours) for colours in (_DARK, _LIGHT, _ANSI, _NONE))


def pick(*, dark: bool, ansi: bool, no_color: bool) -> Palette:
    """The palette for a theme and the environment."""
    if no_color:
        return NONE
    if ansi:
        return ANSI
    return DARK if dark else LIGHT
