"""Colours: that they can be read, told apart by all, chosen for good, and are never alone."""

import itertools

import pytest
from rich.color import ColorType

from ddpmon import runs
from ddpmon.tui import palette
from tests.tui import snapshots
from tests.tui.driving import drive
from tests.tui.terminal import Terminal

BACKGROUNDS = ("band", "select")
NO_TEXT = {*BACKGROUNDS, "rule"}
"""Backgrounds, and lines that only set apart what is told apart by its place as well."""
TEXTS = [role for role in palette.ROLES if role not in NO_TEXT]
OWN = [(palette.DARK, palette.THEMES[0]), (palette.LIGHT, palette.THEMES[1])]
own = pytest.mark.parametrize(("colours", "theme"), OWN, ids=["dark", "light"])

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
BLINDNESS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(colour) -> tuple[float, ...]:
    """Linear RGB of a rich colour."""
    parts = [value / 255 for value in colour.get_truecolor()]
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def luminance(colour) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other) -> float:
    """WCAG 2.2's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb) -> tuple[float, ...]:
    """CIE L*a*b* of linear RGB under D65."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in rgb)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(one, other, matrix) -> float:
    """How far two colours are apart (CIE 1976) for someone who sees through `matrix`."""
    seen = [lab([sum(a * b for a, b in zip(row, linear(c), strict=True)) for row in matrix]) for c in (one, other)]
    return sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5


def grounds(colours, theme):
    """Every background that text stands on."""
    from rich.color import Color

    yield from (Color.parse(theme.background), Color.parse(theme.panel), colours.style("select").bgcolor)


@own
@pytest.mark.parametrize("role", TEXTS)
def test_text_can_be_read_on_every_background(colours, theme, role):
    for ground in grounds(colours, theme):
        assert contrast(colours.style(role).color, ground) >= 4.5, ground


@own
def test_the_line_under_the_cursor_can_be_seen(colours, theme):
    ground, _, selected = grounds(colours, theme)
    assert contrast(ground, selected) >= 1.3


@own
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_well_and_wrong_differ_for_who_cannot_tell_red_from_green(colours, theme, blindness):
    for well, wrong in itertools.product(("ok", "info"), ("warn", "bad")):
        colour, other = colours.style(well).color, colours.style(wrong).color
        assert apart(colour, other, BLINDNESS[blindness]) > 25, (well, wrong)


@pytest.mark.parametrize("colours", [palette.DARK, palette.LIGHT, palette.ANSI, palette.NONE])
def test_what_is_wrong_is_bold_in_every_palette_and_every_role_is_there(colours):
    for role in palette.ROLES:
        assert bool(colours.style(role).bold) == (role in {"strong", "warn", "bad", "key"})
    assert colours.style("warn+select") != colours.style("warn")


def test_the_terminal_s_own_colours_are_the_first_eight_so_that_any_terminal_has_them():
    for role in palette.ROLES:
        colour = palette.ANSI.style(role).color
        assert colour is None or (colour.type is ColorType.STANDARD and colour.number < 8)
        assert palette.NONE.style(role).color is None


@pytest.mark.parametrize(("environment", "theme"), [
    ({}, None),
    ({"DDPMON_THEME": "dark"}, "ddpmon-dark"),
    ({"DDPMON_THEME": " Light "}, "ddpmon-light"),
    ({"DDPMON_THEME": "ansi"}, palette.ANSI_THEME),
    ({"DDPMON_THEME": ""}, None),
    ({"COLORFGBG": "0;15"}, "ddpmon-light"),
    ({"COLORFGBG": "0;default;15"}, "ddpmon-light"),
    ({"COLORFGBG": "15;0"}, None),
    ({"COLORFGBG": "15"}, None),
    ({"COLORFGBG": "0;\x1b[2J"}, None),
    ({"COLORFGBG": "0;15", "DDPMON_THEME": "dark"}, "ddpmon-dark"),
])  # fmt: skip
def test_the_theme_is_chosen_by_the_person_else_by_what_the_terminal_says(environment, theme):
    assert palette.chosen_theme(environment) == theme


@pytest.mark.parametrize(("set_", "colours"), [
    ({"DDPMON_THEME": "ansi"}, palette.ANSI),
    ({"COLORFGBG": "0;15"}, palette.LIGHT),
    ({"DDPMON_THEME": "light", "NO_COLOR": "1"}, palette.NONE),
    ({"DDPMON_THEME": "dark", "COLORTERM": "", "TERM": "xterm-16color"}, palette.ANSI),
    ({"COLORTERM": "", "TERM": "linux"}, palette.ANSI),
    ({"COLORTERM": "", "TERM": "xterm-256color"}, palette.DARK),
])  # fmt: skip
def test_the_dashboard_wears_it(monkeypatch, set_, colours):
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    app, _ = drive(snapshots.slow())
    assert app.palette is colours


def test_a_wrong_theme_is_told_before_a_run_is_started(home, monkeypatch):
    monkeypatch.setenv("DDPMON_THEME", "purple")
    with Terminal("ddpmon", "exec", "--", "true", columns=120) as terminal:
        assert terminal.wait_end() == 2
        shown = "\n".join(terminal.screen.display)
    assert "ddpmon: DDPMON_THEME: there is no theme 'purple'; ddpmon has dark, light, ansi" in shown
    assert "Traceback" not in shown
    assert runs.all_runs() == []
