"""The colours of the dashboard by role: dark, light, the terminal's own sixteen, and none.

The colours are Okabe and Ito's, which people with any colour vision can tell apart. No two states differ only by red
and green. Colour is never the only sign: problems are also bold and carry a glyph, so NO_COLOR and sixteen colours lose
nothing. Text has a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3) on each of its backgrounds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from functools import cached_property

from rich.style import Style
from textual.theme import Theme

from ddpmon import config
from ddpmon.errors import UsageError

_STYLES = {
    "text": ("#d5dbe4", "#20262e", ""),
    "strong": ("bold #ffffff", "bold #000000", "bold"),
    "muted": ("#99a2b1", "#565f6b", ""),
    "title": ("#aab3c0", "#4a535f", ""),
    "rule": ("#465062", "#b4bcc6", ""),
    "ok": ("#4fb99f", "#00674f", ""),
    "warn": ("bold #e69f00", "bold #7d5100", "bold yellow"),
    "bad": ("bold #f0814a", "bold #a53a00", "bold red"),
    "info": ("#56b4e9", "#00609a", "cyan"),
    "comm": ("#7aa6d8", "#2f5f9e", ""),
    "data": ("#d68ab4", "#8c3f6b", "magenta"),
    "compute": ("#c3cad5", "#3a434e", ""),
    "wait": ("#9aa3b2", "#56606c", ""),
    "key": ("bold #ffffff", "bold #000000", "bold"),
    "band": ("on #263242", "on #dbe5ee", ""),
    "select": ("on #22344a", "on #cfe1f0", "reverse"),
}
"""Style of each role on a dark background, on a light background, and in the terminal's own sixteen colours.

With sixteen colours, roles that signal nothing use the terminal's own foreground colour, because bright black is
invisible in some colour schemes."""
_DARK, _LIGHT, _ANSI = (dict(zip(_STYLES, styles, strict=True)) for styles in zip(*_STYLES.values(), strict=True))
_NONE = {name: " ".join(word for word in style.split() if word in {"bold", "reverse"}) for name, style in _ANSI.items()}

ROLES = tuple(_STYLES)

ANSI_THEME = "ansi-dark"
"""Textual's theme with the terminal's own sixteen colours and background. It suits light terminals as well as dark
ones."""


def _theme(name: str, colours: Mapping[str, str], background: str, panel: str, *, dark: bool) -> Theme:
    """Return a Textual theme in the dashboard's colours, for the parts that Textual draws itself, such as the command
    palette.
    """
    hues = {role: colours[role].split()[-1] for role in ("info", "warn", "bad", "ok", "text")}
    return Theme(
        name=name, primary=hues["info"], warning=hues["warn"], error=hues["bad"], success=hues["ok"],
        foreground=hues["text"], background=background, surface=background, panel=panel, dark=dark,
    )  # fmt: skip


THEMES = (
    _theme("ddpmon-dark", _DARK, "#101419", "#19202a", dark=True),
    _theme("ddpmon-light", _LIGHT, "#ffffff", "#edf1f5", dark=False),
)

THEME_VARIABLE = "DDPMON_THEME"
_CHOICES = dict(zip(config.THEME_NAMES, (*(theme.name for theme in THEMES), ANSI_THEME), strict=True))
_LIGHT_BACKGROUNDS = {"7", "15"}
"""White and bright white, by the numbers of a terminal's colours in COLORFGBG."""
_STYLE = re.compile(r"(?:(?:bold|italic|underline|reverse) )*(?:on )?#[0-9a-fA-F]{6}")
_PLAIN = re.compile("#[0-9a-fA-F]{6}")


def theme_name(choice: str) -> str:
    """Return Textual's name of a theme.

    Raises:
        UsageError: There is no theme of that name.

    """
    if choice not in _CHOICES and choice not in own_themes():
        raise UsageError(f"there is no theme {choice!r}; ddpmon has {', '.join([*_CHOICES, *own_themes()])}")
    return _CHOICES.get(choice, choice)


def chosen_theme(environment: Mapping[str, str]) -> str | None:
    """Return the theme in DDPMON_THEME, else the light theme if the terminal has a light background, else None.

    Some terminals (rxvt, Konsole, iTerm2) set COLORFGBG to "foreground;background".

    Raises:
        UsageError: DDPMON_THEME names no theme.

    """
    choice = environment.get(THEME_VARIABLE, "").strip()
    if choice:
        choice = choice if choice in own_themes() else choice.lower()
        try:
            return theme_name(choice)
        except UsageError as error:
            raise UsageError(f"{THEME_VARIABLE}: {error}") from None
    _, separator, background = environment.get("COLORFGBG", "").rpartition(";")
    return "ddpmon-light" if separator and background in _LIGHT_BACKGROUNDS else None


def first_theme(textuals: str, environment: Mapping[str, str], remembered: object = None, *, few_colours: bool) -> str:
    """Return the name of the theme with which the dashboard starts.

    Args:
        textuals: The theme that Textual would choose.
        environment: The environment variables of this process.
        remembered: The theme that the user chose last in a dashboard; None if the user has chosen no theme.
        few_colours: True if the terminal has at most 16 colours.

    """
    if few_colours:
        return ANSI_THEME
    if not environment.get(THEME_VARIABLE, "").strip() and isinstance(remembered, str):
        return remembered
    return chosen_theme(environment) or ("ddpmon-dark" if textuals == "textual-dark" else textuals)


class Palette:
    """Rich styles by role. `all_muted` is the same palette in the muted colour only, for outdated values."""

    def __init__(self, colours: dict[str, str]) -> None:
        self._base = {name: Style.parse(colour) if colour else Style.null() for name, colour in colours.items()}
        self._joined = dict(self._base)

    def style(self, roles: str) -> Style:
        """Return the style of one role, or of several roles joined with "+"."""
        style = self._joined.get(roles)
        if style is None:
            style = Style.combine(self._base[name] for name in roles.split("+"))
            self._joined[roles] = style
        return style

    @cached_property
    def all_muted(self) -> Palette:
        """Return this palette with the muted colour for all roles."""
        faded = Palette({})
        faded._base = dict.fromkeys(self._base, self._base["muted"])
        return faded


DARK, LIGHT, ANSI, NONE = (Palette(colours) for colours in (_DARK, _LIGHT, _ANSI, _NONE))


def pick_palette(theme: Theme, *, ansi: bool, no_color: bool) -> Palette:
    """Return the palette for a theme and the terminal's abilities.

    Args:
        theme: The current theme of Textual.
        ansi: True if the terminal's own sixteen colours are used.
        no_color: True if no colours may be used.

    """
    if no_color:
        return NONE
    if ansi:
        return ANSI
    own = own_themes().get(theme.name)
    return own[1] if own is not None else DARK if theme.dark else LIGHT


def own_themes() -> dict[str, tuple[Theme, Palette]]:
    """Return the themes of the config file by name.

    Raises:
        UsageError: A theme has a wrong name or an invalid colour.

    """
    return _own_themes(config.current().path)


@functools.cache
def _own_themes(_of: object) -> dict[str, tuple[Theme, Palette]]:
    own = {}
    for name, table in config.current().themes.items():
        if name in _CHOICES or not name.isprintable():
            raise config.current().wrong(f"themes.{name}", table, f"another name than {', '.join(_CHOICES)}")
        dark = table.get("base", "dark") == "dark"
        colours, first = dict(_DARK if dark else _LIGHT), THEMES[0 if dark else 1]
        grounds = {"background": first.background or "", "panel": first.panel or ""}
        for key, value in table.items():
            allowed = _PLAIN if key in grounds else _STYLE if key in colours else None
            if key == "base" and value in {"dark", "light"}:
                continue
            if allowed is None or not isinstance(value, str) or not allowed.fullmatch(value):
                words = f"base (dark or light), and a colour such as #56b4e9 for {', '.join([*grounds, *colours])}"
                raise config.current().wrong(f"themes.{name}.{key}", value, words)
            (grounds if key in grounds else colours)[key] = value
        own[name] = _theme(name, colours, **grounds, dark=dark), Palette(colours)
    return own
